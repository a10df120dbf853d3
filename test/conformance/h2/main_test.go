// Package h2 tests Weft's HTTP/2 with third-party programs: h2spec, the clients nghttp, h2load and
// curl, and nginx on either side. Weft runs as a process and is observed from outside, also under
// attack.
//
//	TestH2Spec…      frames and stream states, by h2spec         h2spec_test.go
//	Test…            what common clients and servers do          clients_test.go, nginx_test.go
//	TestWebSocket…   WebSocket over HTTP/2                       websocket_test.go
//	TestAttacks…     floods: bounded cost, other clients served  attack_test.go, attacker_test.go
//
// h2spec, the clients and the attacks also test net/http's server, without Weft. This shows that
// the tests can pass and that h2spec detects violations. If "weft check" reports that a feature is
// not supported yet, the tests of Weft are skipped with that message; any other problem fails them.
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

// root is the root directory of the checkout.
const root = "../../.."

// binariesDir is the directory of the programs that this run builds.
var binariesDir string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := runRole(role); err != nil {
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
	binariesDir = dir
	status := m.Run()
	_ = os.RemoveAll(dir) // the system cleans up what remains
	os.Exit(status)
}

// weftBinary builds weft as users do and returns its path.
var weftBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binariesDir, "weft")
	return path, subject.Weft(root, path)
})

// networkErrorLine returns the line of a build error that reports a network problem, or "" if there
// is none.
func networkErrorLine(err error) string {
	for line := range strings.Lines(err.Error()) {
		for _, pattern := range []string{"dial tcp", "lookup disabled", "i/o timeout", "TLS handshake", "reading https://"} {
			if strings.Contains(line, pattern) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// requireTool returns the path of a program, or skips the test with the name of the Debian package
// that has it.
func requireTool(t *testing.T, name, pkg string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Skipf("SKIPPED: %s is not installed; apt-get install %s", name, pkg)
	return ""
}

// writeReport writes a report into dist/test of the checkout.
func writeReport(t *testing.T, name string, body []byte) {
	t.Helper()
	dir := filepath.Join(root, "dist", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
		t.Fatal(err)
	}
}
