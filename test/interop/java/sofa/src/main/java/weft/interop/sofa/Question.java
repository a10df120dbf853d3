package weft.interop.sofa;

import java.io.Serializable;
import java.util.Map;

/** The request of the bare Bolt peers: what to do, and with what. */
public class Question implements Serializable {
  private static final long serialVersionUID = 1;

  /** What a provider can be asked for. */
  enum Kind {
    ECHO,
    NULL,
    FAIL,
    /** The name of the provider, after a while. */
    NAME,
    /** The text, after a while. */
    SLEEP,
    /** Keeps the text. */
    POST,
    /** Whether the text was posted, or is within the time. */
    POSTED,
    /** What stood in the request's header. */
    HEADERS
  }

  private final String kind;
  private final Object content;
  private final long millis;
  private transient Map<String, String> headers;
  private transient int deadlineMs;

  Question(Kind kind, Object content, long millis) {
    this.kind = kind.name();
    this.content = content;
    this.millis = millis;
  }

  Kind kind() {
    return Kind.valueOf(kind);
  }

  Object content() {
    return content;
  }

  long millis() {
    return millis;
  }

  /** What goes into the frame's header, or came out of it; null: nothing. */
  Map<String, String> headers() {
    return headers;
  }

  Question withHeaders(Map<String, String> headers) {
    this.headers = headers;
    return this;
  }

  /** The time that the frame says its sender has; 0: as long as the library waits. */
  int deadlineMs() {
    return deadlineMs;
  }

  Question withDeadline(int millis) {
    this.deadlineMs = millis;
    return this;
  }
}
