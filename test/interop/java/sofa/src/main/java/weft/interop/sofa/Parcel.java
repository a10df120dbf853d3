package weft.interop.sofa;

import java.io.Serializable;
import java.util.List;
import java.util.Map;

/** An object with fields of several types, to test the serialization. */
public class Parcel implements Serializable {
  private static final long serialVersionUID = 1;

  private final String from;
  private final double weight;
  private final long number;
  private final List<String> stamps;
  private final Map<String, Integer> content;
  private final Parcel within;

  public Parcel(
      String from,
      double weight,
      long number,
      List<String> stamps,
      Map<String, Integer> content,
      Parcel within) {
    this.from = from;
    this.weight = weight;
    this.number = number;
    this.stamps = stamps;
    this.content = content;
    this.within = within;
  }

  Parcel twiceAsHeavy() {
    return new Parcel(from, 2 * weight, number, stamps, content, within);
  }

  @Override
  public String toString() {
    return String.join(
        " ",
        from,
        Double.toString(weight),
        Long.toString(number),
        String.valueOf(stamps),
        String.valueOf(content),
        "(" + within + ")");
  }
}
