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
func clusterWithMaxRequests(most, connections int, hosts ...string) *config.Cluster {
	c := muxCluster(connections, hosts...)
	c.Pool.MaxRequests, c.Pool.MaxRPCRequests = most, most
	return c
}

// wantServed checks how many exchanges each connection has served, in the order of opening.
func wantServed(t testing.TB, n *fakeMuxConnector, want ...int64) {
	t.Helper()
	all := n.list()
	if len(all) != len(want) {
		t.Errorf("%d connections were opened, want %d", len(all), len(want))
	}
	for i := range min(len(all), len(want)) {
		if got := all[i].served.Load(); got != want[i] {
			t.Errorf("connection %d served %d exchanges, want %d", i, got, want[i])
		}
	}
}

func TestMaxRequestsOnSharedConnection(t *testing.T) {
	for _, mode := range []config.PoolMode{config.Multiplex, config.Bind} {
		cfg := clusterWithMaxRequests(7, 1, "a")
		cfg.Pool.Mode = mode
		eachMuxMode(t, cfg, func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
			by := newFakeDownstreamConn()
			defer by.end()
			for range 23 {
				x := get()
				x.Meta.Conn = &by.meta
				if err := c.Serve(by, x); err != nil {
					t.Fatal(err)
				}
				finish(x)
				synctest.Wait()
			}
			wantServed(t, n, 7, 7, 7, 2)
			wantCounts(t, s, 0, 1, 1)
		})
	}
}

// TestConnectionAtMaxRequestsClosesAfterLastExchange verifies that the exchanges on a connection at
// max_requests complete, and that the pool opens its replacement before the next exchange.
func TestConnectionAtMaxRequestsClosesAfterLastExchange(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(3, 1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		wantCounts(t, s, 3, 2, 1)
		by := &detachCounter{}
		x := get()
		x.Downstream = by
		if err := c.Serve(context.Background(), x); err != nil || by.times != 0 {
			t.Errorf("next exchange: %v, detached %d times, want no wait", err, by.times)
		}
		wantServed(t, n, 3, 1)
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
	eachMuxMode(t, clusterWithMaxRequests(7, 1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		open := n.holdConnects("a")
		waiting := queueMany(c, 30, 0)
		wantList(t, "connects", n.dialed(), "a", "a", "a", "a", "a")
		open()
		synctest.Wait()
		for _, came := range waiting {
			select {
			case x := <-came:
				if x.Record.Reason != protocol.ReasonNone {
					t.Errorf("an exchange ended with %v, want success", x.Record.Reason)
				}
				defer finish(x)
			default:
				t.Error("an exchange waits for a second connect")
			}
		}
		for i, k := range n.list() {
			if got := k.served.Load(); got > 7 {
				t.Errorf("connection %d served %d exchanges, want at most 7", i, got)
			}
		}
		wantCounts(t, s, 30, 5, 0)
	})
}

// TestAbandonedWaitDoesNotCountAsRequest verifies that an exchange that ends before its connection
// is open does not count against max_requests.
func TestAbandonedWaitDoesNotCountAsRequest(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(2, 1, "a"), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		open := n.holdConnects("a")
		left := queue(c, time.Second)
		stays := queue(c, 0)
		<-left
		open()
		finish(<-stays)
		serveOne(t, c)
		synctest.Wait()
		wantServed(t, n, 2, 0) // the second connection replaces the first, which reached max_requests
	})
}

// TestAbandonedWaitFreesItsPlace verifies that connects that no exchange waits for leave the queue
// for slots.
func TestAbandonedWaitFreesItsPlace(t *testing.T) {
	eachMuxMode(t, withMaxConnections(clusterWithMaxRequests(1, 1, "a"), 1), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		list := beginEach(t, c, 1)
		leave := queueMany(c, 50, time.Second)
		stays := queue(c, 0)
		for _, left := range leave {
			if x := <-left; x.Record.Reason != protocol.UpstreamTimeout {
				t.Errorf("an exchange ended with %v, want upstream_timeout", x.Record.Reason)
			}
		}
		synctest.Wait()
		if got := c.Breaker(config.DefaultPriority).Counts().Waiting; got != 1 {
			t.Errorf("%d connects wait for slots, want 1", got)
		}
		finishAll(list)
		finish(<-stays)
		wantServed(t, n, 1, 1)
	})
}

// TestSpentConnectionsStayWithinMaxConnections verifies that exchanges wait for a connection to end
// while max_connections is reached.
func TestSpentConnectionsStayWithinMaxConnections(t *testing.T) {
	eachMuxMode(t, withMaxConnections(clusterWithMaxRequests(3, 1, "a"), 1), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		waiting := queueMany(c, 7, 0)
		wantCounts(t, s, 10, 1, 0)
		finishAll(list)
		for _, came := range waiting {
			x := <-came
			if x.Record.Reason != protocol.ReasonNone {
				t.Errorf("an exchange ended with %v, want success", x.Record.Reason)
			}
			finish(x)
			synctest.Wait()
			if got := n.open(); got > 1 {
				t.Errorf("%d connections are open, want at most 1", got)
			}
		}
		wantServed(t, n, 3, 3, 3, 1)
	})
}

// TestReplacementConnectionCanBeEvicted verifies that a connection opened ahead of exchanges is
// evicted for another host, like an idle one.
func TestReplacementConnectionCanBeEvicted(t *testing.T) {
	eachMuxMode(t, withMaxConnections(clusterWithMaxRequests(1, 1, "a", "b"), 1), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		for range 6 {
			serveOne(t, c)
			synctest.Wait()
		}
		if got := n.open(); got > 1 {
			t.Errorf("%d connections are open, want at most 1", got)
		}
		for i, k := range n.list() {
			if got := k.served.Load(); got > 1 {
				t.Errorf("connection %d served %d exchanges, want at most 1", i, got)
			}
		}
		wantNothingBut(t, s, 1)
	})
}

// wantNothingBut checks that no exchange is in flight, and that at most that many connections are
// open.
func wantNothingBut(t testing.TB, s *Set, connections int64) {
	t.Helper()
	for _, c := range s.Describe() {
		if c.InFlight != 0 || c.Pending != 0 || c.Open > connections {
			t.Errorf("%d in flight, %d pending, %d connections", c.InFlight, c.Pending, c.Open)
		}
	}
}

// TestSpentConnectionsToAHostThatTakesFewAtOnce verifies that max_requests applies to connections
// with a stream limit.
func TestSpentConnectionsToAHostThatTakesFewAtOnce(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(3, 1, "a"), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		n.maxStreams = 2
		list := beginEach(t, c, 10)
		for i, k := range n.list() {
			if load, served := k.load.Load(), k.served.Load(); load > 2 || served > 3 {
				t.Errorf("connection %d carries %d exchanges and has served %d, want at most 2 and 3", i, load, served)
			}
		}
		finishAll(list)
		for range 20 {
			serveOne(t, c)
			synctest.Wait()
		}
		for i, k := range n.list() {
			if got := k.served.Load(); got > 3 {
				t.Errorf("connection %d served %d exchanges, want at most 3", i, got)
			}
		}
	})
}

func TestWarmConnectionsAreSpent(t *testing.T) {
	cfg := clusterWithMaxRequests(3, 1, "a")
	cfg.Pool.WarmProtocol, cfg.IdleTimeout = config.HTTP1, time.Second
	eachMuxMode(t, cfg, func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		synctest.Wait()
		for range 10 {
			wantCounts(t, s, 0, 1, 1)
			serveOne(t, c)
			synctest.Wait()
		}
		wantServed(t, n, 3, 3, 3, 1)
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 1, 1)
		wantServed(t, n, 3, 3, 3, 1)
	})
}

// TestSpentConnectionsOfAHostThatIsGone verifies that connections of a removed host are not
// replaced.
func TestSpentConnectionsOfAHostThatIsGone(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(3, 1, "a", "b"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 6) // three on each connection
		n.dialed()
		apply(t, s, clusterWithMaxRequests(3, 1, "b"))
		finishAll(list)
		synctest.Wait()
		wantList(t, "connects", n.dialed())
		for _, k := range n.list() {
			if k.host == "a" && !k.closed.Load() {
				t.Error("a connection to the removed host is open")
			}
		}
	})
}

// TestSpentConnectionsOfAHostThatDrains verifies that a connection is replaced after a GOAWAY
// before it reaches max_requests.
func TestSpentConnectionsOfAHostThatDrains(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(5, 1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		n.list()[0].goaway.Store(true)
		list = append(list, beginEach(t, c, 7)...)
		wantServed(t, n, 3, 5, 2)
		n.list()[1].goaway.Store(true) // it has reached max_requests already
		finishAll(list)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestNoReplacementConnection verifies that exchanges use another host when no replacement
// connection can be opened.
func TestNoReplacementConnection(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(3, 1, "a", "b"), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		list := beginEach(t, c, 2)
		n.set(n.refuses, "a", true)
		for range 20 {
			serveOne(t, c)
			synctest.Wait()
		}
		finishAll(list)
		for i, k := range n.list() {
			if got := k.served.Load(); got > 3 {
				t.Errorf("connection %d served %d exchanges, want at most 3", i, got)
			}
		}
	})
}

// TestChangeOfTheExchangesOnASharedConnection verifies that a change of max_requests applies to
// open connections.
func TestChangeOfTheExchangesOnASharedConnection(t *testing.T) {
	eachMuxMode(t, muxCluster(1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		for range 10 {
			serveOne(t, c)
		}
		apply(t, s, clusterWithMaxRequests(4, 1, "a"))
		advanceClock(maxSweepInterval)
		for range 9 {
			serveOne(t, c)
			synctest.Wait()
		}
		wantServed(t, n, 10, 4, 4, 1)
		apply(t, s, muxCluster(1, "a"))
		advanceClock(maxSweepInterval)
		for range 9 {
			serveOne(t, c)
		}
		wantServed(t, n, 10, 4, 4, 1, 9)
	})
}

func TestSpentConnectionsAreCounted(t *testing.T) {
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
			n := newFakeMuxConnector()
			n.respond = func(k *fakeMuxConn, _ *protocol.Exchange) error {
				yield(int(k.served.Load() % 4))
				return nil
			}
			s, c := n.newTestCluster(t, cfg)
			by := newFakeDownstreamConn()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 500 {
						x := get()
						x.Meta.Conn = &by.meta
						if err := c.Serve(by, x); err != nil {
							t.Errorf("Serve: %v", err)
							return
						}
						yield(1)
						finish(x)
					}
				})
			}
			all.Wait()
			by.end()
			s.Close()
			total, whole := int64(0), 0
			for _, k := range n.list() {
				got := k.served.Load()
				if total += got; got > int64(cfg.Pool.MaxRequests) {
					t.Errorf("a connection served %d exchanges, want at most %d", got, cfg.Pool.MaxRequests)
				}
				if got == int64(cfg.Pool.MaxRequests) {
					whole++
				}
			}
			if unused := len(n.list()) - whole; total != 4000 || unused > 100 {
				t.Errorf("%d exchanges on %d connections, of which %d closed before max_requests", total, len(n.list()), unused)
			}
			wantNothing(t, c)
		})
	}
}

func TestSharedServeWithALimitDoesNotAllocate(t *testing.T) {
	_, c := newFakeMuxConnector().newTestCluster(t, clusterWithMaxRequests(1<<30, 2, "a", "b"))
	wantNoAllocs(t, "cluster with max_requests", c, get())
}

// BenchmarkSharedServeWithALimit is BenchmarkSharedServe with max_requests.
func BenchmarkSharedServeWithALimit(b *testing.B) {
	for name, most := range map[string]int{"never reached": 1 << 30, "of 1024": 1024} {
		b.Run(name, func(b *testing.B) {
			_, c := newFakeMuxConnector().newTestCluster(b, clusterWithMaxRequests(most, 2, "a", "b"))
			via := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
			x := get()
			b.ReportAllocs()
			for b.Loop() {
				x.Record.Attempts = x.Record.Attempts[:0]
				if err := x.Serve(context.Background(), via); err != nil {
					b.Fatal(err)
				}
				x.ResetResponse()
			}
		})
	}
}
