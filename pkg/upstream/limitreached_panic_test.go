package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestPanicInLimitReachedLeavesNoCounts verifies that after a panic in ClusterRecorder.LimitReached
// the exchange in flight completes, all counts return to 0, and later exchanges are served.
func TestPanicInLimitReachedLeavesNoCounts(t *testing.T) {
	for name, test := range map[string]struct {
		limits config.CircuitBreakers
		queued int // exchanges that wait before the exchange with the panic
	}{
		"max_connections":      {config.CircuitBreakers{MaxConnections: 1}, 0},
		"max_requests":         {config.CircuitBreakers{MaxRequests: 1}, 0},
		"max_pending_requests": {config.CircuitBreakers{MaxConnections: 1, MaxPendingRequests: 1}, 1},
	} {
		for _, mode := range []config.PoolMode{config.PingPong, config.Multiplex, config.Bind} {
			if test.queued > 0 && mode != config.PingPong {
				continue // exchanges share a connection, or have their own
			}
			t.Run(name+", "+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &panicInjector{fakeMuxConnector: newFakeMuxConnector()}
					s, c := f.clusterWithLimits(t, mode, test.limits, "a", "b") // the next exchange goes to b and exceeds the limit
					defer s.Close()
					first, other := newFakeDownstreamConn(), newFakeDownstreamConn()
					defer first.end()
					defer other.end()
					active := first.begin(t, c)
					var queued []<-chan *protocol.Exchange
					if test.queued > 0 {
						queued = queueMany(c, test.queued, time.Minute)
						synctest.Wait()
					}
					point := "LimitReached"
					f.point.Store(&point)
					ctx, cancel := context.WithTimeout(other, time.Second)
					other.Context = ctx
					err := f.serve(c, other)
					cancel()
					if f.hits.Load() != 1 || protocol.PanicIn(err) == nil {
						t.Errorf("%d panics, Serve = %v, want one panic", f.hits.Load(), err)
					}
					finish(active)
					for _, q := range queued {
						if x := <-q; x == nil {
							t.Error("the pending exchange was not served")
						} else {
							finish(x)
						}
					}
					synctest.Wait()
					b := c.Breaker(config.DefaultPriority)
					if c.InFlight() != 0 || b.Counts().Pending != 0 || b.Counts().Waiting != 0 {
						t.Errorf("%d in flight, %d pending, %d waiting for slots, want none", c.InFlight(), b.Counts().Pending, b.Counts().Waiting)
					}
					if slots, open := b.Counts().Connections, f.fakeMuxConnector.numOpen(); slots != int64(open) {
						t.Errorf("%d slots taken, %d connections open, want the same number", slots, open)
					}
					first.end()
					third := newFakeDownstreamConn()
					defer third.end()
					for range 3 {
						if err := f.serve(c, third); err != nil {
							t.Errorf("next exchange: %v; want no error", err)
						}
					}
				})
			})
		}
	}
}

// TestPanicInLimitReachedRejectsRetry verifies that a retry is not counted as in flight after a
// panic in ClusterRecorder.LimitReached.
func TestPanicInLimitReachedRejectsRetry(t *testing.T) {
	f := &panicInjector{fakeMuxConnector: newFakeMuxConnector()}
	s, c := f.clusterWithLimits(t, config.PingPong, config.CircuitBreakers{MaxRetries: 1}, "a")
	defer s.Close()
	downstream := newFakeDownstreamConn()
	defer downstream.end()
	if err := f.serve(c, downstream); err != nil { // opens the recorder
		t.Fatal(err)
	}
	b := c.Breaker(config.DefaultPriority)
	if !b.BeginRetry() {
		t.Fatal("the first retry was rejected")
	}
	point := "LimitReached"
	f.point.Store(&point)
	var err error
	func() {
		defer protocol.RecoverPanic(&err)
		b.BeginRetry()
	}()
	if protocol.PanicIn(err) == nil {
		t.Errorf("BeginRetry returned %v, want the panic", err)
	}
	b.EndRetry()
	if n := b.Counts().Retries; n != 0 {
		t.Errorf("%d retries are in flight, want 0", n)
	}
}
