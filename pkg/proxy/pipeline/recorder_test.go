package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/internal/metrics/metricstest"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// testMetrics is a registry whose values tests can read.
type testMetrics struct {
	*metrics.Registry
	t testing.TB
}

func newTestMetrics(t testing.TB) testMetrics {
	o := metrics.Options{Reasons: []string{protocol.ReasonNone.String()}}
	for r := range protocol.Reasons() {
		o.Reasons = append(o.Reasons, r.String())
	}
	return testMetrics{metrics.New(o), t}
}

func (m testMetrics) value(name string, labels ...string) float64 {
	m.t.Helper()
	return metricstest.Value(m.t, m.Registry, name, labels...)
}

// newTestRecorder returns a recorder of a listener without access logs.
func newTestRecorder(t testing.TB, m testMetrics) *Recorder {
	t.Helper()
	r, err := NewRecorder(&config.Listener{Name: "in"}, nil, m.Registry, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rpcExchange returns a Dubbo exchange with a response.
func rpcExchange(service, method string, code int) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Authority, x.Request.Path = service, "/"+service+"/"+method
	x.Request.Header.Add(xprotocol.FieldService, service)
	x.Request.Header.Add(xprotocol.FieldMethod, method)
	x.Response.Status, x.Response.Code = 200, code
	x.Meta.Protocol = "dubbo"
	x.Meta.Start = time.Unix(1, 0)
	x.Record.End = x.Meta.Start.Add(3 * time.Millisecond)
	return x
}

func TestRPCRequestsAreCountedByMethod(t *testing.T) {
	r := newTestMetrics(t)
	rec := newTestRecorder(t, r)
	for range 2 {
		rec.observe(rpcExchange("shop.Items", "list", 20))
	}
	rec.observe(rpcExchange("shop.Items", "list", 70))
	failed := rpcExchange("shop.Items", "list", 20)
	failed.LocalReplyError(protocol.Faultf(protocol.NoHealthyHost, "none"))
	rec.observe(failed)
	oneWay := rpcExchange("shop.Items", "log", protocol.NoCode)
	oneWay.Request.OneWay = true
	rec.observe(oneWay)

	const requests, failures = "weft_rpc_requests_total", "weft_rpc_request_failures_total"
	for _, test := range []struct {
		metric string
		labels []string
		want   float64
	}{
		{requests, []string{"shop.Items", "list", "20"}, 2},
		{requests, []string{"shop.Items", "list", "70"}, 1},
		{requests, []string{"shop.Items", "list", "none"}, 1},
		{requests, []string{"shop.Items", "log", "none"}, 1},
		{requests, nil, 5},
		{failures, []string{"shop.Items", "list", protocol.NoHealthyHost.String()}, 1},
		{failures, nil, 1},
		{"weft_listener_requests_total", []string{"in"}, 5},
	} {
		if got := r.value(test.metric, test.labels...); got != test.want {
			t.Errorf("%s%q = %v, want %v", test.metric, test.labels, got, test.want)
		}
	}
}

// TestHostStatusIsCounted verifies that metrics distinguish the status of the host from the status
// that the client gets.
func TestHostStatusIsCounted(t *testing.T) {
	rec := newTestRecorder(t, newTestMetrics(t))
	x := rpcExchange("shop.Items", "list", 20)
	for _, tt := range []struct {
		name     string
		attempts []protocol.Attempt
		want     int
	}{
		{"no attempt", nil, 0},
		{"response of a host", []protocol.Attempt{{Status: 503}}, 503},
		{"last attempt without a response", []protocol.Attempt{{Status: 503}, {Reason: protocol.ConnectFailure}}, 0},
	} {
		x.Record.Attempts = tt.attempts
		if got := rec.keyOf(x).outcome; got.UpstreamStatus != tt.want || got.Status != 200 {
			t.Errorf("%s: host status %d and client status %d, want %d and 200", tt.name, got.UpstreamStatus, got.Status, tt.want)
		}
	}
}

func TestGRPCRequestsAreCountedByMethod(t *testing.T) {
	r := newTestMetrics(t)
	rec := newTestRecorder(t, r)
	observe := func(change func(x *protocol.Exchange)) {
		x := httpCall("Http2", "POST", "/shop.Items/List", "application/grpc+proto")
		change(x)
		rec.observe(x)
	}
	observe(func(x *protocol.Exchange) { x.Response.Trailer.Add("grpc-status", "0") })
	observe(func(x *protocol.Exchange) { x.Response.Trailer.Add("grpc-status", "5") })
	observe(func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "14") })
	observe(func(*protocol.Exchange) {}) // truncated before its trailers
	observe(func(x *protocol.Exchange) { // the route rewrites the path
		rec.setMethod(x)
		x.Request.Path = "/other/Path"
		x.Response.Trailer.Add("grpc-status", "0")
	})
	observe(func(x *protocol.Exchange) { // local reply of the engine for a failure
		x.LocalReplyError(protocol.Faultf(protocol.NoHealthyHost, "none"))
		x.LocalReply(200, "", "")
		x.Response.Header.Add("grpc-status", "14")
	})

	const requests, failures = "weft_rpc_requests_total", "weft_rpc_request_failures_total"
	for _, test := range []struct {
		metric string
		labels []string
		want   float64
	}{
		{requests, []string{"shop.Items", "List", "0"}, 2},
		{requests, []string{"shop.Items", "List", "5"}, 1},
		{requests, []string{"shop.Items", "List", "14"}, 2},
		{requests, []string{"shop.Items", "List", "none"}, 1},
		{requests, nil, 6},
		{failures, []string{"shop.Items", "List", protocol.NoHealthyHost.String()}, 1},
		{failures, nil, 1},
	} {
		if got := r.value(test.metric, test.labels...); got != test.want {
			t.Errorf("%s%q = %v, want %v", test.metric, test.labels, got, test.want)
		}
	}
}

func TestOnlyRPCRequestsAreCountedByMethod(t *testing.T) {
	for name, change := range map[string]func(*protocol.Exchange){
		"HTTP":            func(x *protocol.Exchange) { x.Request.Method = "GET" },
		"HTTP/2":          func(x *protocol.Exchange) { *x = *httpCall("Http2", "POST", "/a/b", "application/json") },
		"gRPC-Web":        func(x *protocol.Exchange) { *x = *httpCall("Http2", "POST", "/a/b", "application/grpc-web") },
		"gRPC with GET":   func(x *protocol.Exchange) { *x = *httpCall("Http2", "GET", "/a/b", "application/grpc") },
		"malformed frame": func(x *protocol.Exchange) { x.Request.Path = "" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestMetrics(t)
			x := rpcExchange("service", "method", 20)
			change(x)
			newTestRecorder(t, r).observe(x)
			if got := r.value("weft_rpc_requests_total"); got != 0 {
				t.Errorf("%v requests were counted as RPC, want 0", got)
			}
			if got := r.value("weft_listener_requests_total"); got != 1 {
				t.Errorf("%v requests were counted for the listener, want 1", got)
			}
		})
	}
}

func TestRPCRequestWithoutMethodIsCounted(t *testing.T) {
	r := newTestMetrics(t)
	x := rpcExchange("", "", 20)
	x.Request.Header.Reset() // as with an unknown serialization
	x.Request.Path = "/"
	newTestRecorder(t, r).observe(x)
	if got := r.value("weft_rpc_requests_total", "none", "20"); got != 1 {
		t.Errorf("%v requests without a service, want 1", got)
	}
}

func TestObservingRPCAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector adds allocations")
	}
	r := newTestMetrics(t)
	rec := newTestRecorder(t, r)
	rpc := rpcExchange("shop.Items", "list", 20)
	failed := rpcExchange("shop.Items", "list", 20)
	failed.LocalReplyError(protocol.Faultf(protocol.NoHealthyHost, "none"))
	longName := rpcExchange(strings.Repeat("s", 2*metrics.MaxMethodName), "list", 20)
	grpc := httpCall("Http2", "POST", "/shop.Items/List", "application/grpc")
	grpc.Response.Trailer.Add("grpc-status", "0")
	for name, x := range map[string]*protocol.Exchange{"response": rpc, "failed": failed, "long name": longName, "gRPC": grpc} {
		rec.observe(x)
		if n := testing.AllocsPerRun(100, func() { rec.observe(x) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// BenchmarkRecord measures the recording of an exchange without access logs.
func BenchmarkRecord(b *testing.B) {
	for _, bm := range []struct {
		name string
		x    *protocol.Exchange
	}{
		{"GET", httpCall("Http1", "GET", "/items", "text/html")},
		{"POST", httpCall("Http1", "POST", "/items", "application/json")},
		{"HTTP2/POST", httpCall("Http2", "POST", "/items", "application/json")},
		{"gRPC", httpCall("Http2", "POST", "/shop.Items/List", "application/grpc")},
		{"Dubbo", rpcExchange("shop.Items", "list", 20)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			rec := newTestRecorder(b, newTestMetrics(b))
			b.ReportAllocs()
			for b.Loop() {
				bm.x.Record.Method = nil
				rec.setMethod(bm.x)
				rec.observe(bm.x)
			}
		})
	}
}

// httpCall returns an HTTP exchange with a response.
func httpCall(version, method, path, contentType string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Authority, x.Request.Path = method, "shop.test", path
	for _, name := range []string{"user-agent", "accept", "accept-encoding"} {
		x.Request.Header.Add(name, "value")
	}
	x.Request.Header.Add("content-type", contentType)
	x.Response.Status = 200
	x.Meta.Protocol = version
	x.Meta.Start = time.Unix(1, 0)
	x.Record.End = x.Meta.Start.Add(3 * time.Millisecond)
	return x
}
