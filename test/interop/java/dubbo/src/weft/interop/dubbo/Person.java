package weft.interop.dubbo;

import java.io.Serializable;
import java.util.Date;
import java.util.List;
import java.util.Map;

/** An object with fields of many types, to test the serializations. */
public class Person implements Serializable {
  private static final long serialVersionUID = 1;

  private String name;
  private int age;
  private long id;
  private double height;
  private boolean active;
  private Date born;
  private List<String> tags;
  private Map<String, Integer> scores;
  private Person friend;

  public String getName() {
    return name;
  }

  public void setName(String name) {
    this.name = name;
  }

  public int getAge() {
    return age;
  }

  public void setAge(int age) {
    this.age = age;
  }

  public long getId() {
    return id;
  }

  public void setId(long id) {
    this.id = id;
  }

  public double getHeight() {
    return height;
  }

  public void setHeight(double height) {
    this.height = height;
  }

  public boolean isActive() {
    return active;
  }

  public void setActive(boolean active) {
    this.active = active;
  }

  public Date getBorn() {
    return born;
  }

  public void setBorn(Date born) {
    this.born = born;
  }

  public List<String> getTags() {
    return tags;
  }

  public void setTags(List<String> tags) {
    this.tags = tags;
  }

  public Map<String, Integer> getScores() {
    return scores;
  }

  public void setScores(Map<String, Integer> scores) {
    this.scores = scores;
  }

  public Person getFriend() {
    return friend;
  }

  public void setFriend(Person friend) {
    this.friend = friend;
  }

  @Override
  public String toString() {
    return String.join(
        " ",
        name,
        Integer.toString(age),
        Long.toString(id),
        Double.toString(height),
        Boolean.toString(active),
        Long.toString(born == null ? -1 : born.getTime()),
        String.valueOf(tags),
        String.valueOf(scores),
        "(" + friend + ")");
  }
}
