package weft.interop.dubbo;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.MethodConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.rpc.service.GenericService;
import weft.interop.peer.Run;

/** Creates and caches the consumer's proxies of services. Proxies of a port share a connection. */
final class References {
  private final ApplicationConfig application = Applications.of("echo-consumer");
  private final Map<String, Object> made = new ConcurrentHashMap<>();

  /** Identifies an export of the provider, and sets how the consumer calls it. */
  record Export(
      String ports,
      String registry,
      String group,
      String version,
      String serialization,
      int timeoutMs) {
    static Export at(int port) {
      return new Export(Integer.toString(port), null, null, null, null, 10_000);
    }

    /**
     * Returns the export at the port of the run. If the run has the option registry, the address of
     * a registry, the consumer uses the registry instead of the port.
     */
    static Export of(Run run) {
      String registry = run.option("registry", null);
      return new Export(Integer.toString(run.port()), registry, null, null, null, 10_000);
    }

    Export inGroup(String group, String version) {
      return new Export(ports, registry, group, version, serialization, timeoutMs);
    }

    Export writtenIn(String serialization) {
      return new Export(ports, registry, group, version, serialization, timeoutMs);
    }

    Export within(int timeoutMs) {
      return new Export(ports, registry, group, version, serialization, timeoutMs);
    }

    /** Returns the export at several ports, which are separated by commas. */
    Export anyOf(String ports) {
      return new Export(ports, registry, group, version, serialization, timeoutMs);
    }
  }

  Echo echo(Export export) {
    return get(Echo.class, export);
  }

  Unknown unknown(Export export) {
    return get(Unknown.class, export);
  }

  /** Calls a method that {@link Echo} does not declare, through the handler of the proxy. */
  static Object callUnknown(Echo echo, Object... arguments) throws Throwable {
    Field field = echo.getClass().getDeclaredField("handler");
    field.setAccessible(true);
    InvocationHandler handler = (InvocationHandler) field.get(echo);
    Method unheardOf = Unknown.class.getMethod("unheardOf", String.class);
    return handler.invoke(echo, unheardOf, arguments);
  }

  GenericService generic(Export export) {
    Object service =
        made.computeIfAbsent(
            "generic " + export,
            key -> {
              ReferenceConfig<GenericService> reference = reference(Echo.class.getName(), export);
              reference.setInterface(Echo.class.getName());
              reference.setGeneric("true");
              return reference.get();
            });
    return (GenericService) service;
  }

  private <T> T get(Class<T> type, Export export) {
    Object service =
        made.computeIfAbsent(
            type.getName() + " " + export,
            key -> {
              ReferenceConfig<T> reference = reference(type.getName(), export);
              reference.setInterface(type);
              if (type == Echo.class) {
                reference.setMethods(List.of(post()));
              }
              return reference.get();
            });
    return type.cast(service);
  }

  /** Returns the configuration that makes calls of post one-way. */
  private static MethodConfig post() {
    MethodConfig post = new MethodConfig();
    post.setName("post");
    post.setReturn(false);
    post.setSent(true);
    return post;
  }

  private <T> ReferenceConfig<T> reference(String path, Export export) {
    ReferenceConfig<T> reference = new ReferenceConfig<>();
    reference.setApplication(application);
    reference.setGroup(export.group);
    reference.setVersion(export.version);
    reference.setTimeout(export.timeoutMs);
    reference.setRetries(0);
    reference.setCheck(false);
    Map<String, String> parameters = new HashMap<>();
    parameters.put("heartbeat", Applications.HEARTBEAT_MS);
    parameters.put("reconnect", "true");
    String serialization = export.serialization == null ? "hessian2" : export.serialization;
    parameters.put("serialization", serialization);
    parameters.put("prefer.serialization", serialization);
    reference.setParameters(parameters);
    if (export.registry != null) {
      reference.setRegistry(Applications.registry(export.registry));
      return reference;
    }
    StringBuilder urls = new StringBuilder();
    for (String port : export.ports.split(",")) {
      urls.append(urls.isEmpty() ? "" : ";").append("dubbo://127.0.0.1:" + port + "/" + path);
    }
    reference.setUrl(urls.toString());
    if (export.ports.contains(",")) {
      reference.setCluster("failfast"); // otherwise Dubbo 2.7 treats the addresses as registries
    }
    return reference;
  }
}
