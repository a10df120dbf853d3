package healthcheck

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// buildFailing builds a filter whose health checks fail while *failed is true.
func buildFailing(t *testing.T, settings filtertest.Settings, failed *bool) filter.Filter {
	t.Helper()
	env := filter.Env{
		Metrics: metrics.New(metrics.Options{}), ClusterClient: new(filtertest.ClusterClient),
		HealthFailed: func() bool { return *failed },
	}
	f, err := build(filtertest.Decode(t, Factory(), settings), env, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// shedConn records calls of Shed.
type shedConn struct {
	fakeConn
	shed *bool
}

func (c shedConn) Shed() { *c.shed = true }

// TestHealthFailed verifies the effect of /healthcheck/fail of the admin port, and that it ends.
func TestHealthFailed(t *testing.T) {
	for _, c := range []struct {
		name           string
		settings       filtertest.Settings
		method, path   string
		status, failed int // status before and after the command
		flag           bool
	}{
		{"health check", `{"endpoint": "/healthz"}`, "GET", "/healthz", 200, 503, true},
		{"forwarded health check", `{"endpoint": "/healthz", "pass_through_mode": true}`, "GET", "/healthz", 404, 503, true},
		{"other request", `{"endpoint": "/healthz"}`, "GET", "/", 404, 404, false},
		{"RPC request", `{"endpoint": "/healthz"}`, "", "/healthz", 404, 404, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			failed := false
			s := buildFailing(t, c.settings, &failed)(application())
			for _, state := range []bool{false, true, false} {
				failed = state
				want, shed := c.status, false
				if failed {
					want = c.failed
				}
				x := newRequest(c.method, c.path)
				x.Meta.Conn = &protocol.ConnMeta{DownstreamConn: shedConn{shed: &shed}}
				if err := x.Serve(t.Context(), s); err != nil || x.Response.Status != want {
					t.Fatalf("failed %t: status %d, %v, want %d", failed, x.Response.Status, err, want)
				}
				notice, _ := x.Response.Header.Lookup(immediateFailField)
				announced := failed && c.method != ""
				if (notice == "true") != announced || shed != announced {
					t.Errorf("failed %t: %s %q, connection closes: %t", failed, immediateFailField, notice, shed)
				}
				if got := x.Record.Flags&protocol.HealthCheckFailed != 0; got != (failed && c.flag) {
					t.Errorf("failed %t: flag LH: %t", failed, got)
				}
			}
		})
	}
}

func TestHealthFailedOverGRPC(t *testing.T) {
	failed := true
	x := newGRPCHealthCheck("/grpc.health.v1.Health/Check", grpcMessage(""))
	if err := x.Serve(t.Context(), buildFailing(t, `{"grpc": true}`, &failed)(application())); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(x.Response.Body)
	if notice, _ := x.Response.Header.Lookup(immediateFailField); err != nil || string(content) != notServingMessage || notice != "true" {
		t.Errorf("response %q, %v, %s %q; want NOT_SERVING and true", content, err, immediateFailField, notice)
	}
}

// TestHealthFailedKeepsErrors verifies that the filter passes errors on.
func TestHealthFailedKeepsErrors(t *testing.T) {
	failed, broken := true, errors.New("broken")
	s := buildFailing(t, `{"endpoint": "/healthz"}`, &failed)(protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return broken }))
	if err := newRequest("GET", "/").Serve(t.Context(), s); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}
