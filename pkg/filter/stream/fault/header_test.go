package fault

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestFaultsByHeader(t *testing.T) {
	const settings = `{"delay": {"header_delay": {}, "percentage": 100}, "abort": {"header_abort": {}, "percentage": 100}}`
	for _, test := range []struct {
		name   string
		fields []string
		delay  time.Duration
		status int
		grpc   string
	}{
		{name: "no header", status: 200},
		{name: "abort", fields: []string{"x-envoy-fault-abort-request: 418"}, status: 418},
		{name: "delay", fields: []string{"x-envoy-fault-delay-request: 200"}, delay: 200 * time.Millisecond, status: 200},
		{name: "both", fields: []string{"x-envoy-fault-delay-request: 200", "x-envoy-fault-abort-request: 503"}, delay: 200 * time.Millisecond, status: 503},
		{name: "gRPC status", fields: []string{"x-envoy-fault-abort-grpc-request: 5", "content-type: application/grpc"}, status: 200, grpc: "5"},
		{name: "HTTP status first", fields: []string{"x-envoy-fault-abort-request: 418", "x-envoy-fault-abort-grpc-request: 5"}, status: 418},
		{name: "status too low", fields: []string{"x-envoy-fault-abort-request: 199"}, status: 200},
		{name: "status too high", fields: []string{"x-envoy-fault-abort-request: 600"}, status: 200},
		{name: "no number", fields: []string{"x-envoy-fault-abort-request: x", "x-envoy-fault-delay-request: -1"}, status: 200},
		{name: "excessive delay", fields: []string{"x-envoy-fault-delay-request: 4000000000"}, status: 200},
		{name: "0 percent", fields: []string{"x-envoy-fault-abort-request: 418", "x-envoy-fault-abort-request-percentage: 0"}, status: 200},
		{name: "100 percent", fields: []string{"x-envoy-fault-abort-request: 418", "x-envoy-fault-abort-request-percentage: 100"}, status: 418},
		{name: "0 percent of delays", fields: []string{"x-envoy-fault-delay-request: 200", "x-envoy-fault-delay-request-percentage: 0"}, status: 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				x := serve(t, settings, test.fields...)
				if took := time.Since(began); took != test.delay {
					t.Errorf("the request took %v, want %v", took, test.delay)
				}
				if x.Response.Status != test.status || x.Response.Header.Get("grpc-status") != test.grpc {
					t.Errorf("status %d, grpc-status %q; want %d, %q", x.Response.Status, x.Response.Header.Get("grpc-status"), test.status, test.grpc)
				}
			})
		})
	}
}

func TestDownstreamNodes(t *testing.T) {
	const settings = `{"downstream_nodes": ["a", "b"], "abort": {"status": 418, "percentage": 100}}`
	for node, want := range map[string]int{"b": 418, "c": 200, "": 200} {
		var fields []string
		if node != "" {
			fields = []string{"x-envoy-downstream-service-node: " + node}
		}
		if x := serve(t, settings, fields...); x.Response.Status != want {
			t.Errorf("node %q: status %d, want %d", node, x.Response.Status, want)
		}
	}
}

// serve serves a request with header fields.
func serve(t *testing.T, s filtertest.Settings, fields ...string) *protocol.Exchange {
	t.Helper()
	f, _ := filtertest.Build(t, Factory(), s)
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method = "GET"
	filtertest.AddHeaders(&x.Request.Header, fields...)
	app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "", "")
		return nil
	})
	if err := x.Serve(t.Context(), f(app)); err != nil {
		t.Fatal(err)
	}
	return x
}
