package h2

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// websocketPeer is a WebSocket server and client for one version of HTTP.
type websocketPeer struct {
	protocol       string // as in Weft's configuration
	server, client string // scripts
	scheme         string // URL scheme before the address
	modules        string // required Python modules
	packages       string // Debian packages that have them
}

func websocketPeers() []websocketPeer {
	const dir = "../testdata/"
	return []websocketPeer{
		{"Http1", dir + "websocket_server.py", dir + "websocket_client.py", "ws://", "websockets", "python3-websockets"},
		{"Http2", dir + "websocket_h2_server.py", dir + "websocket_h2_client.py", "", "h2, wsproto", "python3-h2 python3-wsproto"},
	}
}

// expectedOutput is the output of a client if all of its checks pass.
const expectedOutput = "handshake\ntext\nbinary\nfragments\nping\nlarge\nmany\nclose\nclosed by the server\nfifty at once\n"

// TestWebSocketBetweenVersions verifies WebSocket through Weft for each pair of HTTP versions
// (RFC 6455, RFC 8441). Peers of the same version first connect directly.
func TestWebSocketBetweenVersions(t *testing.T) {
	t.Parallel()
	for _, up := range websocketPeers() {
		for _, down := range websocketPeers() {
			t.Run(down.protocol+" to "+up.protocol, func(t *testing.T) {
				t.Parallel()
				python := requirePython(t, up)
				_ = requirePython(t, down)
				echo := "127.0.0.1:" + startScript(t, python, up.server)
				if up.protocol == down.protocol {
					down.runClient(t, python, echo)
				}
				w := startWeft(t, listener{
					downstream: down.protocol, upstream: up.protocol, hosts: []string{echo},
					route: object{"timeout": "2s"}, // the timeout does not apply to a tunnel
				})
				down.runClient(t, python, w.addresses[0])
			})
		}
	}
}

// runClient runs the client against an address and verifies its output.
func (p *websocketPeer) runClient(t *testing.T, python, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, p.client, p.scheme+address, "1048576")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	got, err := cmd.Output()
	if err != nil || string(got) != expectedOutput {
		t.Errorf("the client printed %q, %v; want %q\n%s", got, err, expectedOutput, stderr.String())
	}
}

// requirePython returns the path of a Python that has the modules of a peer, or skips the test with
// the names of the Debian packages. The first python3 in PATH may not be Debian's.
func requirePython(t *testing.T, p websocketPeer) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import "+p.modules).Run() == nil {
			return name
		}
	}
	t.Skipf("SKIPPED: no Python has the modules %s; apt-get install %s", p.modules, p.packages)
	return ""
}

// startScript runs a server until the end of the test, which closes its stdin. It returns the first
// line of the server's output.
func startScript(t *testing.T, python, script string) string {
	t.Helper()
	cmd := exec.Command(python, script)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
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
		_ = in.Close() // the server may have exited
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s wrote %q, then %v", script, line, err)
	}
	return strings.TrimSpace(line)
}
