package weft.interop.dubbo;

/** A service, and a method, of which the provider knows nothing. */
public interface Unknown {
  String unheardOf(String text);
}
