package weft.interop.dubbo;

/** A service that the provider does not export. {@link Echo} does not have its method either. */
public interface Unknown {
  String unheardOf(String text);
}
