package weft.interop.dubbo;

import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import weft.interop.peer.Provider;

/**
 * Exports {@link Echo} on the port of the first argument: plainly, in two groups and two versions,
 * and in a group for each further serialization that is named after the provider's name.
 *
 * <p>Usage: EchoProvider PORT NAME [SERIALIZATION]...
 */
public final class EchoProvider {
  private final ApplicationConfig application = Applications.of("echo-provider");
  private final ProtocolConfig protocol = new ProtocolConfig("dubbo");
  private final String name;

  private EchoProvider(String name, int port) {
    this.name = name;
    protocol.setHost("127.0.0.1");
    protocol.setPort(port);
    protocol.setThreadpool("cached");
    protocol.setIothreads(2);
    protocol.setParameters(Map.of("heartbeat", Applications.HEARTBEAT_MS));
  }

  public static void main(String[] args) throws Exception {
    Provider.main(args, port -> export(port, args));
  }

  private static void export(int port, String[] args) {
    EchoProvider provider = new EchoProvider(args[1], port);
    provider.export(null, null, null);
    provider.export("blue", "1.0", null);
    provider.export("green", "1.0", null);
    provider.export("green", "2.0", null);
    for (int i = 2; i < args.length; i++) {
      provider.export("written-in-" + args[i], null, args[i]);
    }
  }

  private void export(String group, String version, String serialization) {
    String suffix = (group == null ? "" : " " + group) + (version == null ? "" : " " + version);
    ServiceConfig<Echo> service = new ServiceConfig<>();
    service.setApplication(application);
    service.setRegistry(new RegistryConfig(RegistryConfig.NO_AVAILABLE));
    service.setProtocol(protocol);
    service.setInterface(Echo.class);
    service.setRef(new EchoService(name + suffix));
    service.setGroup(group);
    service.setVersion(version);
    if (serialization != null) {
      service.setParameters(Map.of("serialization", serialization));
    }
    service.export();
  }
}
