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

// eachMuxMode runs a test in fake time with a set of one cluster, cfg, whose connections belong to
// n. It closes the set at the end.
func eachMuxMode(t *testing.T, cfg *config.Cluster, test func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newFakeMuxConnector()
		s, c := n.newTestCluster(t, cfg)
		defer s.Close()
		test(t, n, s, c)
	})
}

// eachGrownMuxMode is eachMuxMode with all permitted connections to the one host open and idle.
func eachGrownMuxMode(t *testing.T, cfg *config.Cluster, test func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster)) {
	t.Helper()
	eachMuxMode(t, cfg, func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		grow(t, n, c)
		test(t, n, s, c)
	})
}

// grow opens all permitted connections to the cluster's one host.
func grow(t testing.TB, n *fakeMuxConnector, c *Cluster) {
	t.Helper()
	most := c.Config().Pool.Connections
	finishAll(beginEach(t, c, 2*most))
	if got := n.open(); got != most {
		t.Fatalf("%d connections are open, want %d", got, most)
	}
}

// withMaxConnections sets max_connections of cfg and returns cfg.
func withMaxConnections(cfg *config.Cluster, connections int) *config.Cluster {
	cfg.CircuitBreakers.MaxConnections = connections
	return cfg
}

// beginEach starts exchanges one after the other. Each can use a connection that the pool opened
// for the previous one.
func beginEach(t testing.TB, c *Cluster, n int) []*protocol.Exchange {
	t.Helper()
	list := make([]*protocol.Exchange, n)
	for i := range list {
		list[i] = begin(t, c)
		synctest.Wait()
	}
	return list
}

// beginMany starts exchanges concurrently.
func beginMany(t testing.TB, c *Cluster, n int) []*protocol.Exchange {
	t.Helper()
	list := make([]*protocol.Exchange, n)
	for i := range list {
		list[i] = begin(t, c)
	}
	return list
}

func finishAll(list []*protocol.Exchange) {
	for _, x := range list {
		finish(x)
	}
}

// queueMany starts exchanges that have to wait.
func queueMany(c *Cluster, n int, deadline time.Duration) []<-chan *protocol.Exchange {
	list := make([]<-chan *protocol.Exchange, n)
	for i := range list {
		list[i] = queue(c, deadline)
	}
	return list
}

func TestSharedConnectionCarriesManyExchanges(t *testing.T) {
	eachMuxMode(t, muxCluster(1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 100)
		synctest.Wait()
		if got := len(n.list()); got != 1 {
			t.Errorf("%d connections for 100 exchanges, want 1", got)
		}
		wantCounts(t, s, 100, 1, 0)
		finishAll(list)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestSharedConnectionsAreOpenedOneByOne verifies that an exchange that finds all connections busy
// makes the pool open one more, without waiting for it.
func TestSharedConnectionsAreOpenedOneByOne(t *testing.T) {
	eachMuxMode(t, muxCluster(3, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 1)
		synctest.Wait()
		for i, want := range []int{2, 3, 3, 3} {
			open := n.holdConnects("a")
			list = append(list, beginMany(t, c, 5)...) // concurrently, on the open connections
			open()
			synctest.Wait()
			if got := len(n.list()); got != want {
				t.Errorf("%d connections after round %d, want %d", got, i, want)
			}
		}
		wantCounts(t, s, 21, 3, 0)
		finishAll(list)
		wantCounts(t, s, 0, 3, 3)
	})
}

func TestSharedConnectionIsNotOpenedWhileOneIsIdle(t *testing.T) {
	eachMuxMode(t, muxCluster(3, "a"), func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
		for range 20 {
			serveOne(t, c)
			synctest.Wait()
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestPoolGrowsBeyondStreamLimit verifies that the pool opens more connections than
// Pool.Connections while exchanges exceed the stream limits of the host, and closes them when they
// are idle.
func TestPoolGrowsBeyondStreamLimit(t *testing.T) {
	eachMuxMode(t, muxCluster(1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		n.maxStreams = 10
		list := beginMany(t, c, 10)
		synctest.Wait()
		wantCounts(t, s, 10, 1, 0)
		for _, came := range queueMany(c, 15, 0) { // concurrently
			list = append(list, <-came)
		}
		synctest.Wait()
		wantCounts(t, s, 25, 3, 0)
		for i, k := range n.list() {
			if got := k.load.Load(); got > 10 {
				t.Errorf("connection %d carries %d exchanges, want at most the stream limit of 10", i, got)
			}
		}
		advanceClock(maxSweepInterval)
		wantCounts(t, s, 25, 3, 0) // all connections are needed
		if got := s.Describe()[0].Hosts[0].RoundTrip; got != 10 {
			t.Errorf("RoundTrip = %v ms, want the 10 of its connections", got)
		}
		finishAll(list)
		advanceClock(maxSweepInterval)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestWarmConnections verifies that warm connections are open before the first exchange, stay open
// while idle, and are opened again when they are lost.
func TestWarmConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeMuxConnector()
		cfg := muxCluster(4, "a", "b")
		cfg.Pool.WarmProtocol, cfg.IdleTimeout = config.HTTP1, time.Second
		n.refuses["b"] = true
		s, c := n.newTestCluster(t, cfg)
		defer s.Close()
		synctest.Wait()
		wantList(t, "connects", slices.Sorted(slices.Values(n.dialed())), "a", "b")
		n.set(n.refuses, "b", false)
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 2, 2)
		if got := len(n.list()); got != 2 {
			t.Fatalf("%d connections were opened, want one per host", got)
		}
		for _, k := range n.list() {
			k.die()
		}
		advanceClock(maxSweepInterval)
		if got := len(n.list()); got != 4 {
			t.Errorf("%d connections were opened, want each lost one replaced", got)
		}
		finishAll(beginMany(t, c, 10))
		cold := muxCluster(4, "a", "b")
		cold.IdleTimeout = time.Second
		apply(t, s, cold)
		advanceClock(2 * maxSweepInterval)
		wantCounts(t, s, 0, 0, 0)
	})
}

// TestWarmConnectionsStayWithinMaxConnections verifies that warm connections do not exceed
// max_connections: with fewer connections than hosts, some hosts have none before their first
// exchange.
func TestWarmConnectionsStayWithinMaxConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeMuxConnector()
		cfg := withMaxConnections(muxCluster(1, "a", "b", "c"), 2)
		cfg.Pool.WarmProtocol = config.HTTP1
		s, c := n.newTestCluster(t, cfg)
		defer s.Close()
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 2, 2)
		if got := len(n.list()); got != 2 {
			t.Errorf("%d connections were opened without requests, want 2", got)
		}
		for range 3 { // one exchange per host
			finish(begin(t, c))
		}
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 2, 2)
		if got := len(n.list()); got > 5 {
			t.Errorf("%d connections were opened, want at most one per exchange", got)
		}
	})
}

func TestMaxConnectionsBoundsGrowthByStreamLimit(t *testing.T) {
	eachMuxMode(t, withMaxConnections(muxCluster(1, "a"), 3), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		n.maxStreams = 1
		list := beginEach(t, c, 20)
		wantCounts(t, s, 20, 3, 0)
		finishAll(list)
	})
}

// TestHostThatAcceptsOneConnection verifies that a host that refuses further connections is not
// marked down, and that the pool does not connect again for each exchange.
func TestHostThatAcceptsOneConnection(t *testing.T) {
	eachMuxMode(t, muxCluster(2, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 1)
		n.set(n.refuses, "a", true)
		list = append(list, beginEach(t, c, 20)...)
		wantList(t, "connects", n.dialed(), "a", "a")
		if h := s.Describe()[0].Hosts[0]; h.Health != HealthUp || h.ConnectFailures != 1 {
			t.Errorf("the host is %s with %d failed connects, want up with 1", h.Health, h.ConnectFailures)
		}
		n.set(n.refuses, "a", false)
		advanceClock(growBackoff)
		list = append(list, begin(t, c))
		synctest.Wait()
		list = append(list, begin(t, c)) // on the new connection
		wantCounts(t, s, 23, 2, 0)
		finishAll(list)
	})
}

func TestLeastBusySharedConnectionIsTaken(t *testing.T) {
	eachGrownMuxMode(t, muxCluster(3, "a"), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		list := beginMany(t, c, 9)
		for i, k := range n.list() {
			if got := k.load.Load(); got != 3 {
				t.Errorf("connection %d carries %d exchanges, want 3", i, got)
			}
		}
		least := connOf(list[4])
		for _, x := range list {
			if connOf(x) == least {
				finish(x)
			}
		}
		for range 3 {
			if connOf(begin(t, c)) != least {
				t.Error("the exchange did not use the connection with the fewest exchanges")
			}
		}
	})
}

func TestEquallyBusySharedConnectionsTakeTurns(t *testing.T) {
	eachGrownMuxMode(t, muxCluster(3, "a"), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		before := map[*fakeMuxConn]int64{}
		for _, k := range n.list() {
			before[k] = k.served.Load()
		}
		for range 30 {
			serveOne(t, c)
		}
		for i, k := range n.list() {
			if got := k.served.Load() - before[k]; got != 10 {
				t.Errorf("connection %d carried %d of 30 consecutive exchanges, want 10", i, got)
			}
		}
	})
}

func TestExchangesWaitForTheOneConnect(t *testing.T) {
	eachMuxMode(t, muxCluster(8, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		open := n.holdConnects("a")
		waiting := queueMany(c, 50, 0)
		if got := s.Describe()[0].Pending; got != 50 {
			t.Errorf("%d exchanges are pending, want 50", got)
		}
		wantList(t, "connects", n.dialed(), "a")
		open()
		for _, done := range waiting {
			x := <-done
			if x.Record.Reason != protocol.ReasonNone {
				t.Fatalf("an exchange ended with %v, want success", x.Record.Reason)
			}
			defer finish(x)
		}
		synctest.Wait()
		if got := n.list()[0].load.Load(); got != 50 {
			t.Errorf("the connection carries %d exchanges, want 50", got)
		}
		if got := s.Describe()[0].Pending; got != 0 {
			t.Errorf("%d exchanges are pending, want 0", got)
		}
	})
}

// TestEachWaiterHasItsOwnDeadline verifies that a pending exchange ends at its own deadline or
// disconnect, while the connect continues for the others.
func TestEachWaiterHasItsOwnDeadline(t *testing.T) {
	eachMuxMode(t, muxCluster(1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		open := n.holdConnects("a")
		start := time.Now()
		first := queue(c, 2*time.Second) // the exchange that started the connect ends first
		second := queue(c, 4*time.Second)
		patient := queue(c, 0)
		watched, ctx := &fakeDownstream{}, context.Background()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		left, ended := make(chan protocol.Reason, 1), make(chan protocol.Reason, 1)
		go func() {
			x := get()
			x.Downstream = watched
			left <- protocol.ReasonOf(c.Serve(context.Background(), x))
		}()
		go func() { ended <- protocol.ReasonOf(c.Serve(ctx, get())) }()
		synctest.Wait()

		watched.disconnect()
		if got := <-left; got != protocol.ReasonDownstreamDisconnect {
			t.Errorf("the exchange of a disconnected client ended with %v, want downstream_gone", got)
		}
		cancel()
		if got := <-ended; got != protocol.ReasonDownstreamDisconnect {
			t.Errorf("the exchange with a canceled context ended with %v, want downstream_gone", got)
		}
		for i, done := range []<-chan *protocol.Exchange{first, second} {
			x := <-done
			want := time.Duration(2*i+2) * time.Second
			if got := time.Since(start); x.Record.Reason != protocol.UpstreamTimeout || got != want {
				t.Errorf("an exchange ended with %v after %v, want upstream_timeout after %v", x.Record.Reason, got, want)
			}
		}
		wantCounts(t, s, 1, 1, 0)
		open()
		x := <-patient
		if x.Record.Reason != protocol.ReasonNone {
			t.Errorf("the exchange without a deadline ended with %v, want success", x.Record.Reason)
		}
		finish(x)
		wantList(t, "connects", n.dialed(), "a")
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestUnneededConnectBecomesIdle(t *testing.T) {
	eachMuxMode(t, muxCluster(1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		open := n.holdConnects("a")
		<-queue(c, time.Second)
		open()
		synctest.Wait()
		wantCounts(t, s, 0, 1, 1)
		serveOne(t, c)
		wantList(t, "connects", n.dialed(), "a")
	})
}

func TestFailedConnectSendsWaitersToNextHost(t *testing.T) {
	eachMuxMode(t, muxCluster(1, "a", "b"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		openA, openB := n.holdConnects("a"), n.holdConnects("b")
		n.set(n.refuses, "a", true)
		waiting := queueMany(c, 10, 0)
		openA()
		synctest.Wait()
		openB()
		viaA := 0
		for _, done := range waiting {
			x := <-done
			if got := x.Record.Host().Name(); got != "b" || x.Record.Reason != protocol.ReasonNone {
				t.Errorf("an exchange ended at %s with %v, want a response from b", got, x.Record.Reason)
			}
			if len(x.Record.Attempts) == 2 {
				wantList(t, "attempts", attempts(x), "a:connect_failure", "b:200")
				viaA++
			}
			finish(x)
		}
		if viaA != 5 {
			t.Errorf("%d exchanges waited for a connection to a, want 5", viaA)
		}
		dialed := n.dialed()
		slices.Sort(dialed)
		wantList(t, "connects", dialed, "a", "b")
		for _, h := range s.Describe()[0].Hosts {
			if want := map[string]uint64{"a": 1, "b": 0}[h.Address]; h.ConnectFailures != want {
				t.Errorf("%s: %d failed connects, want %d", h.Address, h.ConnectFailures, want)
			}
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestConnectTimeoutOfASharedConnection(t *testing.T) {
	eachMuxMode(t, muxCluster(1, "a"), func(t *testing.T, n *fakeMuxConnector, s *Set, c *Cluster) {
		n.holdConnects("a")
		start := time.Now()
		wantFault(t, c, protocol.ConnectTimeout)
		if got := time.Since(start); got != 10*time.Second {
			t.Errorf("Serve took %v, want connect_timeout (10s)", got)
		}
		wantCounts(t, s, 0, 0, 0)
	})
}

// detachCounter is a downstream that counts calls of Detach.
type detachCounter struct {
	fakeDownstream
	times int
}

func (d *detachCounter) Detach() { d.times++ }

func TestDetachOnlyWhenThereIsNoSharedConnection(t *testing.T) {
	eachMuxMode(t, muxCluster(2, "a"), func(t *testing.T, n *fakeMuxConnector, _ *Set, c *Cluster) {
		by := &detachCounter{}
		open := n.holdConnects("a")
		done := make(chan *protocol.Exchange)
		go func() {
			x := get()
			x.Downstream = by
			x.Record.Reason = protocol.ReasonOf(c.Serve(context.Background(), x))
			done <- x
		}()
		synctest.Wait()
		if by.times != 1 { // the exchange waits, so the read is not concurrent with it
			t.Errorf("detached %d times before the wait, want once", by.times)
		}
		open()
		x := <-done
		by.times = 0
		for range 5 { // the first finds all connections busy and makes the pool grow
			y := get()
			y.Downstream = by
			if err := c.Serve(context.Background(), y); err != nil {
				t.Fatal(err)
			}
			defer finish(y)
		}
		finish(x)
		if by.times != 0 {
			t.Errorf("detached %d times with a connection open, want never", by.times)
		}
	})
}

func TestSharedServeDoesNotAllocate(t *testing.T) {
	for _, mode := range []config.PoolMode{config.Multiplex, config.Bind} {
		cfg := muxCluster(2, "a", "b")
		cfg.Pool.Mode = mode
		cfg.CircuitBreakers = config.CircuitBreakers{MaxConnections: 100, MaxPendingRequests: 100, MaxRequests: 100}
		_, c := newFakeMuxConnector().newTestCluster(t, cfg)
		x := get()
		x.Meta.Conn = &protocol.ConnMeta{}
		wantNoAllocs(t, string(mode), c, x)
	}
}

func benchmarkShared(b *testing.B, serve func(b *testing.B, c *Cluster)) {
	for _, mode := range []config.PoolMode{config.Multiplex, config.Bind} {
		b.Run(string(mode), func(b *testing.B) {
			cfg := muxCluster(2, "a", "b")
			cfg.Pool.Mode = mode
			_, c := newFakeMuxConnector().newTestCluster(b, cfg)
			b.ReportAllocs()
			serve(b, c)
		})
	}
}

func BenchmarkSharedServe(b *testing.B) {
	benchmarkShared(b, func(b *testing.B, c *Cluster) {
		via := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
		ctx := context.Background()
		x := get()
		for b.Loop() {
			x.Record.Attempts = x.Record.Attempts[:0]
			if err := x.Serve(ctx, via); err != nil {
				b.Fatal(err)
			}
			x.ResetResponse()
		}
	})
}

func BenchmarkSharedServeParallel(b *testing.B) {
	benchmarkShared(b, func(b *testing.B, c *Cluster) {
		b.RunParallel(func(pb *testing.PB) {
			via := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
			ctx := context.Background()
			x := get()
			for pb.Next() {
				x.Record.Attempts = x.Record.Attempts[:0]
				if err := x.Serve(ctx, via); err != nil {
					b.Error(err)
					return
				}
				x.ResetResponse()
			}
		})
	})
}
