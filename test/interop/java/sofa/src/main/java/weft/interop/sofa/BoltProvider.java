package weft.interop.sofa;

import com.alipay.remoting.AsyncContext;
import com.alipay.remoting.BizContext;
import com.alipay.remoting.rpc.RpcServer;
import com.alipay.remoting.rpc.protocol.AsyncUserProcessor;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import weft.interop.peer.Provider;

/** Serves the requests of {@link BoltConsumer}. Usage: BoltProvider PORT NAME */
public final class BoltProvider {
  private BoltProvider() {}

  public static void main(String[] args) throws Exception {
    Provider.main(
        args,
        port -> {
          Headers.register();
          RpcServer server = new RpcServer("127.0.0.1", port);
          server.registerUserProcessor(new Processor(args[1]));
          server.startup();
        });
  }

  private static final class Processor extends AsyncUserProcessor<Question> {
    private final String name;
    private final Posts posts = new Posts();
    private final Executor workers = Executors.newCachedThreadPool();
    private final ScheduledExecutorService clock = Executors.newScheduledThreadPool(1);

    Processor(String name) {
      this.name = name;
    }

    @Override
    public String interest() {
      return Question.class.getName();
    }

    @Override
    public Executor getExecutor() {
      return workers;
    }

    /** Returns false to send late responses too: the consumers must drop them. */
    @Override
    public boolean timeoutDiscard() {
      return false;
    }

    @Override
    public void handleRequest(BizContext context, AsyncContext reply, Question question) {
      switch (question.kind()) {
        case ECHO -> reply.sendResponse(new Answer(question.content()));
        case NULL -> reply.sendResponse(null);
        case FAIL -> throw new IllegalStateException((String) question.content());
        case NAME -> later(question, () -> reply.sendResponse(new Answer(name)));
        case SLEEP -> later(question, () -> reply.sendResponse(new Answer(question.content())));
        case POST -> posts.add((String) question.content());
        case POSTED -> reply.sendResponse(new Answer(posted(question)));
        case HEADERS ->
            reply.sendResponse(
                new Answer(question.headers())
                    .withHeaders(Map.of("answered-by", "the provider", "answer-empty", "")));
        default -> throw new IllegalArgumentException(question.kind().name());
      }
    }

    private void later(Question question, Runnable send) {
      clock.schedule(send, question.millis(), TimeUnit.MILLISECONDS);
    }

    private boolean posted(Question question) {
      try {
        return posts.await((String) question.content(), question.millis());
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return false;
      }
    }
  }
}
