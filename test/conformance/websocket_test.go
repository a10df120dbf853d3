package conformance

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestWebSocket verifies WebSocket (RFC 6455) through Weft with the Python library websockets on
// both sides.
func TestWebSocket(t *testing.T) {
	python := requirePython(t, "websockets", "python3-websockets")
	echoPort := startProgram(t, python, "testdata/websocket_server.py")
	front := serve(t, plain().snapshot("127.0.0.1:0", "127.0.0.1:"+echoPort))
	got := run(t, python, "testdata/websocket_client.py", "ws://"+front, "8388608")
	want := "handshake\ntext\nbinary\nfragments\nping\nlarge\nmany\nclose\nclosed by the server\nfifty at once\n"
	if got != want {
		t.Errorf("the client printed %q, want %q", got, want)
	}
}

// requirePython returns the path of a Python that has a module, or skips the test with the name of
// the Debian package. The first python3 in PATH may not be Debian's.
func requirePython(t *testing.T, module, pkg string) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import "+module).Run() == nil {
			return name
		}
	}
	t.Skipf("SKIPPED: no Python has the module %s; apt-get install %s", module, pkg)
	return ""
}

// startProgram runs a program until the end of the test, which closes its stdin. It returns the
// first line of the program's output.
func startProgram(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", strings.Join(args, " "), err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s wrote %q, then %v", strings.Join(args, " "), line, err)
	}
	return strings.TrimSpace(line)
}
