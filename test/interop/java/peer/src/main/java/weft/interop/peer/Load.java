package weft.interop.peer;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Callers that call without pause until they are told to stop. Reported are the first answer of
 * each provider, the first lost calls with when they began and ended, and the sums.
 */
public final class Load {
  private static final int MOST_REPORTED = 200;

  private final Run run;
  private final Callable<String> call;
  private final Set<String> seen = ConcurrentHashMap.newKeySet();
  private final AtomicInteger answered = new AtomicInteger();
  private final AtomicInteger lost = new AtomicInteger();
  private volatile boolean stopped;

  private Load(Run run, Callable<String> call) {
    this.run = run;
    this.call = call;
  }

  /**
   * Plays with as many callers as the option "callers" says. A call returns the name of the
   * provider that answered.
   */
  public static void play(Run run, Callable<String> call) throws Exception {
    new Load(run, call).play();
  }

  private void play() throws Exception {
    List<Thread> callers = new ArrayList<>();
    for (int i = 0; i < run.option("callers", 16); i++) {
      Thread caller = new Thread(this::callUntilStopped);
      caller.setDaemon(true);
      caller.start();
      callers.add(caller);
    }
    run.awaitStop();
    stopped = true;
    for (Thread caller : callers) {
      caller.join();
    }
    run.report("answered", answered.get());
    run.report("lost", lost.get());
  }

  private void callUntilStopped() {
    while (!stopped) {
      long began = System.currentTimeMillis();
      try {
        String provider = call.call();
        answered.incrementAndGet();
        if (seen.add(provider)) {
          run.report("first answer of", provider);
        }
      } catch (Throwable e) {
        if (lost.incrementAndGet() <= MOST_REPORTED) {
          Map<String, Object> what = new LinkedHashMap<>(Failure.describe(e));
          what.put("began_ms", began);
          what.put("ended_ms", System.currentTimeMillis());
          run.report("lost call", what);
        }
      }
    }
  }
}
