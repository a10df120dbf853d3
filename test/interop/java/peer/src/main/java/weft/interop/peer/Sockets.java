package weft.interop.peer;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** Reads the connections of this process from /proc. */
public final class Sockets {
  private static final String ESTABLISHED = "01";

  private Sockets() {}

  /** Returns the local ports of the established IPv4 connections to a port. */
  public static Set<Integer> connectedTo(int port) throws IOException {
    Set<String> own = inodes();
    Set<Integer> ports = new TreeSet<>();
    List<String> table = Files.readAllLines(Path.of("/proc/self/net/tcp"));
    for (String line : table.subList(1, table.size())) { // the first line is the table header
      String[] fields = line.strip().split("\\s+");
      String local = fields[1];
      String remote = fields[2];
      String state = fields[3];
      String inode = fields[9];
      if (state.equals(ESTABLISHED) && portOf(remote) == port && own.contains(inode)) {
        ports.add(portOf(local));
      }
    }
    return ports;
  }

  private static int portOf(String address) {
    return Integer.parseInt(address.split(":")[1], 16);
  }

  private static Set<String> inodes() {
    Set<String> all = new HashSet<>();
    for (File descriptor : new File("/proc/self/fd").listFiles()) {
      try {
        String target = Files.readSymbolicLink(descriptor.toPath()).toString();
        if (target.startsWith("socket:[")) {
          all.add(target.substring("socket:[".length(), target.length() - 1));
        }
      } catch (IOException e) {
        continue; // the descriptor was closed meanwhile
      }
    }
    return all;
  }
}
