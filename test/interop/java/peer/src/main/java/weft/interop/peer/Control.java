package weft.interop.peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Connects this process to its parent process. Commands arrive on standard input, and reports go to
 * standard output. All other output to System.out goes to standard error.
 */
final class Control {
  private final BufferedReader commands =
      new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
  private final PrintStream reports = System.out;

  Control() {
    System.setOut(System.err);
  }

  /** Returns the next command, or null at the end of the input. */
  String command() throws IOException {
    return commands.readLine();
  }

  void awaitStop() throws IOException {
    String line = commands.readLine();
    while (line != null && !line.equals("stop")) {
      line = commands.readLine();
    }
  }

  void report(Map<String, Object> report) {
    say(Json.of(report));
  }

  synchronized void say(String line) {
    reports.println(line);
    reports.flush();
  }
}
