package weft.interop.peer;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.zip.CRC32;

/**
 * Writes values as JSON on one line. For byte arrays and long strings it writes only the length and
 * a checksum, which are short and sufficient to compare them.
 */
final class Json {
  private static final int LONGEST = 400;

  private Json() {}

  static String of(Object value) {
    StringBuilder out = new StringBuilder();
    append(out, value);
    return out.toString();
  }

  private static void append(StringBuilder out, Object value) {
    if (value == null || value instanceof Boolean || value instanceof Number) {
      out.append(value);
    } else if (value instanceof Map<?, ?> map) {
      appendMap(out, map);
    } else if (value instanceof Iterable<?> list) {
      appendList(out, list);
    } else if (value instanceof byte[] bytes) {
      append(out, Map.of("bytes", bytes.length + ", crc " + crc(bytes)));
    } else {
      String text = value.toString();
      if (text.length() > LONGEST) {
        String sum = text.length() + ", crc " + crc(text.getBytes(StandardCharsets.UTF_8));
        append(out, Map.of("chars", sum));
      } else {
        appendString(out, text);
      }
    }
  }

  private static String crc(byte[] bytes) {
    CRC32 crc = new CRC32();
    crc.update(bytes);
    return Long.toHexString(crc.getValue());
  }

  private static void appendMap(StringBuilder out, Map<?, ?> map) {
    char before = '{';
    for (Map.Entry<?, ?> e : map.entrySet()) {
      out.append(before);
      before = ',';
      appendString(out, String.valueOf(e.getKey()));
      out.append(':');
      append(out, e.getValue());
    }
    out.append(before == '{' ? "{}" : "}");
  }

  private static void appendList(StringBuilder out, Iterable<?> list) {
    char before = '[';
    for (Object item : list) {
      out.append(before);
      before = ',';
      append(out, item);
    }
    out.append(before == '[' ? "[]" : "]");
  }

  private static void appendString(StringBuilder out, String text) {
    out.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 0x20 || c > 0x7e) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }
}
