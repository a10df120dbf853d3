package conformance

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// toolTimeout is the timeout of one run of another program.
const toolTimeout = 30 * time.Second

// TestVarnishtest runs the scripts in vtc with varnishtest, which has an independent HTTP client
// and server.
func TestVarnishtest(t *testing.T) {
	program := requireTool(t, "varnishtest", "varnish")
	scripts, err := filepath.Glob("vtc/*.vtc")
	if err != nil || len(scripts) < 10 {
		t.Fatalf("%d scripts, %v; want at least 10, nil", len(scripts), err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".vtc"), func(t *testing.T) {
			t.Parallel()
			origin := freeAddress(t)
			front := serve(t, plain().snapshot("127.0.0.1:0", origin))
			run(t, program, "-t", "20", "-Dproxy="+front, "-Dorigin="+origin, script)
		})
	}
}

// requireTool returns the path of a program, or skips the test with the name of the Debian package
// that has it.
func requireTool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %s is not installed; apt-get install %s", name, pkg)
	}
	return path
}

// run runs a program and returns its output; it fails the test if the program fails.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := output(t.Context(), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// output runs a program for at most toolTimeout and returns its output.
func output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// freeAddress returns a loopback address without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
