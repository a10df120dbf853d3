package weft.interop.peer;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A process that plays scenarios on command until its standard input ends.
 *
 * <p>A command is "SCENARIO PORT [NAME=VALUE]...". The reports of the scenario end with the line
 * {"end": SCENARIO}. This line also has the field "problem" if the scenario itself failed.
 */
public final class Consumer {
  private Consumer() {}

  /** Plays the scenario of each command, then ends the process. */
  public static void main(Map<String, Scenario> scenarios) throws Exception {
    Control control = new Control();
    control.say("ready 0");
    for (String line = control.command(); line != null; line = control.command()) {
      String[] words = line.strip().split(" +");
      Map<String, Object> end = new LinkedHashMap<>();
      end.put("end", words[0]);
      try {
        Scenario scenario = scenarios.get(words[0]);
        if (scenario == null) {
          throw new IllegalArgumentException("no such scenario: " + words[0]);
        }
        scenario.play(new Run(Integer.parseInt(words[1]), options(words), control));
      } catch (Throwable e) {
        e.printStackTrace();
        end.put("problem", e.toString());
      }
      control.report(end);
    }
    Runtime.getRuntime().halt(0); // does not wait for the threads of the libraries
  }

  private static Map<String, String> options(String[] words) {
    Map<String, String> options = new HashMap<>();
    for (int i = 2; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      options.put(pair[0], pair[1]);
    }
    return options;
  }
}
