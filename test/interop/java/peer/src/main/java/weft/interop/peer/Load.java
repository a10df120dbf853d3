package weft.interop.peer;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Makes calls in several threads without a pause until the command "stop". During the run, it
 * reports the first response of each provider and each multiple of {@link #MILESTONE} responses. At
 * the end, it reports the totals, and the count and the times of each kind of failure. Times are in
 * milliseconds since the Unix epoch. "stalled in ms" is the longest time for which this process
 * itself could not run.
 */
public final class Load {
  private static final int MILESTONE = 500;
  private static final int PAUSE_AFTER_FAILURE_MS = 20;
  private static final int TICK_MS = 10;

  private final Run run;
  private final Callable<String> call;
  private final Set<String> seen = ConcurrentHashMap.newKeySet();
  private final AtomicInteger responses = new AtomicInteger();
  private final AtomicLong longest = new AtomicLong();
  private final AtomicLong stalled = new AtomicLong();
  private final Map<Map<String, Object>, Failures> failures = new ConcurrentHashMap<>();
  private volatile boolean stopped;

  /** The count and the times of one kind of failure. */
  private static final class Failures {
    private int count;
    private long firstBegan = Long.MAX_VALUE;
    private long lastBegan;
    private long lastEnded;

    synchronized void add(long began, long ended) {
      count++;
      firstBegan = Math.min(firstBegan, began);
      lastBegan = Math.max(lastBegan, began);
      lastEnded = Math.max(lastEnded, ended);
    }

    synchronized void describe(Map<String, Object> what) {
      what.put("count", count);
      what.put("first_began_ms", firstBegan);
      what.put("last_began_ms", lastBegan);
      what.put("last_ended_ms", lastEnded);
    }
  }

  private Load(Run run, Callable<String> call) {
    this.run = run;
    this.call = call;
  }

  /**
   * Runs with the number of threads in the option "threads". A call returns the name of the
   * provider that served it.
   */
  public static void play(Run run, Callable<String> call) throws Exception {
    new Load(run, call).play();
  }

  private void play() throws Exception {
    List<Thread> threads = new ArrayList<>();
    threads.add(started(this::watchClock));
    for (int i = 0; i < run.option("threads", 16); i++) {
      threads.add(started(this::callUntilStopped));
    }
    run.awaitStop();
    stopped = true;
    for (Thread thread : threads) {
      thread.join();
    }
    failures.forEach(
        (failure, times) -> {
          Map<String, Object> what = new LinkedHashMap<>(failure);
          times.describe(what);
          run.report("lost", what);
        });
    run.report("longest in ms", longest.get());
    run.report("stalled in ms", stalled.get());
    run.report("total responses", responses.get());
  }

  private static Thread started(Runnable body) {
    Thread thread = new Thread(body);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** Measures for how long the threads of this process are ready but do not run. */
  private void watchClock() {
    while (!stopped) {
      long began = System.currentTimeMillis();
      sleep(TICK_MS);
      stalled.accumulateAndGet(System.currentTimeMillis() - began - TICK_MS, Math::max);
    }
  }

  private void callUntilStopped() {
    while (!stopped) {
      long began = System.currentTimeMillis();
      try {
        String provider = call.call();
        took(began);
        int count = responses.incrementAndGet();
        if (seen.add(provider)) {
          run.report("first response of", provider);
        }
        if (count % MILESTONE == 0) {
          run.report("responses until now", count);
        }
      } catch (Throwable e) {
        failures
            .computeIfAbsent(Failure.describe(e), key -> new Failures())
            .add(began, took(began));
        sleep(PAUSE_AFTER_FAILURE_MS); // calls that fail immediately must not use all CPUs
      }
    }
  }

  /** Records the duration of a call that ends now. Returns the current time. */
  private long took(long began) {
    long now = System.currentTimeMillis();
    longest.accumulateAndGet(now - began, Math::max);
    return now;
  }

  private static void sleep(long millis) {
    try {
      TimeUnit.MILLISECONDS.sleep(millis);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
