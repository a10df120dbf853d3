package weft.interop.sofa;

import com.alipay.remoting.InvokeCallback;
import com.alipay.remoting.rpc.RpcClient;
import com.alipay.remoting.rpc.RpcResponseFuture;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import weft.interop.peer.Consumer;
import weft.interop.peer.Idle;
import weft.interop.peer.Load;
import weft.interop.peer.Run;
import weft.interop.peer.Scenario;
import weft.interop.peer.Sockets;
import weft.interop.sofa.Question.Kind;

/**
 * Plays scenarios with the Bolt library, without SOFARPC. The option "version" of every scenario is
 * the protocol version: v1, v2, or v2crc, which is v2 with a checksum in each frame.
 */
public final class BoltConsumer {
  private static final int PATIENCE_MS = 10_000;
  private static final int MEGABYTE = 1 << 20;

  private final RpcClient client = new RpcClient();

  private BoltConsumer() {
    client.startup();
  }

  public static void main(String[] args) throws Exception {
    Headers.register();
    BoltConsumer c = new BoltConsumer();
    Map<String, Scenario> all = new TreeMap<>();
    all.put("sync", c::sync);
    all.put("null", c::nothing);
    all.put("future", c::future);
    all.put("callback", c::callback);
    all.put("one-way", c::oneWay);
    all.put("server-exception", c::serverException);
    all.put("headers", c::headers);
    all.put("large", c::large);
    all.put("concurrent", c::concurrent);
    all.put("timeout", c::timeout);
    all.put("deadline", c::deadline);
    all.put("no-processor", c::noProcessor);
    all.put("idle", c::idle);
    all.put("load", c::load);
    Consumer.main(all);
  }

  /** Returns an address in the format of the library, which keeps one connection per address. */
  private static String address(Run run) {
    return address(run, run.port());
  }

  private static String address(Run run, int port) {
    String version =
        switch (run.option("version", "v1")) {
          case "v1" -> "_PROTOCOL=1&_VERSION=1";
          case "v2" -> "_PROTOCOL=2&_VERSION=1";
          case "v2crc" -> "_PROTOCOL=2&_VERSION=2";
          default -> throw new IllegalArgumentException("version");
        };
    return "127.0.0.1:" + port + "?" + version;
  }

  private Object ask(Run run, Kind kind, Object content, long millis) throws Exception {
    Question question = new Question(kind, content, millis);
    Answer answer = (Answer) client.invokeSync(address(run), question, PATIENCE_MS);
    return answer == null ? null : answer.value();
  }

  private void sync(Run run) {
    run.call("short", () -> ask(run, Kind.ECHO, "hello", 0));
    run.call("empty", () -> ask(run, Kind.ECHO, "", 0));
    run.call("beyond the first plane", () -> ask(run, Kind.ECHO, "\u00e4\u20ac\ud83d\ude00", 0));
    run.call(
        "map", () -> ask(run, Kind.ECHO, new TreeMap<>(Map.of("a", 1L << 40, "b", -1.5)), 0));
  }

  private void nothing(Run run) {
    run.call("result", () -> ask(run, Kind.NULL, "x", 0));
    run.call("content", () -> ask(run, Kind.ECHO, null, 0));
  }

  private void future(Run run) {
    Question question = new Question(Kind.SLEEP, "hello", 20);
    run.call(
        "value",
        () -> {
          RpcResponseFuture future = client.invokeWithFuture(address(run), question, PATIENCE_MS);
          return ((Answer) future.get(PATIENCE_MS)).value();
        });
    run.call(
        "exception",
        () ->
            client
                .invokeWithFuture(address(run), new Question(Kind.FAIL, "no", 0), PATIENCE_MS)
                .get(PATIENCE_MS));
  }

  /** A future that the callback of a call completes. */
  private static final class Reply extends CompletableFuture<Object> implements InvokeCallback {
    @Override
    public void onResponse(Object answer) {
      complete(answer == null ? null : ((Answer) answer).value());
    }

    @Override
    public void onException(Throwable e) {
      completeExceptionally(e);
    }

    @Override
    public Executor getExecutor() {
      return null;
    }
  }

  private Reply send(Run run, Kind kind, Object content, long millis) throws Exception {
    Reply reply = new Reply();
    Question question = new Question(kind, content, millis);
    client.invokeWithCallback(address(run), question, reply, PATIENCE_MS);
    return reply;
  }

  private void callback(Run run) {
    run.call("value", () -> send(run, Kind.ECHO, "hello", 0).get(5, TimeUnit.SECONDS));
    run.call("null", () -> send(run, Kind.NULL, "hello", 0).get(5, TimeUnit.SECONDS));
    run.call("exception", () -> send(run, Kind.FAIL, "no", 0).get(5, TimeUnit.SECONDS));
  }

  private void oneWay(Run run) {
    String text = "posted at " + System.nanoTime();
    run.call(
        "post",
        () -> {
          client.oneway(address(run), new Question(Kind.POST, text, 0));
          return null;
        });
    run.call("has arrived", () -> ask(run, Kind.POSTED, text, 5_000));
    run.call("another has not", () -> ask(run, Kind.POSTED, "never posted", 0));
    run.call(
        "one that fails",
        () -> {
          client.oneway(address(run), new Question(Kind.FAIL, text, 0));
          return null;
        });
    run.call("afterwards", () -> ask(run, Kind.ECHO, "still here", 0));
  }

  private void serverException(Run run) {
    run.call("fail", () -> ask(run, Kind.FAIL, "out of order", 0));
    run.call("afterwards", () -> ask(run, Kind.ECHO, "still here", 0));
  }

  private void headers(Run run) {
    Map<String, String> headers = new LinkedHashMap<>();
    headers.put("service", "weft.interop.Questions");
    headers.put("user-key", "user value");
    headers.put("empty", "");
    headers.put("unicode", "\u00e4\u20ac");
    Question question = new Question(Kind.HEADERS, null, 0).withHeaders(headers);
    CompletableFuture<Answer> answer = new CompletableFuture<>();
    run.call(
        "seen by the provider",
        () -> {
          answer.complete((Answer) client.invokeSync(address(run), question, PATIENCE_MS));
          return answer.join().value();
        });
    run.call("seen by the consumer", () -> answer.get(0, TimeUnit.SECONDS).headers());
    run.call("the next call has none", () -> ask(run, Kind.HEADERS, null, 0));
  }

  private void large(Run run) {
    byte[] data = new byte[MEGABYTE];
    for (int i = 0; i < data.length; i++) {
      data[i] = (byte) (i * 31 >> 3);
    }
    run.call("bytes both ways", () -> ask(run, Kind.ECHO, data, 0));
    run.call("afterwards", () -> ask(run, Kind.ECHO, "small", 0));
  }

  /**
   * Makes 100 concurrent calls on one connection. The first call takes longest, so its response
   * must arrive after others.
   */
  private void concurrent(Run run) throws Exception {
    final int calls = 100;
    ConcurrentLinkedQueue<Integer> order = new ConcurrentLinkedQueue<>();
    ConcurrentLinkedQueue<Object> wrong = new ConcurrentLinkedQueue<>();
    CompletableFuture<?>[] all = new CompletableFuture<?>[calls];
    for (int i = 0; i < calls; i++) {
      int number = i;
      all[i] =
          send(run, Kind.SLEEP, "call " + i, i == 0 ? 1_000 : (calls - i) * 5L)
              .thenAccept(
                  text -> {
                    order.add(number);
                    if (!text.equals("call " + number)) {
                      wrong.add(text);
                    }
                  });
    }
    run.call("all", () -> CompletableFuture.allOf(all).get(10, TimeUnit.SECONDS));
    run.report("responses", order.size());
    run.report("responses of another call", wrong.size());
    run.report("out of order", !order.isEmpty() && order.peek() != 0);
    run.report("connections", Sockets.connectedTo(run.port()).size());
  }

  private void timeout(Run run) {
    Question slow = new Question(Kind.SLEEP, "never seen", 1_000);
    run.call("too late", () -> client.invokeSync(address(run), slow, 400));
    run.call("meanwhile", () -> ask(run, Kind.ECHO, "in time", 0));
    run.call("when it has come", () -> ask(run, Kind.SLEEP, "in time", 800));
  }

  /** Sends a request with a timeout that is shorter than the time that the library waits. */
  private void deadline(Run run) {
    Question slow = new Question(Kind.SLEEP, "never seen", 1_000).withDeadline(400);
    run.call("too late", () -> client.invokeSync(address(run), slow, PATIENCE_MS));
    run.call("afterwards", () -> ask(run, Kind.ECHO, "still here", 0));
  }

  private void noProcessor(Run run) {
    run.call("ask", () -> client.invokeSync(address(run), new Unanswered(), PATIENCE_MS));
    run.call("afterwards", () -> ask(run, Kind.ECHO, "still here", 0));
  }

  private void idle(Run run) throws Exception {
    Question question = new Question(Kind.ECHO, "hello", 0);
    Idle.play(
        run,
        port ->
            ((Answer) client.invokeSync(address(run, port), question, PATIENCE_MS)).value());
  }

  private void load(Run run) throws Exception {
    Load.play(run, () -> (String) ask(run, Kind.NAME, null, run.option("millis", 5)));
  }
}
