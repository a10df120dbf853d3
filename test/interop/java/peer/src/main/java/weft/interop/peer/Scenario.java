package weft.interop.peer;

/** What a consumer does when it is asked to: calls, each of which it reports. */
@FunctionalInterface
public interface Scenario {
  /**
   * Runs to its end. What the calls come to, failures too, is reported with {@code run}; an
   * exception means that the scenario itself could not be played.
   */
  void play(Run run) throws Exception;
}
