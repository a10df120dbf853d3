package weft.interop.sofa;

import com.alipay.sofa.rpc.context.RpcInvokeContext;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

final class DeskService implements Desk {
  private final String name;
  private final Posts posts = new Posts();

  DeskService(String name) {
    this.name = name;
  }

  @Override
  public String name(long millis) {
    try {
      return sleep(name, millis);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return null;
    }
  }

  @Override
  public String say(String text) {
    return text;
  }

  @Override
  public Parcel pack(Parcel parcel) {
    return parcel.twiceAsHeavy();
  }

  @Override
  public String nothing(String text) {
    return null;
  }

  @Override
  public String refuse(String why) throws Refused {
    throw new Refused(why);
  }

  @Override
  public String fail(String why) {
    throw new IllegalStateException(why);
  }

  @Override
  public Map<String, String> baggage() {
    RpcInvokeContext context = RpcInvokeContext.getContext();
    Map<String, String> seen = new TreeMap<>(context.getAllRequestBaggage());
    context.putResponseBaggage("answered-by", "the provider");
    return seen;
  }

  @Override
  public void post(String text) {
    posts.add(text);
  }

  @Override
  public boolean posted(String text, long millis) throws InterruptedException {
    return posts.await(text, millis);
  }

  @Override
  public String sleep(String text, long millis) throws InterruptedException {
    TimeUnit.MILLISECONDS.sleep(millis);
    return text;
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
