package child

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// JavaHosts returns the flag that makes a JVM resolve localhost and the name of this machine to
// 127.0.0.1 without a DNS server. Dubbo, ZooKeeper and Nacos look up the name of the machine, which
// need not be resolvable.
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
