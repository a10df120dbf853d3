package weft.interop.sofa;

import java.io.Serializable;

/** A request for which the provider has no processor. */
public class Unanswered implements Serializable {
  private static final long serialVersionUID = 1;
}
