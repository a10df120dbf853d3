package weft.interop.dubbo;

import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;

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
}
