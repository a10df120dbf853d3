package proxy

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
)

// TestKeepAliveGETAllocatesNothing verifies that a request and its response allocate nothing
// between the listener and a pooled upstream connection. The client and the origin of the test
// allocate nothing either.
func TestKeepAliveGETAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector adds allocations")
	}
	for name, s := range map[string]setup{
		"plain":             {routes: routeTo("app")},
		"retry policy":      {routes: `{"match": {"prefix": "/"}, "route": {"cluster_name": "app", "timeout": "5s", "retry_policy": {"retry_on": true, "num_retries": 2, "retry_timeout": "1s"}}}`},
		"stream filters":    {routes: routeTo("app"), filters: `{"type": "payload_limit", "config": {"max_entity_size": 100}}, {"type": "fault", "config": {"abort": {"percentage": 100}, "headers": [{"name": "x", "value": "1"}]}}, {"type": "header_mutation", "config": {"request_headers_to_add": [{"header": {"key": "a", "value": "1"}}], "response_headers_to_remove": ["b"]}}`},
		"access log":        {routes: routeTo("app"), listener: `"access_logs": [{"log_path": "` + t.TempDir() + `/access.log"}]`},
		"weighted clusters": {routes: `{"match": {"prefix": "/"}, "route": {"weighted_clusters": [{"cluster": {"name": "app", "weight": 100}}]}}`},
		"cluster variable":  {routes: `{"match": {"prefix": "/"}, "route": {"cluster_variable": "request_header_x-cluster"}}`},
		"Via header":        {routes: routeTo("app"), proxy: `"extend_config": {"via": "weft"}`},
		"host rewrite":      {routes: `{"match": {"prefix": "/a"}, "route": {"cluster_name": "app", "host_rewrite": "app.test"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s.clusters = cluster("app", rawOrigin(t))
			_, address := s.run(t)
			if n := allocsPerRequest(t, address); n >= 0.1 {
				t.Errorf("%.2f allocations per request, want less than 0.1", n)
			}
		})
	}
}

const (
	rawRequest  = "GET /a/b?c=d HTTP/1.1\r\nHost: shop.test\r\nUser-Agent: test\r\nAccept: */*\r\nX-Cluster: app\r\n\r\n"
	rawResponse = "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
)

// allocsPerRequest warms up a connection and returns the mean number of allocations of the process
// for each further request.
func allocsPerRequest(t *testing.T, address string) float64 {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request, response := []byte(rawRequest), make([]byte, 4<<10)
	exchange := func() {
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(response[:n], []byte("\r\n\r\nhello")); {
			m, err := conn.Read(response[n:])
			if n += m; err != nil || n == len(response) {
				t.Fatalf("response %q, error %v; want a response shorter than the buffer", response[:n], err)
			}
		}
	}
	// A garbage collection would empty the pools and distort the result.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for range 500 {
		exchange()
	}
	const requests = 2000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range requests {
		exchange()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / requests
}

// rawOrigin responds to every request with rawResponse.
func rawOrigin(t testing.TB) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go respondRaw(conn)
		}
	}()
	return ln.Addr().String()
}

func respondRaw(conn io.ReadWriteCloser) {
	defer conn.Close()
	request, response := make([]byte, 4<<10), []byte(rawResponse)
	for {
		for n := 0; !bytes.HasSuffix(request[:n], []byte("\r\n\r\n")); {
			m, err := conn.Read(request[n:])
			if n += m; err != nil {
				return
			}
		}
		if _, err := conn.Write(response); err != nil {
			return
		}
	}
}
