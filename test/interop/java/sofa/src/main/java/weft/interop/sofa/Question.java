package weft.interop.sofa;

import java.io.Serializable;
import java.util.Map;

/** A request of a consumer that uses the Bolt library without SOFARPC. */
public class Question implements Serializable {
  private static final long serialVersionUID = 1;

  /** The operations of the provider. */
  enum Kind {
    ECHO,
    NULL,
    FAIL,
    /** Returns the name of the provider after a delay. */
    NAME,
    /** Returns the content after a delay. */
    SLEEP,
    /** Stores the text. */
    POST,
    /** Waits for the text, and reports whether it was posted. */
    POSTED,
    /** Returns the headers of the request. */
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

  /** Returns the headers in the frame. Null means that the sender sets none. */
  Map<String, String> headers() {
    return headers;
  }

  Question withHeaders(Map<String, String> headers) {
    this.headers = headers;
    return this;
  }

  /** Returns the timeout that the frame contains; 0 for the time that the library waits. */
  int deadlineMs() {
    return deadlineMs;
  }

  Question withDeadline(int millis) {
    this.deadlineMs = millis;
    return this;
  }
}
