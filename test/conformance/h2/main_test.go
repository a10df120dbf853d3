// Package h2 holds Weft's HTTP/2 to what others know of it: h2spec, the clients
// nghttp, h2load and curl, and nginx on either side. Weft runs as a process and is
// looked at from outside, also while it is attacked.
//
//	TestH2Spec…      every frame in every state, by h2spec            h2spec_test.go
//	Test…            what common clients and servers do               clients_test.go, nginx_test.go
//	TestAttack…      floods: bounded cost, others are served          attack_test.go, attacker_test.go
//
// Each judge is first shown to judge: it looks at a server that is not ours. Where
// Weft says by "weft check" that it does not support something yet, the part about
// Weft is a skip that names it; any other complaint fails.
package h2

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/test/subject"
)

// root is the checkout.
const root = "../../.."

// binaries is where this run builds programs.
var binaries string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, "h2:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "weft-h2-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	status := m.Run()
	_ = os.RemoveAll(dir) // what stays is in the temporary directory
	os.Exit(status)
}

// weftBinary is the path of weft as users build it.
var weftBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binaries, "weft")
	return path, subject.Weft(root, path)
})

// unreachable finds the line of a failed build that says that the network gives
// not what it needs; "" if the sources are to blame.
func unreachable(err error) string {
	for line := range strings.Lines(err.Error()) {
		for _, sign := range []string{"dial tcp", "lookup disabled", "i/o timeout", "TLS handshake", "reading https://"} {
			if strings.Contains(line, sign) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// tool returns the path of a program of Debian's, or skips the test and says how
// to get it.
func tool(t *testing.T, name, of string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Skipf("SKIPPED, NOT SHOWN: %s is not installed; apt-get install %s", name, of)
	return ""
}

// keep writes a report into dist/test of the checkout.
func keep(t *testing.T, name string, content []byte) {
	t.Helper()
	dir := filepath.Join(root, "dist", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}
