package upstream

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestMultiplexMaxPendingRequests(t *testing.T) {
	cfg := muxCluster(1, "a")
	cfg.CircuitBreakers.MaxPendingRequests = 2
	withMuxCluster(t, cfg, func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects("a")
		waiting := queueMany(c, 2, 0)
		wantFault(t, c, protocol.Overflow)
		unblock()
		for _, done := range waiting {
			finish(<-done)
		}
		finishAll(beginMany(t, c, 10)) // these do not wait
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestMaxConnectionsBoundsMultiplexConns(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(8, "a"), 2), func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 10)
		wantCounts(t, s, 10, 2, 0)
		finishAll(list)
	})
}

func TestIdleMultiplexConnIsEvictedForOtherHost(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(1, "a", "b"), 1), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		first, second := serveOne(t, c), serveOne(t, c)
		if first == second {
			t.Fatalf("both exchanges went to %s", first)
		}
		if got := f.numOpen(); got != 1 || !f.list()[0].closed.Load() {
			t.Errorf("%d connections are open, want only that of the second host", got)
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestMultiplexConnIsEvictedWhenIdle verifies that a connection passes its slot to
// another host when its last exchange ends.
func TestMultiplexConnIsEvictedWhenIdle(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(1, "a", "b"), 1), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		x := begin(t, c)
		waiting := queue(c, 0) // at the other host
		y := begin(t, c)
		if x.Record.Host() != y.Record.Host() {
			t.Fatal("both hosts have a connection, want one")
		}
		finish(x)
		synctest.Wait()
		if f.list()[0].closed.Load() {
			t.Fatal("the connection was evicted while it carried an exchange")
		}
		finish(y)
		synctest.Wait()
		select {
		case z := <-waiting:
			if z.Record.Reason != protocol.ReasonNone || z.Record.Host() == x.Record.Host() {
				t.Errorf("the waiting exchange ended at %s with %v, want success at the other host", z.Record.Host().Name(), z.Record.Reason)
			}
			finish(z)
		default:
			t.Fatal("the idle connection was not evicted")
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestMultiplexSlotWaitEndsAtConnectTimeout(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(1, "a", "b"), 1), func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		x := begin(t, c)
		start := time.Now()
		y := <-queue(c, time.Hour)
		if got := time.Since(start); y.Record.Reason != protocol.ReasonNone || got != 10*time.Second || y.Record.Host() != x.Record.Host() {
			t.Errorf("the exchange ended with %v after %v: %v; want a response from the host that has a connection, after connect_timeout (10s)",
				y.Record.Reason, got, attempts(y))
		}
		if got := y.Record.Attempts[0].Reason; got != protocol.Overflow {
			t.Errorf("the first attempt ended with %v, want overflow", got)
		}
		finish(x)
		finish(y)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestBusyHostEvictsOneConnection verifies that a host with two connections that are never idle
// gives up one of them for another host.
func TestBusyHostEvictsOneConnection(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(2, "a"), 2), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		exchanges := beginMany(t, c, 8)
		synctest.Wait()
		exchanges = append(exchanges, beginMany(t, c, 8)...)
		if got := len(f.list()); got != 2 {
			t.Fatalf("a has %d connections, want 2", got)
		}
		apply(t, s, withMaxConnections(muxCluster(2, "a", "b"), 2))
		var queued []<-chan *protocol.Exchange
		for c.breakers[0].Counts().Pending == 0 { // until an exchange waits for b
			queued = append(queued, queue(c, 0))
		}
		busyConn := connOf(exchanges[0])
		exchanges = slices.DeleteFunc(exchanges, func(x *protocol.Exchange) bool {
			if connOf(x) != busyConn {
				return false
			}
			finish(x)
			return true
		})
		if len(exchanges) == 0 {
			t.Fatal("all exchanges were on one connection, want two")
		}
		hosts := map[string]bool{}
		for _, done := range queued {
			x := <-done
			hosts[x.Record.Host().Name()] = true
			finish(x)
		}
		if !hosts["b"] {
			t.Errorf("hosts that responded = %v, want b among them", hosts)
		}
		for _, x := range exchanges {
			finish(x)
		}
	})
}

func TestLoweredMaxConnectionsClosesIdleMultiplexConns(t *testing.T) {
	cfg := muxCluster(4, "a")
	withGrownMuxCluster(t, cfg, func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		lowered := *cfg
		lowered.CircuitBreakers.MaxConnections = 1
		apply(t, s, &lowered)
		for range 8 {
			serveOne(t, c)
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestGoawayLosesNoExchange verifies that exchanges on a connection complete after a GOAWAY, and
// that the next exchange uses another connection.
func TestGoawayLosesNoExchange(t *testing.T) {
	for name, atEnd := range map[string]bool{"detected by the next exchange": false, "detected at the end of an exchange": true} {
		t.Run(name, func(t *testing.T) {
			withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
				list := beginMany(t, c, 3)
				f.list()[0].goaway.Store(true)
				if atEnd {
					finish(list[2])
					list = list[:2]
				}
				x := begin(t, c)
				if connOf(x) != f.list()[1] {
					t.Error("the next exchange did not use a new connection")
				}
				wantCounts(t, s, int64(len(list)+1), 2, 0)
				finish(list[0])
				if f.list()[0].closed.Load() {
					t.Error("the connection was closed before its last exchange")
				}
				finishAll(list[1:])
				if !f.list()[0].closed.Load() {
					t.Error("the connection is open after its last exchange")
				}
				finish(x)
				wantCounts(t, s, 0, 1, 1)
			})
		})
	}
}

func TestUnusableIdleMultiplexConnIsReplaced(t *testing.T) {
	withGrownMuxCluster(t, muxCluster(3, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		for _, conn := range f.list() {
			conn.goaway.Store(true)
		}
		serveOne(t, c)
		wantCounts(t, s, 0, 1, 1)
		if got := f.numOpen(); got != 1 {
			t.Errorf("%d connections are open, want only the new one", got)
		}
	})
}

func TestClosedMultiplexConnFailsItsExchanges(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		serveOne(t, c)
		f.respond = blockUntilClosed
		waiting := queueMany(c, 20, 0)
		start := time.Now()
		f.list()[0].die()
		for _, done := range waiting {
			if x := <-done; x.Record.Reason != protocol.UpstreamReset {
				t.Errorf("an exchange ended with %v, want upstream_reset", x.Record.Reason)
			}
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("the last exchange failed after %v, want immediately", got)
		}
		synctest.Wait()
		wantCounts(t, s, 0, 0, 0)
		f.respond = nil
		serveOne(t, c)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestUnsentExchangeUsesAnotherConn verifies that an exchange uses another
// connection if its connection ended before the request was sent, within one attempt and without an
// error for the client.
func TestUnsentExchangeUsesAnotherConn(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		serveOne(t, c)
		f.list()[0].stale.Store(true)
		x := newExchange()
		x.Request.Method = "POST" // not idempotent, but nothing was sent
		if err := c.Serve(context.Background(), x); err != nil {
			t.Fatal(err)
		}
		wantList(t, "attempts", attempts(x), "a:200")
		wantCounts(t, s, 1, 1, 0)
		finish(x)
		if got := s.Describe()[0].Resent; got != 1 {
			t.Errorf("%d requests were resent, want 1", got)
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestUnsentExchangeUsesAnotherHost(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a", "b"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		f.respond = func(conn *fakeMuxConn, _ *protocol.Exchange) error {
			if conn.host == "a" {
				conn.stale.Store(true)
				return protocol.Faultf(protocol.ConnectFailure, "a ended the connection")
			}
			return nil
		}
		retried := 0
		for range 4 {
			x := begin(t, c)
			if got := x.Record.Host().Name(); got != "b" {
				t.Errorf("served by %s, want b", got)
			}
			if len(x.Record.Attempts) == 2 {
				wantList(t, "attempts", attempts(x), "a:connect_failure", "b:200")
				retried++
			}
			finish(x)
		}
		conns := 0
		for _, conn := range f.list() {
			if conn.host == "a" {
				conns++
			}
		}
		if retried == 0 || conns != retried*maxConnAttempts {
			t.Errorf("%d exchanges used %d connections to a, want %d each", retried, conns, maxConnAttempts)
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestMultiplexIdleTimeout(t *testing.T) {
	cfg := muxCluster(2, "a")
	cfg.IdleTimeout = 8 * time.Second
	withMuxCluster(t, cfg, func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		x, y := begin(t, c), begin(t, c)
		synctest.Wait()
		z := begin(t, c) // on the second connection
		finish(x)
		finish(y)
		advanceClock(time.Hour)
		wantCounts(t, s, 1, 1, 0) // the connection in use stays open
		// Finish just before a sweep: the time of the exchange does not count as idle.
		advanceClock(1999 * time.Millisecond)
		finish(z)
		advanceClock(8*time.Second - time.Millisecond)
		wantCounts(t, s, 0, 1, 1)
		advanceClock(2*time.Second + time.Millisecond) // closed at most a quarter of the timeout later
		wantCounts(t, s, 0, 0, 0)
		if got := f.numOpen(); got != 0 {
			t.Errorf("%d connections are open, want 0", got)
		}
	})
}

func TestSweepClosesUnusableMultiplexConns(t *testing.T) {
	cfg := muxCluster(3, "a")
	cfg.IdleTimeout = 0 // none
	withGrownMuxCluster(t, cfg, func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 1)
		busy := connOf(list[0])
		for _, conn := range f.list() {
			conn.goaway.Store(true)
		}
		advanceClock(maxSweepInterval)
		wantCounts(t, s, 1, 1, 0)
		finishAll(list)
		if !busy.closed.Load() {
			t.Error("the connection in use is open after its last exchange")
		}
		wantCounts(t, s, 0, 0, 0)
	})
}

func TestMultiplexPoolClose(t *testing.T) {
	withGrownMuxCluster(t, muxCluster(2, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 1)
		s.Close()
		if got := f.numOpen(); got != 1 {
			t.Errorf("%d connections are open after Close, want only the one in use", got)
		}
		finishAll(list)
		if got := f.numOpen(); got != 0 {
			t.Error("a connection is open after its last exchange")
		}
		wantZeroCounts(t, c)
		wantFault(t, c, protocol.NoCluster)
	})
}

func TestCloseEndsHangingConnect(t *testing.T) {
	for name, waiting := range map[string]int{"no exchange waits": 0, "exchanges wait": 3} {
		t.Run(name, func(t *testing.T) {
			cfg := muxCluster(1, "a")
			cfg.ConnectTimeout = 0 // none
			withMuxCluster(t, cfg, func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
				f.holdConnects("a")
				list := queueMany(c, waiting, 0)
				if waiting == 0 {
					<-queue(c, time.Second) // the connect continues after its exchange has ended
				}
				start := time.Now()
				s.Close()
				if got := time.Since(start); got != 0 {
					t.Errorf("Close took %v, want 0", got)
				}
				for _, done := range list {
					if x := <-done; x.Record.Reason != protocol.ConnectTimeout {
						t.Errorf("an exchange ended with %v, want connect_timeout", x.Record.Reason)
					}
				}
				wantZeroCounts(t, c)
			})
		})
	}
}

// TestCloseEndsSlotWait verifies that Close ends exchanges that wait for a slot with
// connect_failure instead of downstream_gone, because their clients have not disconnected.
func TestCloseEndsSlotWait(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(1, "a", "b"), 1), func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		x := begin(t, c)
		waiting := queue(c, 0)
		s.Close()
		if y := <-waiting; y.Record.Reason != protocol.ConnectFailure {
			t.Errorf("the exchange ended with %v, want connect_failure", y.Record.Reason)
		}
		finish(x)
		wantZeroCounts(t, c)
	})
}

// TestHostRemovedDuringConnect verifies that a connect continues if its host is removed: it serves
// the exchanges that wait, and then its connection closes.
func TestHostRemovedDuringConnect(t *testing.T) {
	for name, waiting := range map[string]int{"no exchange waits": 0, "exchanges wait": 3} {
		t.Run(name, func(t *testing.T) {
			withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
				unblock := f.holdConnects("a")
				list := queueMany(c, waiting, 0)
				if waiting == 0 {
					<-queue(c, time.Second)
				}
				apply(t, s, muxCluster(1, "b"))
				unblock()
				for _, done := range list {
					x := <-done
					wantList(t, "attempts", attempts(x), "a:200")
					finish(x)
				}
				synctest.Wait()
				if got := f.numOpen(); got != 0 {
					t.Errorf("%d connections to a removed host are open, want 0", got)
				}
				wantZeroCounts(t, c)
			})
		})
	}
}

// TestRemovedHostServesEarlierPicks verifies that an exchange that picked a host before its removal
// is served.
func TestRemovedHostServesEarlierPicks(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		serveOne(t, c)
		h := c.state.Load().hosts[0]
		apply(t, s, muxCluster(1, "b"))
		p := h.pool(config.HTTP1, config.Multiplex, 0)
		h.load.Begin()
		x := newExchange()
		if err := x.Serve(context.Background(), p); err != nil {
			t.Fatalf("Serve = %v, want a response", err)
		}
		if got := f.numOpen(); got != 1 {
			t.Errorf("%d connections are open, want 1", got)
		}
		finish(x)
		if got := f.numOpen(); got != 0 {
			t.Error("a connection to a removed host is open after its last exchange")
		}
		wantZeroCounts(t, c)
	})
}

// TestBusyHostEvictsOnePerWaiter verifies that at most one busy connection is evicted for each
// waiting exchange, although the eviction takes time.
func TestBusyHostEvictsOnePerWaiter(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(8, "a"), 8), func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		exchanges := beginEach(t, c, 32)
		apply(t, s, withMaxConnections(muxCluster(8, "a", "b"), 8))
		var queued []<-chan *protocol.Exchange
		for c.breakers[0].Counts().Pending == 0 { // until an exchange waits for b
			queued = append(queued, queue(c, 0))
		}
		openConns := func() int64 { // connections that accept exchanges
			n := c.breakers[0].Counts()
			return n.Connections - n.Evicted
		}
		if got := openConns(); got != 8 {
			t.Fatalf("a has %d connections, want 8", got)
		}
		seen := map[*fakeMuxConn]bool{}
		exchanges = slices.DeleteFunc(exchanges, func(x *protocol.Exchange) bool { // one exchange of each connection, so that no connection becomes idle
			first := !seen[connOf(x)]
			seen[connOf(x)] = true
			if first {
				finish(x)
			}
			return first
		})
		if got := openConns(); got != 7 {
			t.Errorf("%d connections accept exchanges, want 7: one exchange waits", got)
		}
		for _, x := range exchanges {
			finish(x)
		}
		for _, done := range queued {
			finish(<-done)
		}
		if got := c.breakers[0].Counts().Evicted; got != 0 {
			t.Errorf("%d connections are being evicted at the end, want 0", got)
		}
	})
}
