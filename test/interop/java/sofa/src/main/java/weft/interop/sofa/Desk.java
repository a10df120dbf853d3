package weft.interop.sofa;

import java.util.Map;

/** The service that the SOFARPC providers export. */
public interface Desk {
  /** Returns the provider's name after a delay. */
  String name(long millis);

  String say(String text);

  /** Returns the same parcel with twice the weight. */
  Parcel pack(Parcel parcel);

  /** Returns null. */
  String nothing(String text);

  String refuse(String why) throws Refused;

  String fail(String why);

  /** Returns the baggage of the request, and adds other baggage to the response. */
  Map<String, String> baggage();

  /** Stores the text. The consumer calls it one-way. */
  void post(String text);

  /** Waits up to the given time for the text, and reports whether it was posted. */
  boolean posted(String text, long millis) throws InterruptedException;

  /** Returns the text after a delay. */
  String sleep(String text, long millis) throws InterruptedException;

  byte[] reverse(byte[] data);
}
