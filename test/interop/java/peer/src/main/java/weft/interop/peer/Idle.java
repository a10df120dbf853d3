package weft.interop.peer;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Leaves connections idle for the time in the option "seconds", then reports whether they are still
 * the same. The option "ports" lists the destination ports. The name of each report begins with the
 * index of the port in the list.
 */
public final class Idle {
  private Idle() {}

  /** Makes a call to a port. */
  @FunctionalInterface
  public interface Call {
    Object to(int port) throws Exception;
  }

  public static void play(Run run, Call call) throws Exception {
    String[] list = run.option("ports", Integer.toString(run.port())).split(",");
    int[] ports = Stream.of(list).mapToInt(Integer::parseInt).toArray();
    List<Set<Integer>> before = new ArrayList<>();
    for (int i = 0; i < ports.length; i++) {
      int port = ports[i];
      run.call(i + " before", () -> call.to(port));
      before.add(Sockets.connectedTo(port));
    }
    TimeUnit.SECONDS.sleep(run.option("seconds", 10));
    for (int i = 0; i < ports.length; i++) {
      int port = ports[i];
      Set<Integer> now = Sockets.connectedTo(port);
      run.report(i + " connections", now.size());
      run.report(i + " same connections", now.equals(before.get(i)));
      run.call(i + " after", () -> call.to(port));
    }
  }
}
