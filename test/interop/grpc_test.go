package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// grpcCase is a case of gRPC's interop-test-descriptions. The exit status of its client is the
// result.
type grpcCase struct {
	name    string
	options []string // of the client
}

// grpcCases returns the cases that need no credentials.
func grpcCases() []grpcCase {
	// The server sends load reports. A load balancing policy of the client passes them to the case.
	orca := []string{`-service_config_json={"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`}
	soak := []string{"-soak_iterations=200", "-soak_num_threads=8"}
	return []grpcCase{
		{"empty_unary", nil},
		{"large_unary", nil},
		{"client_streaming", nil},
		{"server_streaming", nil},
		{"ping_pong", nil},
		{"empty_stream", nil},
		{"timeout_on_sleeping_server", nil},
		{"cancel_after_begin", nil},
		{"cancel_after_first_response", nil},
		{"status_code_and_message", nil},
		{"special_status_message", nil},
		{"custom_metadata", nil},
		{"unimplemented_method", nil},
		{"unimplemented_service", nil},
		{"orca_per_rpc", orca},
		{"orca_oob", orca},
		{"rpc_soak", soak},
		{"channel_soak", soak},
	}
}

// TestGRPC runs every case with grpc-go's interop client and server: direct, through one Weft and
// through two in a row.
func TestGRPC(t *testing.T) {
	t.Parallel()
	requireKit(t, "grpc")
	port := freePort(t)
	start(t, "grpc-go server", filepath.Join(kitDir("grpc"), "server"), "-port", strconv.Itoa(port))
	awaitPort(t, port)
	p := pair{consumer: "grpc-go", provider: "grpc-go"}
	for _, path := range []struct {
		callPath callPath
		wefts    int
	}{{direct, 0}, {oneWeft, 1}, {twoWefts, 2}} {
		weftPort, problem := startChain(t, path.wefts, port)
		for _, c := range grpcCases() {
			t.Run(c.name+"/"+string(path.callPath), func(t *testing.T) {
				defer results.add(t, c.name, p, path.callPath)
				if problem != "" {
					t.Skip("SKIPPED: " + problem)
				}
				if out, err := runGRPCCase(t, weftPort, c); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// TestGRPCClientDetectsFailures verifies that cases fail with a server that implements no method.
// It omits the cases about unimplemented methods, and those that the client may end first.
func TestGRPCClientDetectsFailures(t *testing.T) {
	t.Parallel()
	requireKit(t, "grpc")
	port := startHTTP2(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "12")
	})
	for _, c := range grpcCases() {
		switch c.name {
		case "unimplemented_method", "unimplemented_service", "timeout_on_sleeping_server", "cancel_after_begin":
			continue
		}
		out, err := runGRPCCase(t, port, grpcCase{c.name, append([]string{"-soak_overall_timeout_seconds=1"}, c.options...)})
		if err == nil {
			t.Errorf("%s passes with a server without methods:\n%s", c.name, out)
		}
	}
}

// runGRPCCase runs the client for one case against a server on a port.
func runGRPCCase(t *testing.T, port int, c grpcCase) (output []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	args := append([]string{"-server_host=127.0.0.1", fmt.Sprintf("-server_port=%d", port), "-test_case=" + c.name}, c.options...)
	return exec.CommandContext(ctx, filepath.Join(kitDir("grpc"), "client"), args...).CombinedOutput()
}

// startChain starts n Wefts in a row in front of a server on port, and returns the port of the
// first. problem names the feature that Weft does not support yet, or is "".
func startChain(t *testing.T, n, port int) (first int, problem string) {
	t.Helper()
	for i := range n {
		weftPort := freePort(t)
		path := writeHTTP2Config(t, weftPort, port, "Http2")
		if problem := unsupported(t, path); problem != "" {
			return 0, problem
		}
		start(t, fmt.Sprintf("weft %d of %d", n-i, n), os.Getenv(weftEnv), "start", "-c", path).awaitServing(t)
		port = weftPort
	}
	return port, ""
}

// writeHTTP2Config writes the configuration of a Weft that forwards HTTP/2 from listenPort to
// upstreamPort, in the protocol upstream.
func writeHTTP2Config(t *testing.T, listenPort, upstreamPort int, upstream string) (path string) {
	t.Helper()
	text, err := json.MarshalIndent(object{
		"servers": []object{{
			"default_log_path": "stderr",
			"listeners": []object{{
				"name": "grpc", "address": address(listenPort),
				"filter_chains": []object{{"filters": []object{{"type": "proxy", "config": object{
					"downstream_protocol": "Http2",
					"upstream_protocol":   upstream,
					"router_config_name":  "grpc",
				}}}}},
			}},
			"routers": []object{{
				"router_config_name": "grpc",
				"virtual_hosts": []object{{"name": "grpc", "domains": []string{"*"}, "routers": []object{
					{"match": object{"prefix": "/"}, "route": object{"cluster_name": "grpc"}},
				}}},
			}},
		}},
		"cluster_manager": object{"clusters": []object{{
			"name": "grpc", "type": "SIMPLE", "lb_type": "LB_ROUNDROBIN", "hosts": []object{{"address": address(upstreamPort)}},
		}}},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "weft.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGRPCIsRejectedForHTTP1Upstream calls through a Weft whose upstream speaks HTTP/1.1 only. The
// call must end with a gRPC status, and the upstream must get no request.
func TestGRPCIsRejectedForHTTP1Upstream(t *testing.T) {
	t.Parallel()
	requireKit(t, "grpc")
	var hits atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(s.Close)
	weftPort := freePort(t)
	path := writeHTTP2Config(t, weftPort, tcpPort(t, s.Listener), "Http1")
	p := pair{consumer: "grpc-go", provider: "HTTP/1.1"}
	defer results.add(t, "HTTP/1.1 behind Weft", p, oneWeft)
	if problem := unsupported(t, path); problem != "" {
		t.Skip("SKIPPED: " + problem)
	}
	start(t, "weft", os.Getenv(weftEnv), "start", "-c", path).awaitServing(t)
	if err := checkRejected(t, weftPort); err != nil {
		t.Error(err)
	}
	out, err := runGRPCCase(t, weftPort, grpcCase{name: "empty_unary"})
	if err == nil || !strings.Contains(string(out), "rpc error: code = Un") { // Unimplemented or Unavailable
		t.Errorf("the client exits with %v, want an error with the code Unimplemented or Unavailable\n%s", err, out)
	}
	if n := hits.Load(); n > 0 {
		t.Errorf("%d requests reached the upstream, want none", n)
	}
}

// TestCheckRejected verifies checkRejected with a server that is not Weft.
func TestCheckRejected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header   http.Header
		code     int
		rejected bool
	}{
		"unimplemented":  {http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"12"}}, 200, true},
		"unavailable":    {http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"14"}}, 200, true},
		"success":        {http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"0"}}, 200, false},
		"not gRPC":       {http.Header{"Content-Type": {"text/html"}, "Grpc-Status": {"12"}}, 200, false},
		"without status": {http.Header{"Content-Type": {"application/grpc"}}, 200, false},
		"502":            {http.Header{"Content-Type": {"application/grpc"}, "Grpc-Status": {"12"}}, 502, false},
	} {
		port := startHTTP2(t, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), c.header)
			w.WriteHeader(c.code)
		})
		if err := checkRejected(t, port); (err == nil) != c.rejected {
			t.Errorf("%s: checkRejected = %v, want a rejection: %v", name, err, c.rejected)
		}
	}
}

// checkRejected calls a method and returns an error unless the response is a rejection: HTTP status
// 200, the content type of gRPC, and grpc-status 12 or 14.
func checkRejected(t *testing.T, port int) error {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address(port)+"/grpc.testing.TestService/EmptyCall", strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	status := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/grpc") || status != "12" && status != "14" {
		return fmt.Errorf("the response is %s, %q, grpc-status %q, want 200, application/grpc, 12 or 14", resp.Status, resp.Header.Get("Content-Type"), status)
	}
	return nil
}

// startHTTP2 serves HTTP/2 with prior knowledge until the end of the test, and returns its port.
func startHTTP2(t *testing.T, response http.HandlerFunc) int {
	t.Helper()
	s := httptest.NewUnstartedServer(response)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return tcpPort(t, s.Listener)
}

// tcpPort returns the port of a listener.
func tcpPort(t *testing.T, l net.Listener) int {
	t.Helper()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("listening on %v", l.Addr())
	}
	return addr.Port
}

// awaitPort waits until a server listens on a port.
func awaitPort(t *testing.T, port int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(waitTimeout)
	defer timeout.Stop()
	for {
		conn, err := net.Dial("tcp", address(port))
		if err == nil {
			_ = conn.Close() // no data was sent
			return
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("no listener on port %d: %v", port, err)
		}
	}
}
