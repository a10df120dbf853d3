package weft.interop.sofa;

import java.util.Map;

/** The service of the SOFARPC peers. */
public interface Desk {
  /** The provider's name, after a while. */
  String name(long millis);

  String say(String text);

  /** The same parcel, weighing twice as much. */
  Parcel pack(Parcel parcel);

  /** Returns null. */
  String nothing(String text);

  String refuse(String why) throws Refused;

  String fail(String why);

  /** The caller's baggage; the answer has baggage of its own. */
  Map<String, String> baggage();

  /** Keeps the text; called one-way. */
  void post(String text);

  /** Whether the text was posted, or is within the time. */
  boolean posted(String text, long millis) throws InterruptedException;

  /** The text after a while. */
  String sleep(String text, long millis) throws InterruptedException;

  byte[] reverse(byte[] data);
}
