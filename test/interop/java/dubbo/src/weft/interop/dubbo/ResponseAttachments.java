package weft.interop.dubbo;

import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.dubbo.common.extension.Activate;
import org.apache.dubbo.rpc.Filter;
import org.apache.dubbo.rpc.Invocation;
import org.apache.dubbo.rpc.Invoker;
import org.apache.dubbo.rpc.Result;

/**
 * Stores the attachments of the last response that the consumer received. The RpcContext of the
 * calling thread also has them, but not in every version of Dubbo.
 */
@Activate(group = "consumer")
public final class ResponseAttachments implements Filter {
  private static final AtomicReference<Map<String, String>> LAST = new AtomicReference<>();

  @Override
  public Result invoke(Invoker<?> invoker, Invocation invocation) {
    Result result = invoker.invoke(invocation);
    return result.whenCompleteWithContext(
        (response, failure) -> LAST.set(response == null ? null : response.getAttachments()));
  }

  /** Returns the attachments of the last response, or null after a failure. */
  static Map<String, String> last() {
    return LAST.get();
  }
}
