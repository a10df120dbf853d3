package weft.interop.dubbo;

import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** The service that the provider exports, some of it several times over. */
public interface Echo {
  /** The name of the provider's export: tells groups and versions apart. */
  String name();

  /** The name after a while. */
  String nameAfter(long millis);

  String say(String text);

  /** The same person a year older. */
  Person birthday(Person person);

  /** Returns null. */
  String nothing(String text);

  String refuse(String why) throws Refused;

  String fail(String why);

  /** What the caller attached; it answers with attachments of its own. */
  Map<String, String> attachments();

  /** Keeps the text; called one-way. */
  void post(String text);

  /** Whether the text was posted, or is within the time. */
  boolean posted(String text, long millis);

  /** The text after a while, without holding a thread. */
  CompletableFuture<String> later(String text, long millis);

  /** Fails after a while. */
  CompletableFuture<String> failLater(String why, long millis);

  /** The text after a while. */
  String sleep(String text, long millis);

  byte[] reverse(byte[] data);
}
