package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestObserveLatency verifies that a latency is recorded only if it shows the speed of
// the host and the policy uses it.
func TestObserveLatency(t *testing.T) {
	const took = 300 * time.Millisecond
	tests := []struct {
		name     string
		policy   config.LBPolicy
		fault    protocol.Reason // fault of the exchange; ReasonNone: a response
		previous time.Duration   // latency that was observed before
		want     time.Duration
	}{
		{"response", config.PeakEWMA, protocol.ReasonNone, 0, took},
		{"timeout", config.PeakEWMA, protocol.UpstreamTimeout, 0, took},
		{"canceled attempt, no previous latency", config.PeakEWMA, protocol.ReasonDownstreamDisconnect, 0, took},
		{"canceled attempt, longer than the previous latency", config.PeakEWMA, protocol.ReasonDownstreamDisconnect, took / 2, took},
		{"canceled attempt, shorter than the previous latency", config.PeakEWMA, protocol.ReasonDownstreamDisconnect, 2 * took, 2 * took},
		{"connection reset", config.PeakEWMA, protocol.UpstreamReset, 0, 0},
		{"other policy", config.LeastRequest, protocol.ReasonNone, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeConnector()
				f.respond = func(_ *fakeConn, x *protocol.Exchange) error {
					x.Record.UpstreamStart = time.Now()
					time.Sleep(took)
					if tt.previous > 0 {
						h := x.Record.Host().(*Host)
						h.load.Observe(h.cluster.env.now(), tt.previous)
					}
					if tt.fault != protocol.ReasonNone {
						return protocol.Faultf(tt.fault, "a test")
					}
					x.Record.UpstreamFirstByte = time.Now()
					return nil
				}
				_, c := newTestCluster(t, f, clusterOf(1, tt.policy, nil))
				x := newExchange()
				err := c.Serve(context.Background(), x)
				if got := protocol.ReasonOf(err); got != tt.fault {
					t.Fatalf("Serve = %v, want %v", err, tt.fault)
				}
				h := c.state.Load().hosts[0]
				if got := h.load.Latency(c.env.now()); got != tt.want {
					t.Errorf("latency %v, want %v", got, tt.want)
				}
				finish(x)
			})
		})
	}
}

func TestLoadCountsOpenConnections(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), clusterOf(1, config.LeastConnection, nil))
	h := c.state.Load().hosts[0]
	wantConns := func(when string, n int64) {
		t.Helper()
		if got := h.load.Connections(); got != n {
			t.Errorf("%s: %d connections, want %d", when, got, n)
		}
	}
	serveOne(t, c)
	serveOne(t, c)
	wantConns("idle after two exchanges", 1)
	err := c.ForwardWithoutAddrs(context.Background(), 1, func(context.Context, *Host, time.Time) (func() error, error) {
		return func() error { wantConns("during the relay", 2); return nil }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantConns("after the relay", 1)
	apply(t, s)
	wantConns("after the cluster was removed", 0)
}
