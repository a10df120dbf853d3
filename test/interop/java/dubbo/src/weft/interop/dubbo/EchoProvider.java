package weft.interop.dubbo;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import weft.interop.peer.Provider;

/**
 * Exports {@link Echo} several times on one port: without a group, in two groups and two versions,
 * and in a group of its own for each further serialization in the arguments.
 *
 * <p>Usage: EchoProvider PORT NAME [SERIALIZATION | OPTION=VALUE]...
 *
 * <p>The option registry is the address of a registry in which to register the exports, for example
 * zookeeper://127.0.0.1:2181?register-mode=instance. The option application sets the name of the
 * application. Other options, such as weight, are parameters of the services.
 */
public final class EchoProvider {
  private final ApplicationConfig application;
  private final RegistryConfig registry;
  private final ProtocolConfig protocol = new ProtocolConfig("dubbo");
  private final Map<String, String> parameters;
  private final String name;

  private EchoProvider(String name, int port, Map<String, String> options) {
    this.name = name;
    parameters = new HashMap<>(options);
    String at = parameters.remove("registry");
    registry = at == null ? new RegistryConfig(RegistryConfig.NO_AVAILABLE) : Applications.registry(at);
    String called = parameters.remove("application");
    application = Applications.of(called == null ? "echo-provider" : called);
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
    Map<String, String> options = new HashMap<>();
    List<String> serializations = new ArrayList<>();
    for (int i = 2; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      if (pair.length == 2) {
        options.put(pair[0], pair[1]);
      } else {
        serializations.add(args[i]);
      }
    }
    EchoProvider provider = new EchoProvider(args[1], port, options);
    provider.export(null, null, null);
    provider.export("blue", "1.0", null);
    provider.export("green", "1.0", null);
    provider.export("green", "2.0", null);
    for (String serialization : serializations) {
      provider.export("written-in-" + serialization, null, serialization);
    }
  }

  private void export(String group, String version, String serialization) {
    String suffix = (group == null ? "" : " " + group) + (version == null ? "" : " " + version);
    ServiceConfig<Echo> service = new ServiceConfig<>();
    service.setApplication(application);
    service.setRegistry(registry);
    service.setProtocol(protocol);
    service.setInterface(Echo.class);
    service.setRef(new EchoService(name + suffix));
    service.setGroup(group);
    service.setVersion(version);
    Map<String, String> all = new HashMap<>(parameters);
    if (serialization != null) {
      all.put("serialization", serialization);
    }
    if (!all.isEmpty()) {
      service.setParameters(all);
    }
    service.export();
  }
}
