package weft.interop.dubbo;

import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.dubbo.rpc.RpcContext;
import org.apache.dubbo.rpc.RpcException;
import org.apache.dubbo.rpc.service.GenericService;
import weft.interop.dubbo.References.Export;
import weft.interop.peer.Consumer;
import weft.interop.peer.Idle;
import weft.interop.peer.Load;
import weft.interop.peer.Run;
import weft.interop.peer.Scenario;
import weft.interop.peer.Sockets;

/** Plays the scenarios that call {@link Echo}. */
@SuppressWarnings("deprecation") // RpcContext.getContext exists in Dubbo 2.7 and 3
public final class EchoConsumer {
  private static final int MEGABYTE = 1 << 20;

  private final References references = new References();

  private EchoConsumer() {}

  public static void main(String[] args) throws Exception {
    EchoConsumer c = new EchoConsumer();
    Map<String, Scenario> all = new TreeMap<>();
    all.put("value", c::value);
    all.put("object", c::object);
    all.put("null", c::nothing);
    all.put("user-exception", c::userException);
    all.put("runtime-exception", c::runtimeException);
    all.put("attachments", c::attachments);
    all.put("one-way", c::oneWay);
    all.put("async", c::async);
    all.put("generic", c::generic);
    all.put("large", c::large);
    all.put("concurrent", c::concurrent);
    all.put("groups", c::groups);
    all.put("timeout", c::timeout);
    all.put("deadline", c::deadline);
    all.put("unknown-method", c::unknownMethod);
    all.put("unknown-service", c::unknownService);
    all.put("serialization", c::serialization);
    all.put("idle", c::idle);
    all.put("load", c::load);
    all.put("shares", c::shares);
    Consumer.main(all);
  }

  private void value(Run run) {
    Echo echo = references.echo(Export.of(run));
    run.call("short", () -> echo.say("hello"));
    run.call("empty", () -> echo.say(""));
    run.call("beyond the first plane", () -> echo.say("\u00e4\u20ac\ud83d\ude00"));
    run.call("of two chunks", () -> echo.say("x".repeat(70_000)));
  }

  private void object(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    run.call("birthday", () -> echo.birthday(person()).toString());
    run.call("birthday of nobody in particular", () -> echo.birthday(new Person()).toString());
  }

  private void nothing(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    run.call("result", () -> echo.nothing("x"));
    run.call("argument", () -> echo.say(null));
  }

  private void userException(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    run.call("refuse", () -> echo.refuse("not today"));
    run.call("afterwards", () -> echo.say("still here"));
  }

  private void runtimeException(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    run.call("fail", () -> echo.fail("out of order"));
    run.call("afterwards", () -> echo.say("still here"));
  }

  private void attachments(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    RpcContext.getContext().setAttachment("user-key", "user value");
    RpcContext.getContext().setAttachment("empty", "");
    RpcContext.getContext().setAttachment("unicode", "\u00e4\u20ac");
    run.call("seen by the provider", () -> stable(echo.attachments()));
    run.report("seen by the consumer", stable(ResponseAttachments.last()));
    RpcContext.removeContext(); // Dubbo 2.7 keeps the context for the next call of the thread
    run.call("the next call has none", () -> stable(echo.attachments()));
  }

  /** Returns the attachments without those of Dubbo itself that may differ between calls. */
  private static Map<String, String> stable(Map<String, String> attachments) {
    Map<String, String> all = new TreeMap<>(attachments);
    all.keySet().removeAll(Set.of("timeout", "_TO", "input", "output", "remote.application"));
    return all;
  }

  private void oneWay(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    String text = "posted at " + System.nanoTime();
    run.call(
        "post",
        () -> {
          echo.post(text);
          return null;
        });
    run.call("has arrived", () -> echo.posted(text, 5_000));
    run.call("another has not", () -> echo.posted("never posted", 0));
  }

  private void async(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    run.call("future", () -> echo.later("hello", 20).get(5, TimeUnit.SECONDS));
    run.call("future that fails", () -> echo.failLater("no", 20).get(5, TimeUnit.SECONDS));
    run.call(
        "asynchronous for the consumer alone",
        () -> RpcContext.getContext().asyncCall(() -> echo.say("hi")).get(5, TimeUnit.SECONDS));
  }

  private void generic(Run run) {
    GenericService generic = references.generic(Export.at(run.port()));
    String[] text = {"java.lang.String"};
    run.call("value", () -> generic.$invoke("say", text, new Object[] {"hello"}));
    run.call(
        "object",
        () -> {
          Map<String, Object> person = new TreeMap<>();
          person.put("class", Person.class.getName());
          person.put("name", "Ada");
          person.put("age", 36);
          String[] types = {Person.class.getName()};
          Object older = generic.$invoke("birthday", types, new Object[] {person});
          return new TreeMap<Object, Object>((Map<?, ?>) older);
        });
    run.call("exception", () -> generic.$invoke("refuse", text, new Object[] {"no"}));
    run.call("unknown method", () -> generic.$invoke("unheardOf", text, new Object[] {"x"}));
    run.call(
        "future",
        () -> generic.$invokeAsync("say", text, new Object[] {"hi"}).get(5, TimeUnit.SECONDS));
  }

  private void large(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    byte[] data = new byte[MEGABYTE];
    for (int i = 0; i < data.length; i++) {
      data[i] = (byte) (i * 31 >> 3);
    }
    run.call("bytes both ways", () -> echo.reverse(data));
    run.call("characters both ways", () -> echo.say("\u00e4\u20acx".repeat(MEGABYTE / 6)));
    run.call("afterwards", () -> echo.say("small"));
  }

  /**
   * Makes 100 concurrent calls on one connection. The first call takes longest, so its response
   * must arrive after others.
   */
  private void concurrent(Run run) throws Exception {
    final int calls = 100;
    Echo echo = references.echo(Export.at(run.port()));
    ConcurrentLinkedQueue<Integer> order = new ConcurrentLinkedQueue<>();
    CompletableFuture<?>[] all = new CompletableFuture<?>[calls];
    int[] wrong = new int[1];
    for (int i = 0; i < calls; i++) {
      int number = i;
      all[i] =
          echo.later("call " + i, i == 0 ? 1_000 : (calls - i) * 5L)
              .thenAccept(
                  text -> {
                    order.add(number);
                    if (!text.equals("call " + number)) {
                      wrong[0]++;
                    }
                  });
    }
    run.call("all", () -> CompletableFuture.allOf(all).get(10, TimeUnit.SECONDS));
    run.report("responses", order.size());
    run.report("responses of another call", wrong[0]);
    run.report("out of order", !order.isEmpty() && order.peek() != 0);
    run.report("connections", Sockets.connectedTo(run.port()).size());
  }

  private void groups(Run run) {
    Export any = Export.of(run);
    run.call("without", () -> references.echo(any).name());
    for (String[] one :
        List.of(
            new String[] {"blue", "1.0"},
            new String[] {"green", "1.0"},
            new String[] {"green", "2.0"},
            new String[] {"blue", "2.0"})) {
      Echo echo = references.echo(any.inGroup(one[0], one[1]));
      run.call(String.join(" ", one), echo::name);
    }
  }

  private void timeout(Run run) {
    Echo hasty = references.echo(Export.at(run.port()).within(400));
    run.call("too late", () -> hasty.sleep("never seen", 1_000));
    run.call("meanwhile", () -> hasty.say("in time"));
    run.call("also meanwhile", () -> hasty.posted("never posted", 0));
    Echo patient = references.echo(Export.at(run.port()));
    run.call("when it has come", () -> patient.sleep("in time", 800));
  }

  /**
   * Sends a request with a timeout of 400 ms, but waits longer. Reports whether Weft enforces the
   * timeout of the request.
   */
  private void deadline(Run run) {
    Echo patient = references.echo(Export.at(run.port()));
    String[] message = new String[1];
    run.call(
        "too late",
        () -> {
          RpcContext.getContext().setAttachment("_TO", "400");
          try {
            return patient.sleep("never seen", 1_000);
          } catch (RpcException e) {
            message[0] = e.getMessage();
            throw e;
          } finally {
            RpcContext.removeContext();
          }
        });
    run.report("error of Weft", message[0] != null && message[0].contains("504|weft: "));
    run.call("afterwards", () -> patient.say("still here"));
  }

  private void unknownMethod(Run run) {
    Echo echo = references.echo(Export.at(run.port()));
    run.call("unknown", () -> unheardOf(echo, "hello"));
    run.call("afterwards", () -> echo.say("still here"));
  }

  private static Object unheardOf(Echo echo, String text) throws Exception {
    try {
      return References.callUnknown(echo, text);
    } catch (Exception | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new ExecutionException(e); // Run.cause removes this wrapper
    }
  }

  private void unknownService(Run run) {
    run.call("unknown", () -> references.unknown(Export.at(run.port())).unheardOf("hello"));
    Echo echo = references.echo(Export.at(run.port()));
    run.call("afterwards", () -> echo.say("still here"));
  }

  private void serialization(Run run) {
    String name = run.option("name", "hessian2");
    String group = name.equals("hessian2") ? null : "written-in-" + name;
    Export export = Export.at(run.port()).inGroup(group, null).writtenIn(name);
    Echo echo = references.echo(export);
    run.call("name", echo::name);
    run.call("value", () -> echo.say("\u00e4\u20ac\ud83d\ude00"));
    run.call("object", () -> echo.birthday(person()).toString());
    run.call("null", () -> echo.nothing("x"));
    run.call("exception", () -> echo.refuse("not today"));
    run.call("large", () -> echo.reverse(new byte[100_000]));
  }

  private void idle(Run run) throws Exception {
    Idle.play(run, port -> references.echo(Export.at(port)).say("hello"));
  }

  private void load(Run run) throws Exception {
    String ports = run.option("ports", Integer.toString(run.port()));
    Echo echo = references.echo(Export.of(run).anyOf(ports));
    Load.play(run, () -> echo.nameAfter(run.option("millis", 5)));
  }

  /** Reports how many of the calls each provider served. */
  private void shares(Run run) throws Exception {
    Export export = Export.of(run).inGroup(run.option("group", null), run.option("version", null));
    Echo echo = references.echo(export);
    Map<String, Integer> counts = new TreeMap<>();
    run.call(
        "calls",
        () -> {
          for (int i = 0; i < run.option("calls", 400); i++) {
            counts.merge(echo.name(), 1, Integer::sum);
          }
          return counts;
        });
  }

  private static Person person() {
    Person friend = new Person();
    friend.setName("Grace \u00e4\u20ac");
    friend.setScores(new TreeMap<>());
    Person person = new Person();
    person.setName("Ada");
    person.setAge(36);
    person.setId(1L << 40);
    person.setHeight(1.65);
    person.setActive(true);
    person.setBorn(new Date(86_400_000L));
    person.setTags(Arrays.asList("a", null, "c"));
    person.setScores(new TreeMap<>(Map.of("chess", 3, "go", 1 << 20)));
    person.setFriend(friend);
    return person;
  }
}
