package upstream

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// clusterWithMaxRequests returns a cluster with this max_requests for its multiplexed connections.
func clusterWithMaxRequests(limit, connections int, hosts ...string) *config.Cluster {
	c := muxCluster(connections, hosts...)
	c.Pool.MaxRequests, c.Pool.MaxRPCRequests = limit, limit
	return c
}

// wantServed checks how many exchanges each connection has served, in the order of opening.
func wantServed(t testing.TB, f *fakeMuxConnector, want ...int64) {
	t.Helper()
	conns := f.list()
	if len(conns) != len(want) {
		t.Errorf("%d connections were opened, want %d", len(conns), len(want))
	}
	for i := range min(len(conns), len(want)) {
		if got := conns[i].served.Load(); got != want[i] {
			t.Errorf("connection %d served %d exchanges, want %d", i, got, want[i])
		}
	}
}

func TestMaxRequestsOfMultiplexConn(t *testing.T) {
	for _, mode := range []config.PoolMode{config.Multiplex, config.Bind} {
		cfg := clusterWithMaxRequests(7, 1, "a")
		cfg.Pool.Mode = mode
		withMuxCluster(t, cfg, func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
			downstream := newFakeDownstreamConn()
			defer downstream.end()
			for range 23 {
				x := newExchange()
				x.Meta.Conn = &downstream.meta
				if err := c.Serve(downstream, x); err != nil {
					t.Fatal(err)
				}
				finish(x)
				synctest.Wait()
			}
			wantServed(t, f, 7, 7, 7, 2)
			wantCounts(t, s, 0, 1, 1)
		})
	}
}

// TestConnectionAtMaxRequestsClosesAfterLastExchange verifies that the exchanges on a connection at
// max_requests complete, and that the pool opens its replacement before the next exchange.
func TestConnectionAtMaxRequestsClosesAfterLastExchange(t *testing.T) {
	withMuxCluster(t, clusterWithMaxRequests(3, 1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		wantCounts(t, s, 3, 2, 1)
		downstream := &detachCounter{}
		x := newExchange()
		x.Downstream = downstream
		if err := c.Serve(context.Background(), x); err != nil || downstream.detached != 0 {
			t.Errorf("next exchange: %v, detached %d times, want no wait", err, downstream.detached)
		}
		wantServed(t, f, 3, 1)
		finishAll(list[:2])
		wantCounts(t, s, 2, 2, 0)
		finish(list[2])
		wantCounts(t, s, 1, 1, 0)
		finish(x)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestConnectsFollowMaxRequests verifies that the pool opens enough connections for all pending
// exchanges, given max_requests per connection.
func TestConnectsFollowMaxRequests(t *testing.T) {
	withMuxCluster(t, clusterWithMaxRequests(7, 1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects("a")
		waiting := queueMany(c, 30, 0)
		wantList(t, "connects", f.dialed(), "a", "a", "a", "a", "a")
		unblock()
		synctest.Wait()
		for _, done := range waiting {
			select {
			case x := <-done:
				if x.Record.Reason != protocol.ReasonNone {
					t.Errorf("an exchange ended with %v, want success", x.Record.Reason)
				}
				defer finish(x)
			default:
				t.Error("an exchange waits for a second connect")
			}
		}
		for i, conn := range f.list() {
			if got := conn.served.Load(); got > 7 {
				t.Errorf("connection %d served %d exchanges, want at most 7", i, got)
			}
		}
		wantCounts(t, s, 30, 5, 0)
	})
}

// TestAbandonedWaitDoesNotCountAsRequest verifies that an exchange that ends before its connection
// is open does not count against max_requests.
func TestAbandonedWaitDoesNotCountAsRequest(t *testing.T) {
	withMuxCluster(t, clusterWithMaxRequests(2, 1, "a"), func(t *testing.T, f *fakeMuxConnector, _ *Set, c *Cluster) {
		unblock := f.holdConnects("a")
		abandoned := queue(c, time.Second)
		served := queue(c, 0)
		<-abandoned
		unblock()
		finish(<-served)
		serveOne(t, c)
		synctest.Wait()
		wantServed(t, f, 2, 0) // the second connection replaces the first, which reached max_requests
	})
}

// TestAbandonedConnectLeavesSlotQueue verifies that connects for which no exchange waits leave the
// queue for slots.
func TestAbandonedConnectLeavesSlotQueue(t *testing.T) {
	withMuxCluster(t, withMaxConnections(clusterWithMaxRequests(1, 1, "a"), 1), func(t *testing.T, f *fakeMuxConnector, _ *Set, c *Cluster) {
		list := beginEach(t, c, 1)
		abandoned := queueMany(c, 50, time.Second)
		served := queue(c, 0)
		for _, done := range abandoned {
			if x := <-done; x.Record.Reason != protocol.UpstreamTimeout {
				t.Errorf("an exchange ended with %v, want upstream_timeout", x.Record.Reason)
			}
		}
		synctest.Wait()
		if got := c.Breaker(config.DefaultPriority).Counts().Waiting; got != 1 {
			t.Errorf("%d connects wait for slots, want 1", got)
		}
		finishAll(list)
		finish(<-served)
		wantServed(t, f, 1, 1)
	})
}

// TestMaxRequestsWithinMaxConnections verifies that, while max_connections is reached, exchanges
// wait until a connection at max_requests closes.
func TestMaxRequestsWithinMaxConnections(t *testing.T) {
	withMuxCluster(t, withMaxConnections(clusterWithMaxRequests(3, 1, "a"), 1), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		waiting := queueMany(c, 7, 0)
		wantCounts(t, s, 10, 1, 0)
		finishAll(list)
		for _, done := range waiting {
			x := <-done
			if x.Record.Reason != protocol.ReasonNone {
				t.Errorf("an exchange ended with %v, want success", x.Record.Reason)
			}
			finish(x)
			synctest.Wait()
			if got := f.numOpen(); got > 1 {
				t.Errorf("%d connections are open, want at most 1", got)
			}
		}
		wantServed(t, f, 3, 3, 3, 1)
	})
}

// TestReplacementConnectionCanBeEvicted verifies that a connection opened ahead of exchanges is
// evicted for another host, like an idle connection.
func TestReplacementConnectionCanBeEvicted(t *testing.T) {
	withMuxCluster(t, withMaxConnections(clusterWithMaxRequests(1, 1, "a", "b"), 1), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		for range 6 {
			serveOne(t, c)
			synctest.Wait()
		}
		if got := f.numOpen(); got > 1 {
			t.Errorf("%d connections are open, want at most 1", got)
		}
		for i, conn := range f.list() {
			if got := conn.served.Load(); got > 1 {
				t.Errorf("connection %d served %d exchanges, want at most 1", i, got)
			}
		}
		wantMaxConnections(t, s, 1)
	})
}

// wantMaxConnections checks that no exchange is in flight, and that at most the given number of
// connections is open.
func wantMaxConnections(t testing.TB, s *Set, connections int64) {
	t.Helper()
	for _, c := range s.Describe() {
		if c.InFlight != 0 || c.Pending != 0 || c.Open > connections {
			t.Errorf("%d in flight, %d pending, %d connections; want 0, 0 and at most %d", c.InFlight, c.Pending, c.Open, connections)
		}
	}
}

// TestMaxRequestsWithStreamLimit verifies that max_requests applies to connections
// with a stream limit.
func TestMaxRequestsWithStreamLimit(t *testing.T) {
	withMuxCluster(t, clusterWithMaxRequests(3, 1, "a"), func(t *testing.T, f *fakeMuxConnector, _ *Set, c *Cluster) {
		f.maxStreams = 2
		list := beginEach(t, c, 10)
		for i, conn := range f.list() {
			if load, served := conn.load.Load(), conn.served.Load(); load > 2 || served > 3 {
				t.Errorf("connection %d carries %d exchanges and has served %d, want at most 2 and 3", i, load, served)
			}
		}
		finishAll(list)
		for range 20 {
			serveOne(t, c)
			synctest.Wait()
		}
		for i, conn := range f.list() {
			if got := conn.served.Load(); got > 3 {
				t.Errorf("connection %d served %d exchanges, want at most 3", i, got)
			}
		}
	})
}

func TestMaxRequestsOfWarmConns(t *testing.T) {
	cfg := clusterWithMaxRequests(3, 1, "a")
	cfg.Pool.WarmProtocol, cfg.IdleTimeout = config.HTTP1, time.Second
	withMuxCluster(t, cfg, func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		synctest.Wait()
		for range 10 {
			wantCounts(t, s, 0, 1, 1)
			serveOne(t, c)
			synctest.Wait()
		}
		wantServed(t, f, 3, 3, 3, 1)
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 1, 1)
		wantServed(t, f, 3, 3, 3, 1)
	})
}

// TestNoReplacementForRemovedHost verifies that connections of a removed host are not
// replaced.
func TestNoReplacementForRemovedHost(t *testing.T) {
	withMuxCluster(t, clusterWithMaxRequests(3, 1, "a", "b"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 6) // three on each connection
		f.dialed()
		apply(t, s, clusterWithMaxRequests(3, 1, "b"))
		finishAll(list)
		synctest.Wait()
		wantList(t, "connects", f.dialed())
		for _, conn := range f.list() {
			if conn.host == "a" && !conn.closed.Load() {
				t.Error("a connection to the removed host is open")
			}
		}
	})
}

// TestReplacementAfterGoaway verifies that a connection is replaced after a GOAWAY
// before it reaches max_requests.
func TestReplacementAfterGoaway(t *testing.T) {
	withMuxCluster(t, clusterWithMaxRequests(5, 1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		f.list()[0].goaway.Store(true)
		list = append(list, beginEach(t, c, 7)...)
		wantServed(t, f, 3, 5, 2)
		f.list()[1].goaway.Store(true) // it has reached max_requests already
		finishAll(list)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestNoReplacementConnection verifies that exchanges use another host when no replacement
// connection can be opened.
func TestNoReplacementConnection(t *testing.T) {
	withMuxCluster(t, clusterWithMaxRequests(3, 1, "a", "b"), func(t *testing.T, f *fakeMuxConnector, _ *Set, c *Cluster) {
		list := beginEach(t, c, 2)
		f.set(f.refuses, "a", true)
		for range 20 {
			serveOne(t, c)
			synctest.Wait()
		}
		finishAll(list)
		for i, conn := range f.list() {
			if got := conn.served.Load(); got > 3 {
				t.Errorf("connection %d served %d exchanges, want at most 3", i, got)
			}
		}
	})
}

// TestMaxRequestsChangeAppliesToOpenConns verifies that a change of max_requests applies to
// open connections.
func TestMaxRequestsChangeAppliesToOpenConns(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		for range 10 {
			serveOne(t, c)
		}
		apply(t, s, clusterWithMaxRequests(4, 1, "a"))
		advanceClock(maxSweepInterval)
		for range 9 {
			serveOne(t, c)
			synctest.Wait()
		}
		wantServed(t, f, 10, 4, 4, 1)
		apply(t, s, muxCluster(1, "a"))
		advanceClock(maxSweepInterval)
		for range 9 {
			serveOne(t, c)
		}
		wantServed(t, f, 10, 4, 4, 1, 9)
	})
}

func TestMaxRequestsEventIsCounted(t *testing.T) {
	for name, connector := range map[string]Connector{"multiplex": newFakeMuxConnector(), "ping-pong": newFakeConnector()} {
		synctest.Test(t, func(t *testing.T) {
			var counts eventCounts
			s := newTestSet(t, newFakeConnector(), func(o *Options) { o.Meter, o.Connectors[config.HTTP1] = &counts, connector })
			cfg := clusterWithMaxRequests(3, 1, "a")
			cfg.MaxRequestsPerConn = 3
			apply(t, s, cfg)
			for range 10 {
				serveOne(t, s.Get("web"))
				synctest.Wait()
			}
			s.Close()
			if got := counts.events[ConnectionMaxRequests]; got != 3 {
				t.Errorf("%s: ConnectionMaxRequests was counted %d times, want 3", name, got)
			}
		})
	}
}

// TestMaxRequestsUnderLoad verifies that under concurrent load no exchange fails, no connection
// exceeds max_requests, and few connections close before they reach it.
func TestMaxRequestsUnderLoad(t *testing.T) {
	for name, change := range map[string]func(c *config.Cluster){
		"one connection":              func(*config.Cluster) {},
		"three connections":           func(c *config.Cluster) { c.Pool.Connections = 3 },
		"max_connections":             func(c *config.Cluster) { c.CircuitBreakers.MaxConnections = 2 },
		"warm":                        func(c *config.Cluster) { c.Pool.WarmProtocol = config.HTTP1 },
		"one exchange per connection": func(c *config.Cluster) { c.Pool.MaxRequests, c.Pool.MaxRPCRequests = 1, 1 },
		"bind":                        func(c *config.Cluster) { c.Pool.Mode = config.Bind },
		"three hosts":                 func(c *config.Cluster) { *c = *clusterWithMaxRequests(3, 1, "a", "b", "c") },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := clusterWithMaxRequests(7, 1, "a")
			change(cfg)
			f := newFakeMuxConnector()
			f.respond = func(conn *fakeMuxConn, _ *protocol.Exchange) error {
				yield(int(conn.served.Load() % 4))
				return nil
			}
			s, c := f.newTestCluster(t, cfg)
			downstream := newFakeDownstreamConn()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 500 {
						x := newExchange()
						x.Meta.Conn = &downstream.meta
						if err := c.Serve(downstream, x); err != nil {
							t.Errorf("Serve: %v", err)
							return
						}
						yield(1)
						finish(x)
					}
				})
			}
			wg.Wait()
			downstream.end()
			s.Close()
			total, atMaxRequests := int64(0), 0
			for _, conn := range f.list() {
				got := conn.served.Load()
				if total += got; got > int64(cfg.Pool.MaxRequests) {
					t.Errorf("a connection served %d exchanges, want at most %d", got, cfg.Pool.MaxRequests)
				}
				if got == int64(cfg.Pool.MaxRequests) {
					atMaxRequests++
				}
			}
			if closedEarly := len(f.list()) - atMaxRequests; total != 4000 || closedEarly > 100 {
				t.Errorf("%d exchanges on %d connections, of which %d closed before max_requests; want 4000 exchanges and at most 100 such connections", total, len(f.list()), closedEarly)
			}
			wantZeroCounts(t, c)
		})
	}
}

func TestMultiplexServeWithMaxRequestsDoesNotAllocate(t *testing.T) {
	_, c := newFakeMuxConnector().newTestCluster(t, clusterWithMaxRequests(1<<30, 2, "a", "b"))
	wantNoAllocs(t, "cluster with max_requests", c, newExchange())
}

// BenchmarkMultiplexServeWithMaxRequests is BenchmarkMultiplexServe with max_requests.
func BenchmarkMultiplexServeWithMaxRequests(b *testing.B) {
	for name, limit := range map[string]int{"never reached": 1 << 30, "of 1024": 1024} {
		b.Run(name, func(b *testing.B) {
			_, c := newFakeMuxConnector().newTestCluster(b, clusterWithMaxRequests(limit, 2, "a", "b"))
			picker := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
			x := newExchange()
			b.ReportAllocs()
			for b.Loop() {
				x.Record.Attempts = x.Record.Attempts[:0]
				if err := x.Serve(context.Background(), picker); err != nil {
					b.Fatal(err)
				}
				x.ResetResponse()
			}
		})
	}
}
