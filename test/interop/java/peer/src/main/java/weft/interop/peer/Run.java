package weft.interop.peer;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/**
 * One playing of a scenario: what it was asked for, and where it reports. Safe for concurrent use.
 *
 * <p>A report is a line of JSON. Whatever differs from one playing to the next although nothing is
 * wrong (addresses, times, ids) is left out or masked, so that the reports of two routes can be
 * compared as texts; "elapsed_ms" alone is for the reader to bound.
 */
public final class Run {
  private final int port;
  private final Map<String, String> options;
  private final Control control;

  Run(int port, Map<String, String> options, Control control) {
    this.port = port;
    this.options = options;
    this.control = control;
  }

  /** The port of the provider, or of what stands before it. */
  public int port() {
    return port;
  }

  /** An option of the command, or otherwise the other value. */
  public String option(String name, String otherwise) {
    return options.getOrDefault(name, otherwise);
  }

  /** An option of the command that is a number, or otherwise the other value. */
  public int option(String name, int otherwise) {
    return Integer.parseInt(option(name, Integer.toString(otherwise)));
  }

  /** Makes a call and reports what it returned or threw. */
  public void call(String name, Callable<?> call) {
    Map<String, Object> report = new LinkedHashMap<>();
    report.put("call", name);
    long began = System.nanoTime();
    try {
      report.put("value", call.call());
    } catch (Throwable e) { // an Error that a peer throws is an answer too
      report.putAll(Failure.describe(e));
    }
    report.put("elapsed_ms", (System.nanoTime() - began) / 1_000_000);
    control.report(report);
  }

  /** Reports a fact. */
  public void report(String name, Object value) {
    Map<String, Object> report = new LinkedHashMap<>();
    report.put("call", name);
    report.put("value", value);
    control.report(report);
  }

  /**
   * Waits until the one who started the scenario says "stop", which must happen: its end of the
   * pipe closing counts.
   */
  public void awaitStop() throws Exception {
    control.awaitStop();
  }

  /** The exception that a future, or another wrapper, was completed with. */
  public static Throwable cause(Throwable e) {
    while ((e instanceof ExecutionException || e instanceof CompletionException)
        && e.getCause() != null) {
      e = e.getCause();
    }
    return e;
  }
}
