package weft.interop.dubbo;

import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** The service that the provider exports, in several groups and versions. */
public interface Echo {
  /** Returns the provider's name with the group and the version of the export. */
  String name();

  /** Returns the name after a delay. */
  String nameAfter(long millis);

  String say(String text);

  /** Returns the same person, one year older. */
  Person birthday(Person person);

  /** Returns null. */
  String nothing(String text);

  String refuse(String why) throws Refused;

  String fail(String why);

  /** Returns the attachments of the request, and adds other attachments to the response. */
  Map<String, String> attachments();

  /** Stores the text. The consumer calls it one-way. */
  void post(String text);

  /** Waits up to the given time for the text, and reports whether it was posted. */
  boolean posted(String text, long millis);

  /** Returns the text after a delay. No thread waits meanwhile. */
  CompletableFuture<String> later(String text, long millis);

  /** Fails after a delay. */
  CompletableFuture<String> failLater(String why, long millis);

  /** Returns the text after a delay. A thread waits meanwhile. */
  String sleep(String text, long millis);

  byte[] reverse(byte[] data);
}
