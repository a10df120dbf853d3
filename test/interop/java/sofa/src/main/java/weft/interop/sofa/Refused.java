package weft.interop.sofa;

/** A checked exception that {@link Desk} declares. */
public class Refused extends Exception {
  private static final long serialVersionUID = 1;

  public Refused(String why) {
    super(why);
  }
}
