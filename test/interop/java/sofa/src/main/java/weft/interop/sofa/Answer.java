package weft.interop.sofa;

import java.io.Serializable;
import java.util.Map;

/** The answer of the bare Bolt peers. */
public class Answer implements Serializable {
  private static final long serialVersionUID = 1;

  private final Object value;
  private transient Map<String, String> headers;

  Answer(Object value) {
    this.value = value;
  }

  Object value() {
    return value;
  }

  /** What goes into the frame's header, or came out of it; null: nothing. */
  Map<String, String> headers() {
    return headers;
  }

  Answer withHeaders(Map<String, String> headers) {
    this.headers = headers;
    return this;
  }
}
