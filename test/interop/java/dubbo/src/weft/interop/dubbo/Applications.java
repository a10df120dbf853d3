package weft.interop.dubbo;

import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.RegistryConfig;

/** The configuration that the consumer and the provider share. */
final class Applications {
  /** Dubbo closes a connection that is silent for three heartbeat intervals. */
  static final String HEARTBEAT_MS = "2000";

  private Applications() {}

  /** Returns an application without the QoS server, so that it opens no other port. */
  static ApplicationConfig of(String name) {
    ApplicationConfig application = new ApplicationConfig(name);
    application.setQosEnable(false);
    application.setParameters(Map.of("dump.enable", "false"));
    return application;
  }

  /**
   * Returns the registry at an address such as zookeeper://127.0.0.1:2181. Its timeout is long,
   * because its servers may be slow.
   */
  static RegistryConfig registry(String address) {
    RegistryConfig registry = new RegistryConfig(address);
    registry.setTimeout(30_000);
    return registry;
  }
}
