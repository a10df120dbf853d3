package weft.interop.peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The pipe to the one who started this process: its commands on standard input, reports on
 * standard output. Whatever else would print there goes to standard error.
 */
final class Control {
  private final BufferedReader commands =
      new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
  private final PrintStream reports = System.out;

  Control() {
    System.setOut(System.err);
  }

  /** The next command, or null when there will be none. */
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
