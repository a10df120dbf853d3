package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestHedgedUploadTimeout verifies that a client that sends only a part of its request gets a
// timeout response.
func TestHedgedUploadTimeout(t *testing.T) {
	r := newRig(t)
	r.apply(setup{
		routes: `{"name": "r", "match": {"prefix": "/"}, "route": {"cluster_name": "app", "timeout": "200ms",
			"retry_policy": {"retry_on": "5xx", "num_retries": 1, "per_try_timeout": "50ms"}, "hedge_policy": {"hedge_on_per_try_timeout": true}}}`,
		clusters: cluster("app", "127.0.0.1:1", "127.0.0.1:2"),
	}.snapshot(t))
	conn, err := net.Dial("tcp", r.address("front"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // the connection is open, so this cannot fail
	if _, err := io.WriteString(conn, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\ncont"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("status %d, want 504", resp.StatusCode)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
}
