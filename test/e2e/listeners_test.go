package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const get = "GET / HTTP/1.1\nHost: a\n\n"

func TestListenerAddresses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 on loopback: %v", err)
	}
	_ = probe.Close() // only checks that IPv6 works
	for name, addresses := range map[string]struct{ front, app string }{
		"IPv4":        {freeAddress(), "127.0.0.1:0"},
		"IPv6":        {freeAddressOn("::1"), "[::1]:0"},
		"unix socket": {filepath.Join(dir, "front.sock"), filepath.Join(dir, "app.sock")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := startUpstreamAt(t, addresses.app, describeRequest)
			w := startWeft(t, setup{
				listeners: list{httpListenerWith("front", addresses.front, object{"x_forwarded": "set"}, object{"access_logs": list{object{
					"log_format": "log %downstream_local_address% %upstream_host% %response_code%"}}})},
				tables:   list{routeTable("front", routeTo("/", "app"))},
				clusters: list{cluster("app", nil, app.address)},
			}.config())
			client := dialRaw(t, addresses.front)
			for range 3 {
				response, body := client.send(get).readResponse("GET")
				if response.StatusCode != 200 || !strings.HasPrefix(body, "GET / a\n") {
					t.Errorf("%d %q, want 200 and the request", response.StatusCode, body)
				}
			}
			if want := fmt.Sprintf("log %s %s 200", addresses.front, app.address); w.stdout.await(t, 0, "log ") != want {
				t.Errorf("the access log has %q, want %q", w.stdout.await(t, 0, "log "), want)
			}
			w.signal(sigterm)
			if status := w.awaitExit(waitTimeout); status != 0 {
				t.Errorf("exit status %d, want 0", status)
			}
			if strings.HasPrefix(addresses.front, "/") && exists(addresses.front) {
				t.Error("the socket file remains, want it removed")
			}
		})
	}
}

// TestStaleUnixSocketIsReplaced verifies that Weft replaces the socket of a dead process, but not
// the socket of a live process.
func TestStaleUnixSocketIsReplaced(t *testing.T) {
	t.Parallel()
	front := filepath.Join(t.TempDir(), "front.sock")
	config := func() object {
		return setup{
			listeners: list{httpListener("front", front)},
			tables:    list{routeTable("front", directRoute("/", 200, "ok"))},
		}.config()
	}
	first := startWeft(t, config())
	second := launchWeft(t, launchOptions{config: config()})
	if status := second.awaitExit(waitTimeout); status != 1 {
		t.Errorf("a second process on the same socket: exit status %d, want 1", status)
	}
	if _, body := dialRaw(t, front).send(get).readResponse("GET"); body != "ok" {
		t.Errorf("afterwards the first process responds %q, want \"ok\"", body)
	}
	_ = first.cmd.Process.Kill() // leaves its socket file
	<-first.exited
	if !exists(front) {
		t.Fatal("the killed process left no socket file")
	}
	startWeft(t, config())
	if _, body := dialRaw(t, front).send(get).readResponse("GET"); body != "ok" {
		t.Errorf("the next process responds %q, want \"ok\"", body)
	}
}

// TestDescriptorExhaustion verifies that Weft keeps running while clients use up its file
// descriptors, and accepts connections again when the clients have closed theirs.
func TestDescriptorExhaustion(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("hello"))
	s, front := simpleProxy(app.address)
	w := launchWeft(t, launchOptions{config: s.config(), shell: `ulimit -n 48; exec "$@"`})
	w.awaitReady()
	served := dialRaw(t, front).send(get)
	served.readResponse("GET")
	var conns []net.Conn
	for range 80 {
		c, err := net.DialTimeout("tcp", front, waitTimeout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
	}
	w.stderr.await(t, 0, "accept failed, trying again")
	// An open connection is still served, over the pooled upstream connection.
	if response, _ := served.send(get).readResponse("GET"); response.StatusCode != 200 {
		t.Errorf("without free descriptors, an open connection got %d, want 200", response.StatusCode)
	}
	for _, c := range conns {
		_ = c.Close() // frees descriptors
	}
	start := time.Now()
	if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.status != 200 {
		t.Errorf("after the clients have closed: %d, want 200", got.status)
	}
	if elapsed := time.Since(start); elapsed > 5*time.Second {
		t.Errorf("after the clients have closed, the first response took %v; want at most 5s", elapsed)
	}
	if n := w.metric("weft_listener_accept_errors_total"); n < 1 {
		t.Errorf("weft_listener_accept_errors_total = %v, want at least 1", n)
	}
}

func TestListenerMaxConnections(t *testing.T) {
	t.Parallel()
	s, front := simpleProxy("127.0.0.1:1")
	s.tables = list{routeTable("front", directRoute("/", 200, "ok"))}
	s.listeners = list{httpListener("front", front, object{"max_connections": 2})}
	w := startWeft(t, s.config())
	first, second := dialRaw(t, front), dialRaw(t, front)
	first.send(get).readResponse("GET")
	second.send(get).readResponse("GET")
	if got := dialRaw(t, front).readToEnd(); got != "" {
		t.Errorf("the third connection got %q, want EOF", got)
	}
	if n := w.metric("weft_listener_connections_refused_total"); n != 1 {
		t.Errorf("weft_listener_connections_refused_total = %v, want 1", n)
	}
	_ = first.Close() // frees a slot
	eventually(t, "a connection is accepted again", func() bool { return w.metric("weft_listener_connections_active") == 1 })
	if response, _ := dialRaw(t, front).send(get).readResponse("GET"); response.StatusCode != 200 {
		t.Errorf("after a disconnect: %d, want 200", response.StatusCode)
	}
	if response, _ := second.send(get).readResponse("GET"); response.StatusCode != 200 {
		t.Errorf("the second connection: %d, want 200", response.StatusCode)
	}
}

func TestListenerTimeoutsAndLimits(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, describeRequest)
	front := freeAddress()
	startWeft(t, setup{
		listeners: list{httpListenerWith("front", front, object{
			"head_timeout": "700ms", "body_timeout": "700ms", "max_requests_per_connection": 2,
			"max_request_line_size": 300, "max_header_size": 1000, "max_header_count": 5, "max_request_body_size": 100,
			"server_name": "weft-test",
		}, object{"connection_idle_timeout": "700ms"})},
		tables:   list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", nil, app.address)},
	}.config())
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name, send string
		status     int
	}{
		{"slow headers", "GET / HTTP/1.1\nHost:", 408},
		{"slow body", "POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nab", 408},
		{"slow chunks", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n2\nab\n", 408},
		{"long request line", "GET /" + x(300) + " HTTP/1.1\nHost: a\n\n", 414},
		{"large headers", "GET / HTTP/1.1\nHost: a\nX: " + x(1000) + "\n\n", 431},
		{"many headers", "GET / HTTP/1.1\nHost: a\n" + strings.Repeat("X: y\n", 6) + "\n", 431},
		{"large body", "POST / HTTP/1.1\nHost: a\nContent-Length: 101\n\n" + x(101), 413},
		{"large body in chunks", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n65\n" + x(101) + "\n0\n\n", 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client := dialRaw(t, front).send(c.send)
			response, _ := client.readResponse("POST")
			if response.StatusCode != c.status || !response.Close || response.Header.Get("Server") != "weft-test" {
				t.Errorf("%d, Connection: close %v, Server: %s; want %d and Connection: close", response.StatusCode, response.Close, response.Header.Get("Server"), c.status)
			}
			if rest := client.readToEnd(); rest != "" {
				t.Errorf("after the response: read %q, want none", rest)
			}
		})
	}
	t.Run("unused connection times out", func(t *testing.T) {
		t.Parallel()
		start := time.Now()
		if got := dialRaw(t, front).readToEnd(); got != "" || time.Since(start) < 650*time.Millisecond || time.Since(start) > rpcDeadline {
			t.Errorf("read %q, and the connection ended after %v; want none, at least 650ms, at most %v", got, time.Since(start), rpcDeadline)
		}
	})
	t.Run("idle connection times out", func(t *testing.T) {
		t.Parallel()
		start := time.Now()
		client := dialRaw(t, front).send(get)
		client.readResponse("GET")
		if got := client.readToEnd(); got != "" || time.Since(start) < 650*time.Millisecond || time.Since(start) > rpcDeadline {
			t.Errorf("read %q, and the connection ended after %v; want none, at least 650ms, at most %v", got, time.Since(start), rpcDeadline)
		}
	})
	t.Run("last response announces the close", func(t *testing.T) {
		t.Parallel()
		client := dialRaw(t, front)
		if first, _ := client.send(get).readResponse("GET"); first.Close {
			t.Error("the first response has Connection: close, want keepalive")
		}
		if second, _ := client.send(get).readResponse("GET"); !second.Close {
			t.Error("the second response lacks Connection: close")
		}
		if got := client.readToEnd(); got != "" {
			t.Errorf("after the response: read %q, want none", got)
		}
	})
}

func TestUnboundListener(t *testing.T) {
	t.Parallel()
	front, other := freeAddress(), freeAddress()
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front), httpListener("other", other, object{"bind_port": false})},
		tables:    list{routeTable("front", directRoute("/", 200, "ok")), routeTable("other", directRoute("/", 200, "other"))},
	}.config())
	if !connectionRefused(other) {
		t.Error("Weft listens although bind_port is false")
	}
	w.signal(sigterm)
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

func TestReusePort(t *testing.T) {
	t.Parallel()
	front := freeAddress()
	config := func(text string) object {
		return setup{
			listeners: list{httpListener("front", front, object{"reuseport": true})},
			tables:    list{routeTable("front", directRoute("/", 200, text))},
		}.config()
	}
	first := startWeft(t, config("first"))
	startWeft(t, config("second"))
	first.signal(sigterm)
	first.awaitExit(waitTimeout)
	if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "second" {
		t.Errorf("after the first process has exited: %q, want \"second\"", got.body)
	}
}
