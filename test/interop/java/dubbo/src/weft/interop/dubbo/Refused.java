package weft.interop.dubbo;

/** A checked exception that {@link Echo} declares. */
public class Refused extends Exception {
  private static final long serialVersionUID = 1;

  private final int code;

  public Refused(String why, int code) {
    super(why);
    this.code = code;
  }

  public int getCode() {
    return code;
  }
}
