package weft.interop.sofa;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** What was sent one-way. */
final class Posts {
  private final Set<String> all = new HashSet<>(); // guarded by this

  synchronized void add(String text) {
    all.add(text);
    notifyAll();
  }

  /** Whether the text was added, or is within the time. */
  synchronized boolean await(String text, long millis) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    while (!all.contains(text) && System.nanoTime() < end) {
      wait(10);
    }
    return all.contains(text);
  }
}
