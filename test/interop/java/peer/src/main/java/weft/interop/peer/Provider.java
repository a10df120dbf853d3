package weft.interop.peer;

/** A process that serves until its standard input ends. */
public final class Provider {
  private Provider() {}

  /** Starts a server on a port. The server accepts connections when {@code listen} returns. */
  @FunctionalInterface
  public interface Start {
    void listen(int port) throws Exception;
  }

  /** Serves on the port in the first argument, and prints "ready PORT" when it listens. */
  public static void main(String[] args, Start start) throws Exception {
    Control control = new Control();
    int port = Integer.parseInt(args[0]);
    start.listen(port);
    control.say("ready " + port);
    while (control.command() != null) {
      continue;
    }
    Runtime.getRuntime().halt(0);
  }
}
