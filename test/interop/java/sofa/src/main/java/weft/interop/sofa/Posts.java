package weft.interop.sofa;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** Stores the texts of one-way calls. */
final class Posts {
  private final Set<String> all = new HashSet<>(); // guarded by this

  synchronized void add(String text) {
    all.add(text);
    notifyAll();
  }

  /** Waits up to the given time for the text, and reports whether it was added. */
  synchronized boolean await(String text, long millis) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    while (!all.contains(text) && System.nanoTime() < end) {
      wait(10);
    }
    return all.contains(text);
  }
}
