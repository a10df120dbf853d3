package weft.interop.sofa;

import java.io.Serializable;
import java.util.Map;

/** The response of a provider that uses the Bolt library without SOFARPC. */
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

  /** Returns the headers in the frame. Null means that the sender sets none. */
  Map<String, String> headers() {
    return headers;
  }

  Answer withHeaders(Map<String, String> headers) {
    this.headers = headers;
    return this;
  }
}
