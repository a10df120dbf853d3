package child

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// JavaHosts returns the flag by which a JVM resolves the name of this machine, and
// localhost, to 127.0.0.1, and asks no name server. Dubbo, ZooKeeper and Nacos look up the
// machine's name, which need not be known anywhere.
func JavaHosts(t testing.TB) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, fmt.Appendf(nil, "127.0.0.1 localhost %s\n", name), 0o600); err != nil {
		t.Fatal(err)
	}
	return "-Djdk.net.hosts.file=" + path
}
