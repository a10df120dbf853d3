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

// clusterWithMaxRequests returns a cluster on whose shared connections so many exchanges may begin.
func clusterWithMaxRequests(most, connections int, hosts ...string) *config.Cluster {
	c := muxCluster(connections, hosts...)
	c.Pool.MaxRequests, c.Pool.MaxRPCRequests = most, most
	return c
}

// wantServed checks how many exchanges each connection that was ever opened has carried.
func wantServed(t testing.TB, n *fakeMuxConnector, want ...int64) {
	t.Helper()
	all := n.list()
	if len(all) != len(want) {
		t.Errorf("%d connections were opened, want %d", len(all), len(want))
	}
	for i := range min(len(all), len(want)) {
		if got := all[i].served.Load(); got != want[i] {
			t.Errorf("connection %d has carried %d exchanges, want %d", i, got, want[i])
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

// What is under way on a spent connection goes on, and another is open by then: nobody
// waits for it.
func TestConnectionAtMaxRequestsClosesAfterLastExchange(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(3, 1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		wantCounts(t, s, 3, 2, 1)
		by := &detachCounter{}
		x := get()
		x.Downstream = by
		if err := c.Serve(context.Background(), x); err != nil || by.times != 0 {
			t.Errorf("the next exchange: %v, detached %d times, want it to wait for nothing", err, by.times)
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

// Who waits for connections waits for one connect, however few may begin on one.
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
					t.Errorf("it ended with %v", x.Record.Reason)
				}
				defer finish(x)
			default:
				t.Error("an exchange waits for a second connect")
			}
		}
		for i, k := range n.list() {
			if got := k.served.Load(); got > 7 {
				t.Errorf("connection %d carries %d exchanges, and may 7", i, got)
			}
		}
		wantCounts(t, s, 30, 5, 0)
	})
}

// Who leaves before a connection is open has not begun on it.
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
		wantServed(t, n, 2, 0) // the second replaces the first, which has carried all that it may
	})
}

// Connections that nobody waits for any more are not opened before the one that somebody
// waits for.
func TestAbandonedWaitFreesItsPlace(t *testing.T) {
	eachMuxMode(t, withMaxConnections(clusterWithMaxRequests(1, 1, "a"), 1), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		list := beginEach(t, c, 1)
		leave := queueMany(c, 50, time.Second)
		stays := queue(c, 0)
		for _, left := range leave {
			if x := <-left; x.Record.Reason != protocol.UpstreamTimeout {
				t.Errorf("it ended with %v", x.Record.Reason)
			}
		}
		synctest.Wait()
		if got := c.Breaker(config.DefaultPriority).Counts().Waiting; got != 1 {
			t.Errorf("%d connections are waited for, want 1", got)
		}
		finishAll(list)
		finish(<-stays)
		wantServed(t, n, 1, 1)
	})
}

// While max_connections is reached, exchanges wait until one ends.
func TestSpentConnectionsStayWithinMaxConnections(t *testing.T) {
	eachMuxMode(t, withMaxConnections(clusterWithMaxRequests(3, 1, "a"), 1), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		waiting := queueMany(c, 7, 0)
		wantCounts(t, s, 10, 1, 0)
		finishAll(list)
		for _, came := range waiting {
			x := <-came
			if x.Record.Reason != protocol.ReasonNone {
				t.Errorf("it ended with %v", x.Record.Reason)
			}
			finish(x)
			synctest.Wait()
			if got := n.open(); got > 1 {
				t.Errorf("%d connections are open, want 1", got)
			}
		}
		wantServed(t, n, 3, 3, 3, 1)
	})
}

// What was opened ahead of exchanges gives way to another host, as what is idle does.
func TestReplacementConnectionCanBeEvicted(t *testing.T) {
	eachMuxMode(t, withMaxConnections(clusterWithMaxRequests(1, 1, "a", "b"), 1), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		for range 6 {
			serveOne(t, c)
			synctest.Wait()
		}
		if got := n.open(); got > 1 {
			t.Errorf("%d connections are open, want 1", got)
		}
		for i, k := range n.list() {
			if got := k.served.Load(); got > 1 {
				t.Errorf("connection %d has carried %d exchanges, and may one", i, got)
			}
		}
		wantNothingBut(t, s, 1)
	})
}

// wantNothingBut checks that nothing is in flight, and that at most so many connections
// are open.
func wantNothingBut(t testing.TB, s *Set, connections int64) {
	t.Helper()
	for _, c := range s.Describe() {
		if c.InFlight != 0 || c.Pending != 0 || c.Open > connections {
			t.Errorf("%d in flight, %d pending, %d connections", c.InFlight, c.Pending, c.Open)
		}
	}
}

// A spent connection to a host that takes few at once is replaced like others.
func TestSpentConnectionsToAHostThatTakesFewAtOnce(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(3, 1, "a"), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		n.maxStreams = 2
		list := beginEach(t, c, 10)
		for i, k := range n.list() {
			if load, served := k.load.Load(), k.served.Load(); load > 2 || served > 3 {
				t.Errorf("connection %d carries %d exchanges of %d, want 2 of 3 at most", i, load, served)
			}
		}
		finishAll(list)
		for range 20 {
			serveOne(t, c)
			synctest.Wait()
		}
		for i, k := range n.list() {
			if got := k.served.Load(); got > 3 {
				t.Errorf("connection %d has carried %d exchanges, and may 3", i, got)
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

// A host that is gone gets no connection in the place of one that is spent.
func TestSpentConnectionsOfAHostThatIsGone(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(3, 1, "a", "b"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 6) // three on each
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

// A host that wants no new exchange on a connection has it replaced before it is spent.
func TestSpentConnectionsOfAHostThatDrains(t *testing.T) {
	eachMuxMode(t, clusterWithMaxRequests(5, 1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginEach(t, c, 3)
		n.list()[0].goaway.Store(true)
		list = append(list, beginEach(t, c, 7)...)
		wantServed(t, n, 3, 5, 2)
		n.list()[1].goaway.Store(true) // it is spent anyway
		finishAll(list)
		wantCounts(t, s, 0, 1, 1)
	})
}

// A host that cannot be connected to any more is not asked for ever, and exchanges go
// elsewhere.
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
				t.Errorf("connection %d has carried %d exchanges, and may 3", i, got)
			}
		}
	})
}

// A limit that changes holds for the connections that there are.
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
	for name, connector := range map[string]Connector{"shared": newFakeMuxConnector(), "exclusive": newFakeConnector()} {
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
				t.Errorf("%s: %d spent connections are counted, want 3", name, got)
			}
		})
	}
}

// Many at once: none fails, none begins on a spent connection, and whatever is not lost
// in between is used up.
func TestMaxRequestsUnderLoad(t *testing.T) {
	for name, change := range map[string]func(c *config.Cluster){
		"one connection":       func(*config.Cluster) {},
		"three connections":    func(c *config.Cluster) { c.Pool.Connections = 3 },
		"max_connections":      func(c *config.Cluster) { c.CircuitBreakers.MaxConnections = 2 },
		"warm":                 func(c *config.Cluster) { c.Pool.WarmProtocol = config.HTTP1 },
		"one on a connection":  func(c *config.Cluster) { c.Pool.MaxRequests, c.Pool.MaxRPCRequests = 1, 1 },
		"for each caller":      func(c *config.Cluster) { c.Pool.Mode = config.Bind },
		"three on a few hosts": func(c *config.Cluster) { *c = *clusterWithMaxRequests(3, 1, "a", "b", "c") },
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
							t.Errorf("it failed: %v", err)
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
					t.Errorf("a connection has carried %d exchanges, and may %d", got, cfg.Pool.MaxRequests)
				}
				if got == int64(cfg.Pool.MaxRequests) {
					whole++
				}
			}
			if unused := len(n.list()) - whole; total != 4000 || unused > 100 {
				t.Errorf("%d exchanges on %d connections, of which %d were not used up", total, len(n.list()), unused)
			}
			wantNothing(t, c)
		})
	}
}

func TestSharedServeWithALimitDoesNotAllocate(t *testing.T) {
	_, c := newFakeMuxConnector().newTestCluster(t, clusterWithMaxRequests(1<<30, 2, "a", "b"))
	wantNoAllocs(t, "a limit of exchanges", c, get())
}

// BenchmarkSharedServeWithALimit is BenchmarkSharedServe where so many exchanges may begin
// on a connection.
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
