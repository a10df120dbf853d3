package weft.interop.peer;

/** A scenario that a consumer plays on command: it makes calls and reports them. */
@FunctionalInterface
public interface Scenario {
  /**
   * Plays the scenario to its end. It reports the results of the calls, including failures, with
   * {@code run}. It throws an exception only if the scenario itself failed.
   */
  void play(Run run) throws Exception;
}
