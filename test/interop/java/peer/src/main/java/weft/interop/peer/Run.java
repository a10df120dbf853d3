package weft.interop.peer;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/**
 * One run of a scenario: the options of its command, and its reports. Safe for concurrent use.
 *
 * <p>A report is a line of JSON. The report of a call omits or masks details that differ between
 * correct runs, such as addresses, times and ids. Only "elapsed_ms" remains. So the Go tests can
 * compare the reports of two routes as text without this field.
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

  /** Returns the port of the provider, or of the proxy in front of it. */
  public int port() {
    return port;
  }

  /** Returns an option of the command, or the default value. */
  public String option(String name, String otherwise) {
    return options.getOrDefault(name, otherwise);
  }

  /** Returns a numeric option of the command, or the default value. */
  public int option(String name, int otherwise) {
    return Integer.parseInt(option(name, Integer.toString(otherwise)));
  }

  /** Makes a call and reports the returned value or the exception. */
  public void call(String name, Callable<?> call) {
    Map<String, Object> report = new LinkedHashMap<>();
    report.put("call", name);
    long began = System.nanoTime();
    try {
      report.put("value", call.call());
    } catch (Throwable e) { // also report an Error: it may be the response of the provider
      report.putAll(Failure.describe(e));
    }
    report.put("elapsed_ms", (System.nanoTime() - began) / 1_000_000);
    control.report(report);
  }

  /** Reports a value that is not the result of one call. */
  public void report(String name, Object value) {
    Map<String, Object> report = new LinkedHashMap<>();
    report.put("call", name);
    report.put("value", value);
    control.report(report);
  }

  /** Waits for the command "stop" or the end of standard input. */
  public void awaitStop() throws Exception {
    control.awaitStop();
  }

  /** Returns the exception without the wrappers that futures add. */
  public static Throwable cause(Throwable e) {
    while ((e instanceof ExecutionException || e instanceof CompletionException)
        && e.getCause() != null) {
      e = e.getCause();
    }
    return e;
  }
}
