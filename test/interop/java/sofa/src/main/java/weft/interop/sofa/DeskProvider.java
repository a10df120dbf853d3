package weft.interop.sofa;

import com.alipay.sofa.rpc.config.ProviderConfig;
import com.alipay.sofa.rpc.config.ServerConfig;
import weft.interop.peer.Provider;

/**
 * Exports {@link Desk} with SOFARPC, once without a unique id and once with the unique id "second".
 * Usage: DeskProvider PORT NAME
 */
public final class DeskProvider {
  private DeskProvider() {}

  public static void main(String[] args) throws Exception {
    System.setProperty("invoke.baggage.enable", "true");
    Provider.main(
        args,
        port -> {
          ServerConfig server = new ServerConfig();
          server.setProtocol("bolt").setBoundHost("127.0.0.1").setHost("127.0.0.1").setPort(port);
          server.setCoreThreads(200).setDaemon(true); // a call that sleeps blocks a thread
          export(server, args[1], null);
          export(server, args[1] + " second", "second");
        });
  }

  private static void export(ServerConfig server, String name, String id) {
    ProviderConfig<Desk> provider = new ProviderConfig<>();
    provider.setInterfaceId(Desk.class.getName());
    if (id != null) {
      provider.setUniqueId(id);
    }
    provider.setRef(new DeskService(name));
    provider.setServer(server);
    provider.setRegister(false);
    provider.export();
  }
}
