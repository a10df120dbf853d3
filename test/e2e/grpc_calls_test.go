package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// grpcUpstream is a gRPC server. It responds with a message and a status in trailers, or with a
// status in the headers alone.
type grpcUpstream struct {
	address string
	calls   atomic.Int64
}

// serveGRPC starts a grpcUpstream. If busyStatus is not "", calls of the method Busy end with it.
func serveGRPC(t *testing.T, busyStatus string) *grpcUpstream {
	t.Helper()
	upstream := new(grpcUpstream)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		upstream.calls.Add(1)
		_, _ = io.Copy(io.Discard, req.Body)
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		switch {
		case busyStatus != "" && strings.HasSuffix(req.URL.Path, "/Busy"):
			h.Set("Grpc-Status", busyStatus)
		case strings.HasSuffix(req.URL.Path, "/Denied"):
			h.Set("Grpc-Status", "7")
		default:
			_, _ = w.Write([]byte{0, 0, 0, 0, 0})
			h.Set(http.TrailerPrefix+"Grpc-Status", "0")
		}
	}))
	s.Config.Protocols = httpProtocols("Http2")
	s.Start()
	t.Cleanup(s.Close)
	upstream.address = s.Listener.Addr().String()
	return upstream
}

// callGRPC calls a method and returns its status from the headers or the trailers.
func callGRPC(t *testing.T, c *http.Client, front, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+front+path, strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if status := resp.Header.Get("Grpc-Status"); status != "" {
		return status
	}
	return resp.Trailer.Get("Grpc-Status")
}

// startGRPCProxy runs Weft with HTTP/2 on both sides and returns a client for it.
func startGRPCProxy(t *testing.T, extra object, clusters list, routes ...object) (w *weft, front string, c *http.Client) {
	t.Helper()
	front = freeAddress()
	s := setup{
		listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
			"downstream_protocol": "Http2", "upstream_protocol": "Http2", "router_config_name": "front"}}, extra)},
		tables:   list{routeTable("front", routes...)},
		clusters: clusters,
	}
	w = startWeft(t, s.config())
	transport := &http.Transport{Protocols: httpProtocols("Http2")}
	t.Cleanup(transport.CloseIdleConnections)
	return w, front, &http.Client{Transport: transport, Timeout: waitTimeout}
}

func TestGRPCMetricsByMethod(t *testing.T) {
	t.Parallel()
	app := serveGRPC(t, "")
	log := filepath.Join(t.TempDir(), "log")
	w, front, c := startGRPCProxy(t,
		object{"access_logs": list{object{"log_path": log, "log_format": "%path% %rpc_status% %response_code%"}}},
		list{cluster("app", nil, app.address), cluster("dead", nil, "127.0.0.1:1")},
		routeTo("/shop.Items/", "app"), routeTo("/shop.Dead/", "dead"))
	for _, call := range []struct{ path, want string }{
		{"/shop.Items/List", "0"},
		{"/shop.Items/List", "0"},
		{"/shop.Items/Denied", "7"},
		{"/shop.Dead/List", "14"},
		{"/shop.None/List", "12"},
	} {
		if got := callGRPC(t, c, front, call.path); got != call.want {
			t.Errorf("status of %s is %q, want %q", call.path, got, call.want)
		}
	}
	if resp, err := c.Get("http://" + front + "/shop.Items/Plain"); err != nil {
		t.Error(err)
	} else {
		_ = resp.Body.Close() // the body is not needed
	}
	const requests, failures = "weft_rpc_requests_total", "weft_rpc_request_failures_total"
	eventually(t, "all calls are recorded", func() bool { return w.metric(requests) == 5 })
	for _, test := range []struct {
		metric string
		labels []string
		want   float64
	}{
		{requests, []string{`service="shop.Items"`, `method="List"`, `code="0"`}, 2},
		{requests, []string{`service="shop.Items"`, `method="Denied"`, `code="7"`}, 1},
		{requests, []string{`service="shop.Dead"`, `method="List"`, `code="14"`}, 1},
		{requests, []string{`service="shop.None"`, `method="List"`, `code="12"`}, 1},
		{requests, []string{`method="Plain"`}, 0},
		{failures, []string{`service="shop.Dead"`, `reason="connect_failure"`}, 1},
		{failures, []string{`service="shop.None"`, `reason="no_route"`}, 1},
		{failures, nil, 2},
		{"weft_listener_requests_total", nil, 6},
	} {
		if got := w.metric(test.metric, test.labels...); got != test.want {
			t.Errorf("%s%v = %v, want %v", test.metric, test.labels, got, test.want)
		}
	}
	w.signal(sigterm)
	w.awaitExit(waitTimeout)
	got, want := rotatedLines(t, log)[0], []string{
		"/shop.Items/List 0 200", "/shop.Items/List 0 200", "/shop.Items/Denied 7 200",
		"/shop.Dead/List 14 200", "/shop.None/List 12 200", "/shop.Items/Plain - 200",
	}
	slices.Sort(got) // a pending call may be logged after the next one
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the access log has %q, want %q", got, want)
	}
}

func TestUnprocessedGRPCCallsAreRetried(t *testing.T) {
	t.Parallel()
	retry := object{"retry_policy": object{"retry_on": true, "num_retries": 1}}
	for name, test := range map[string]struct {
		busy    string // status of one of two hosts
		policy  object
		want    string // the worst status of four calls
		retried bool   // the hosts get more than four calls
	}{
		"with a policy":    {"14", retry, "0", true},
		"without a policy": {"14", nil, "14", false},
		"other reason":     {"13", retry, "13", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, bad := serveGRPC(t, ""), serveGRPC(t, test.busy)
			_, front, c := startGRPCProxy(t, nil, list{cluster("app", nil, good.address, bad.address)}, routeTo("/", "app", test.policy))
			worst := "0"
			for range 4 {
				if status := callGRPC(t, c, front, "/shop.Items/Busy"); status != "0" {
					worst = status
				}
			}
			if calls := good.calls.Load() + bad.calls.Load(); worst != test.want || calls > 4 != test.retried {
				t.Errorf("the worst of 4 responses is %s, with %d calls to hosts; want %s, more than 4: %t", worst, calls, test.want, test.retried)
			}
		})
	}
}
