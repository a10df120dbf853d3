package weft.interop.sofa;

import com.alipay.remoting.CustomSerializerManager;
import com.alipay.remoting.DefaultCustomSerializer;
import com.alipay.remoting.InvokeContext;
import com.alipay.remoting.exception.CodecException;
import com.alipay.remoting.exception.DeserializationException;
import com.alipay.remoting.rpc.RequestCommand;
import com.alipay.remoting.rpc.ResponseCommand;
import com.alipay.remoting.rpc.RpcCommand;
import com.alipay.remoting.rpc.protocol.RpcRequestCommand;
import com.alipay.remoting.rpc.protocol.RpcResponseCommand;
import com.alipay.remoting.serialization.SerializerManager;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

/**
 * Writes the headers of requests and responses to the header of the frame, and reads them from it.
 * The format is that of SOFARPC: key length, key, value length and value for each header.
 */
final class Headers extends DefaultCustomSerializer {
  private Headers() {}

  static void register() {
    Headers headers = new Headers();
    CustomSerializerManager.registerCustomSerializer(Question.class.getName(), headers);
    CustomSerializerManager.registerCustomSerializer(Answer.class.getName(), headers);
  }

  @Override
  public <T extends RequestCommand> boolean serializeHeader(T request, InvokeContext context) {
    Question question = (Question) ((RpcRequestCommand) request).getRequestObject();
    if (question.deadlineMs() > 0) {
      request.setTimeout(question.deadlineMs());
    }
    return setHeader(request, question.headers());
  }

  @Override
  public <T extends ResponseCommand> boolean serializeHeader(T response) {
    Object answer = ((RpcResponseCommand) response).getResponseObject();
    return answer instanceof Answer && setHeader(response, ((Answer) answer).headers());
  }

  @Override
  public <T extends RequestCommand> boolean deserializeContent(T request)
      throws DeserializationException {
    Question question = content(request, Question.class);
    question.withHeaders(parse(request.getHeader()));
    ((RpcRequestCommand) request).setRequestObject(question);
    return true;
  }

  @Override
  public <T extends ResponseCommand> boolean deserializeContent(T response, InvokeContext context)
      throws DeserializationException {
    Answer answer = content(response, Answer.class);
    answer.withHeaders(parse(response.getHeader()));
    ((RpcResponseCommand) response).setResponseObject(answer);
    return true;
  }

  private static <T> T content(RpcCommand command, Class<T> type) throws DeserializationException {
    try {
      return SerializerManager.getSerializer(command.getSerializer())
          .deserialize(command.getContent(), type.getName());
    } catch (CodecException e) {
      throw new DeserializationException(e.getMessage(), e);
    }
  }

  private static boolean setHeader(RpcCommand command, Map<String, String> headers) {
    if (headers == null) {
      return false;
    }
    final int lengths = 8;
    int size = 0;
    for (Map.Entry<String, String> e : headers.entrySet()) {
      size += lengths + bytes(e.getKey()).length + bytes(e.getValue()).length;
    }
    ByteBuffer out = ByteBuffer.allocate(size);
    headers.forEach(
        (key, value) -> {
          out.putInt(bytes(key).length).put(bytes(key));
          out.putInt(bytes(value).length).put(bytes(value));
        });
    command.setHeader(out.array());
    return true;
  }

  private static Map<String, String> parse(byte[] header) {
    Map<String, String> headers = new TreeMap<>();
    ByteBuffer in = ByteBuffer.wrap(header == null ? new byte[0] : header);
    while (in.hasRemaining()) {
      headers.put(next(in), next(in));
    }
    return headers;
  }

  private static String next(ByteBuffer in) {
    byte[] text = new byte[in.getInt()];
    in.get(text);
    return new String(text, StandardCharsets.UTF_8);
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
