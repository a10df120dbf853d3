package weft.interop.dubbo;

import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.RegistryConfig;

/** What both sides are configured with. */
final class Applications {
  /** A connection without a heartbeat for three times as long is closed. */
  static final String HEARTBEAT_MS = "2000";

  private Applications() {}

  /** An application that listens nowhere but where it is told to. */
  static ApplicationConfig of(String name) {
    ApplicationConfig application = new ApplicationConfig(name);
    application.setQosEnable(false);
    application.setParameters(Map.of("dump.enable", "false"));
    return application;
  }

  /** A registry, as zookeeper://127.0.0.1:2181, whose servers may take their time. */
  static RegistryConfig registry(String address) {
    RegistryConfig registry = new RegistryConfig(address);
    registry.setTimeout(30_000);
    return registry;
  }
}
