package e2e

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestClusterSourceAddress verifies the source address of requests, byte streams and health
// checks.
func TestClusterSourceAddress(t *testing.T) {
	t.Parallel()
	checks := make(chan string, 100)
	hostOf := func(address string) string { host, _, _ := net.SplitHostPort(address); return host }
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			select {
			case checks <- hostOf(r.RemoteAddr):
			default:
			}
		}
		_, _ = io.WriteString(w, hostOf(r.RemoteAddr))
	})
	tcpApp := startTCPServer(t, func(c net.Conn) { _, _ = io.WriteString(c, hostOf(c.RemoteAddr().String())) })
	front, tcpFront := freeAddress(), freeAddress()
	source := object{"upstream_bind_config": object{"source_address": list{"127.0.0.9", "::1"}}, "connect_timeout": "2s"}
	startWeft(t, setup{
		listeners: list{httpListener("front", front), tcpListener("bytes", tcpFront, object{"cluster": "raw"})},
		tables:    list{routeTable("front", routeTo("/", "app"))},
		clusters: list{
			cluster("app", source.with(object{"health_check": object{
				"protocol": "Http1", "interval": "100ms", "timeout": "1s",
				"check_config": object{"http_check_config": object{"path": "/healthz"}},
			}}), app.address),
			cluster("raw", source, tcpApp),
		},
	}.config())
	if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "127.0.0.9" {
		t.Errorf("source address of a request: %q, want \"127.0.0.9\"", got.body)
	}
	if got := dialRaw(t, tcpFront).readToEnd(); got != "127.0.0.9" {
		t.Errorf("source address of a byte stream: %q, want \"127.0.0.9\"", got)
	}
	if got := <-checks; got != "127.0.0.9" {
		t.Errorf("source address of a health check: %q, want \"127.0.0.9\"", got)
	}
}

// TestKeepAliveTimers verifies the kernel's keepalive timers of downstream and upstream
// connections, as ss shows them.
func TestKeepAliveTimers(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("ss (iproute2) is not installed")
	}
	app := startUpstream(t, respondWith("hello"))
	front := freeAddress()
	l := httpListener("front", front)
	l["tcp_keepalive"] = object{"keepalive_time": 3000}
	startWeft(t, setup{
		listeners: list{l},
		tables:    list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", object{
			"upstream_connection_options": object{"tcp_keepalive": object{"keepalive_time": 5000, "keepalive_probes": 3}},
		}, app.address)},
	}.config())
	client := newClient(t)
	sendRequest(t, client, "GET", "http://"+front, "")
	for _, c := range []struct{ side, filter, minimum string }{
		{"downstream", "sport = :" + portOfAddress(front), "49min"},
		{"upstream", "dport = :" + portOfAddress(app.address), "83min"},
	} {
		out, err := exec.Command("ss", "-Htno", "state", "established", c.filter).CombinedOutput()
		if err != nil {
			t.Fatalf("ss: %v\n%s", err, out)
		}
		if !strings.Contains(string(out), "timer:(keepalive,"+c.minimum) {
			t.Errorf("%s connection has no timer of %s:\n%s", c.side, c.minimum, out)
		}
	}
}

func portOfAddress(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
