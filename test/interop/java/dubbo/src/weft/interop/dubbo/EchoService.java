package weft.interop.dubbo;

import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.HashSet;
import org.apache.dubbo.rpc.RpcContext;

final class EchoService implements Echo {
  private final String name;
  private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(1);
  private final Set<String> posts = new HashSet<>(); // guarded by its own monitor

  EchoService(String name) {
    this.name = name;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String nameAfter(long millis) {
    return later(name, millis).join();
  }

  @Override
  public String say(String text) {
    return text;
  }

  @Override
  public Person birthday(Person person) {
    person.setAge(person.getAge() + 1);
    return person;
  }

  @Override
  public String nothing(String text) {
    return null;
  }

  @Override
  public String refuse(String why) throws Refused {
    throw new Refused(why, 7);
  }

  @Override
  public String fail(String why) {
    throw new IllegalStateException(why);
  }

  @Override
  @SuppressWarnings("deprecation") // getContext and getServerContext exist in Dubbo 2.7 and 3
  public Map<String, String> attachments() {
    Map<String, String> seen = new TreeMap<>(RpcContext.getContext().getAttachments());
    RpcContext.getServerContext().setAttachment("answered-by", "the provider");
    RpcContext.getServerContext().setAttachment("answer-empty", "");
    return seen;
  }

  @Override
  public void post(String text) {
    synchronized (posts) {
      posts.add(text);
      posts.notifyAll();
    }
  }

  @Override
  public boolean posted(String text, long millis) {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    synchronized (posts) {
      while (!posts.contains(text) && System.nanoTime() < end) {
        try {
          posts.wait(10);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          return false;
        }
      }
      return posts.contains(text);
    }
  }

  @Override
  public CompletableFuture<String> later(String text, long millis) {
    CompletableFuture<String> response = new CompletableFuture<>();
    clock.schedule(() -> response.complete(text), millis, TimeUnit.MILLISECONDS);
    return response;
  }

  @Override
  public CompletableFuture<String> failLater(String why, long millis) {
    CompletableFuture<String> response = new CompletableFuture<>();
    clock.schedule(
        () -> response.completeExceptionally(new IllegalStateException(why)),
        millis,
        TimeUnit.MILLISECONDS);
    return response;
  }

  @Override
  public String sleep(String text, long millis) {
    return later(text, millis).join();
  }

  @Override
  public byte[] reverse(byte[] data) {
    byte[] back = new byte[data.length];
    for (int i = 0; i < data.length; i++) {
      back[data.length - 1 - i] = data[i];
    }
    return back;
  }
}
