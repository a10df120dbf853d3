package weft.interop.sofa;

import com.alipay.sofa.rpc.common.RpcConstants;
import com.alipay.sofa.rpc.config.ConsumerConfig;
import com.alipay.sofa.rpc.config.MethodConfig;
import com.alipay.sofa.rpc.context.RpcInvokeContext;
import com.alipay.sofa.rpc.core.exception.SofaRpcException;
import com.alipay.sofa.rpc.core.invoke.SofaResponseCallback;
import com.alipay.sofa.rpc.core.request.RequestBase;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import weft.interop.peer.Consumer;
import weft.interop.peer.Idle;
import weft.interop.peer.Load;
import weft.interop.peer.Run;
import weft.interop.peer.Scenario;
import weft.interop.peer.Sockets;

/** Plays the scenarios that call {@link Desk} with SOFARPC. */
public final class DeskConsumer {
  private static final int PATIENCE_MS = 10_000;
  private static final int MEGABYTE = 1 << 20;

  private final Map<String, Desk> desks = new ConcurrentHashMap<>();

  private DeskConsumer() {}

  public static void main(String[] args) throws Exception {
    System.setProperty("invoke.baggage.enable", "true");
    DeskConsumer c = new DeskConsumer();
    Map<String, Scenario> all = new TreeMap<>();
    all.put("value", c::value);
    all.put("object", c::object);
    all.put("null", c::nothing);
    all.put("user-exception", c::userException);
    all.put("runtime-exception", c::runtimeException);
    all.put("future", c::future);
    all.put("callback", c::callback);
    all.put("one-way", c::oneWay);
    all.put("baggage", c::baggage);
    all.put("large", c::large);
    all.put("concurrent", c::concurrent);
    all.put("unique-id", c::uniqueId);
    all.put("timeout", c::timeout);
    all.put("unknown-service", c::unknownService);
    all.put("idle", c::idle);
    all.put("load", c::load);
    Consumer.main(all);
  }

  private Desk desk(int port) {
    return desk(Integer.toString(port), null, RpcConstants.INVOKER_TYPE_SYNC, PATIENCE_MS);
  }

  private Desk desk(int port, String invokeType) {
    return desk(Integer.toString(port), null, invokeType, PATIENCE_MS);
  }

  /** Returns a proxy of the service at one or more ports. Creates each proxy only once. */
  private Desk desk(String ports, String id, String invokeType, int timeoutMs) {
    return desks.computeIfAbsent(
        String.join(" ", ports, String.valueOf(id), invokeType, Integer.toString(timeoutMs)),
        key -> {
          MethodConfig post = new MethodConfig();
          post.setName("post").setInvokeType(RpcConstants.INVOKER_TYPE_ONEWAY);
          ConsumerConfig<Desk> consumer = new ConsumerConfig<>();
          consumer.setInterfaceId(Desk.class.getName());
          if (id != null) {
            consumer.setUniqueId(id);
          }
          consumer.setProtocol("bolt");
          consumer.setDirectUrl(
              String.join(
                  ";",
                  Arrays.stream(ports.split(",")).map(p -> "bolt://127.0.0.1:" + p).toList()));
          consumer.setInvokeType(invokeType);
          consumer.setMethods(List.of(post));
          consumer.setTimeout(timeoutMs);
          consumer.setRetries(0);
          consumer.setRepeatedReferLimit(-1); // the proxies of the service have different settings
          consumer.setRegister(false);
          return consumer.refer();
        });
  }

  private void value(Run run) {
    Desk desk = desk(run.port());
    run.call("short", () -> desk.say("hello"));
    run.call("empty", () -> desk.say(""));
    run.call("beyond the first plane", () -> desk.say("\u00e4\u20ac\ud83d\ude00"));
    run.call("of two chunks", () -> desk.say("x".repeat(70_000)));
  }

  private void object(Run run) {
    Parcel small = new Parcel("Grace \u00e4\u20ac", 0.5, 1, List.of(), Map.of(), null);
    Parcel parcel =
        new Parcel(
            "Ada", 1.65, 1L << 40, Arrays.asList("a", null), new TreeMap<>(Map.of("go", 3)), small);
    run.call("pack", () -> desk(run.port()).pack(parcel).toString());
  }

  private void nothing(Run run) {
    run.call("result", () -> desk(run.port()).nothing("x"));
    run.call("argument", () -> desk(run.port()).say(null));
  }

  private void userException(Run run) {
    run.call("refuse", () -> desk(run.port()).refuse("not today"));
    run.call("afterwards", () -> desk(run.port()).say("still here"));
  }

  private void runtimeException(Run run) {
    run.call("fail", () -> desk(run.port()).fail("out of order"));
    run.call("afterwards", () -> desk(run.port()).say("still here"));
  }

  private void future(Run run) {
    Desk desk = desk(run.port(), RpcConstants.INVOKER_TYPE_FUTURE);
    run.call(
        "value",
        () -> {
          desk.sleep("hello", 20);
          return lastFuture().get(5, TimeUnit.SECONDS);
        });
    run.call(
        "exception",
        () -> {
          desk.refuse("not today");
          return lastFuture().get(5, TimeUnit.SECONDS);
        });
  }

  /** Returns the future of the calling thread's last call. */
  private static Future<?> lastFuture() {
    return RpcInvokeContext.getContext().getFuture();
  }

  /** A future that the callback of a call completes. */
  private static final class Reply extends CompletableFuture<Object>
      implements SofaResponseCallback<Object> {
    @Override
    public void onAppResponse(Object response, String method, RequestBase request) {
      complete(response);
    }

    @Override
    public void onAppException(Throwable e, String method, RequestBase request) {
      completeExceptionally(e);
    }

    @Override
    public void onSofaException(SofaRpcException e, String method, RequestBase request) {
      completeExceptionally(e);
    }
  }

  /** Returns a future that the calling thread's next call completes. */
  private static Reply nextReply() {
    Reply reply = new Reply();
    RpcInvokeContext.getContext().setResponseCallback(reply);
    return reply;
  }

  private void callback(Run run) {
    Desk desk = desk(run.port(), RpcConstants.INVOKER_TYPE_CALLBACK);
    run.call(
        "value",
        () -> {
          Reply reply = nextReply();
          desk.say("hello");
          return reply.get(5, TimeUnit.SECONDS);
        });
    run.call(
        "exception",
        () -> {
          Reply reply = nextReply();
          desk.refuse("not today");
          return reply.get(5, TimeUnit.SECONDS);
        });
  }

  private void oneWay(Run run) {
    Desk desk = desk(run.port());
    String text = "posted at " + System.nanoTime();
    run.call(
        "post",
        () -> {
          desk.post(text);
          return null;
        });
    run.call("has arrived", () -> desk.posted(text, 5_000));
    run.call("another has not", () -> desk.posted("never posted", 0));
  }

  private void baggage(Run run) {
    RpcInvokeContext.removeContext();
    RpcInvokeContext context = RpcInvokeContext.getContext();
    context.putRequestBaggage("user-key", "user value");
    context.putRequestBaggage("unicode", "\u00e4\u20ac");
    run.call("seen by the provider", () -> new TreeMap<>(desk(run.port()).baggage()));
    run.report("seen by the consumer", new TreeMap<>(context.getAllResponseBaggage()));
    RpcInvokeContext.removeContext();
    run.call("the next call has none", () -> new TreeMap<>(desk(run.port()).baggage()));
    RpcInvokeContext.removeContext();
  }

  private void large(Run run) {
    byte[] data = new byte[MEGABYTE];
    for (int i = 0; i < data.length; i++) {
      data[i] = (byte) (i * 31 >> 3);
    }
    run.call("bytes both ways", () -> desk(run.port()).reverse(data));
    run.call("afterwards", () -> desk(run.port()).say("small"));
  }

  /**
   * Makes 100 concurrent calls on one connection. The first call takes longest, so its response
   * must arrive after others.
   */
  private void concurrent(Run run) throws Exception {
    final int calls = 100;
    Desk desk = desk(run.port(), RpcConstants.INVOKER_TYPE_CALLBACK);
    ConcurrentLinkedQueue<Integer> order = new ConcurrentLinkedQueue<>();
    ConcurrentLinkedQueue<Object> wrong = new ConcurrentLinkedQueue<>();
    CompletableFuture<?>[] all = new CompletableFuture<?>[calls];
    for (int i = 0; i < calls; i++) {
      int number = i;
      Reply reply = nextReply();
      all[i] =
          reply.thenAccept(
              text -> {
                order.add(number);
                if (!text.equals("call " + number)) {
                  wrong.add(text);
                }
              });
      desk.sleep("call " + i, i == 0 ? 2_500 : (calls - i) * 5L);
    }
    run.call("all", () -> CompletableFuture.allOf(all).get(10, TimeUnit.SECONDS));
    run.report("responses", order.size());
    run.report("responses of another call", wrong.size());
    run.report("out of order", !order.isEmpty() && order.peek() != 0);
    run.report("connections", Sockets.connectedTo(run.port()).size());
  }

  private void uniqueId(Run run) {
    String port = Integer.toString(run.port());
    Desk second = desk(port, "second", RpcConstants.INVOKER_TYPE_SYNC, PATIENCE_MS);
    run.call("without", () -> desk(run.port()).name(0));
    run.call("second", () -> second.name(0));
  }

  private void timeout(Run run) {
    String port = Integer.toString(run.port());
    Desk hasty = desk(port, null, RpcConstants.INVOKER_TYPE_SYNC, 400);
    run.call("too late", () -> hasty.sleep("never seen", 1_000));
    run.call("meanwhile", () -> hasty.say("in time"));
    run.call("when it has come", () -> desk(run.port()).sleep("in time", 800));
  }

  private void unknownService(Run run) {
    String port = Integer.toString(run.port());
    Desk third = desk(port, "third", RpcConstants.INVOKER_TYPE_SYNC, PATIENCE_MS);
    run.call("third", () -> third.say("hello"));
    run.call("afterwards", () -> desk(run.port()).say("still here"));
  }

  private void idle(Run run) throws Exception {
    Idle.play(run, port -> desk(port).say("hello"));
  }

  private void load(Run run) throws Exception {
    String ports = run.option("ports", Integer.toString(run.port()));
    Desk desk = desk(ports, null, RpcConstants.INVOKER_TYPE_SYNC, PATIENCE_MS);
    Load.play(run, () -> desk.name(run.option("millis", 5)));
  }
}
