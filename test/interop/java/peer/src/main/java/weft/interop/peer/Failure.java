package weft.interop.peer;

import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/** Describes why a call failed, without the details that differ between runs. */
final class Failure {
  private static final int LONGEST = 240;

  private Failure() {}

  static Map<String, Object> describe(Throwable thrown) {
    Throwable e = Run.cause(thrown);
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("exception", e.getClass().getName());
    Object code = code(e);
    if (code != null) {
      all.put("code", code);
    }
    if (!isTimeout(e, code)) { // a timeout's message depends on the side that reports it
      Throwable root = root(e);
      if (root != e) { // the outer message describes only the library
        all.put("root", root.getClass().getName());
      }
      all.put("message", mask(root.getMessage()));
    }
    return all;
  }

  /** Returns the innermost cause of an exception. */
  private static Throwable root(Throwable e) {
    Throwable root = e;
    while (root.getCause() != null && root.getCause() != root) {
      root = root.getCause();
    }
    return root;
  }

  /** Returns the error code of an RPC exception, or null if it has none. */
  private static Object code(Throwable e) {
    for (String getter : new String[] {"getCode", "getErrorType"}) {
      try {
        Method m = e.getClass().getMethod(getter);
        return m.invoke(e);
      } catch (ReflectiveOperationException none) {
        continue;
      }
    }
    return null;
  }

  private static boolean isTimeout(Throwable e, Object code) {
    final int dubboTimeout = 2;
    return e.getClass().getSimpleName().toLowerCase(Locale.ROOT).contains("timeout")
        || e.getClass().getSimpleName().equals("RpcException")
            && Integer.valueOf(dubboTimeout).equals(code);
  }

  private static String mask(String message) {
    if (message == null) {
      return null;
    }
    String first = message.strip().split("\\R", 2)[0];
    first =
        first
            .replaceAll("/?[\\w.-]*/?127\\.0\\.0\\.1(:\\d+)?", "ADDRESS")
            .replaceAll("\\?[\\w.]+=[^ ,]*", "?QUERY")
            .replaceAll("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d[.:]\\d+", "TIME")
            .replaceAll("(?i)\\b(id|port|elapsed|offset)([=: ]+)\\d+", "$1$2N")
            .replaceAll("@[0-9a-f]{5,8}\\b", "@HASH")
            .replaceAll(":\\d{4,5}\\b", ":PORT")
            .replaceAll(" in \\[.*", " in LIST"); // the order of the list varies
    return first.length() > LONGEST ? first.substring(0, LONGEST) + "..." : first;
  }
}
