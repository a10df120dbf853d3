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

// withMuxCluster runs a test in fake time with a Set that contains only the cluster cfg. f opens
// its connections. withMuxCluster closes the Set at the end.
func withMuxCluster(t *testing.T, cfg *config.Cluster, test func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, cfg)
		defer s.Close()
		test(t, f, s, c)
	})
}

// withGrownMuxCluster is withMuxCluster with all permitted connections to the only host open and
// idle.
func withGrownMuxCluster(t *testing.T, cfg *config.Cluster, test func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster)) {
	t.Helper()
	withMuxCluster(t, cfg, func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		grow(t, f, c)
		test(t, f, s, c)
	})
}

// grow opens all permitted connections to the only host of the cluster.
func grow(t testing.TB, f *fakeMuxConnector, c *Cluster) {
	t.Helper()
	limit := c.Config().Pool.Connections
	finishAll(beginEach(t, c, 2*limit))
	if got := f.numOpen(); got != limit {
		t.Fatalf("%d connections are open, want %d", got, limit)
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

// beginMany starts exchanges one after the other, without waiting for connections that the pool
// opens in addition.
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
func queueMany(c *Cluster, n int, timeout time.Duration) []<-chan *protocol.Exchange {
	list := make([]<-chan *protocol.Exchange, n)
	for i := range list {
		list[i] = queue(c, timeout)
	}
	return list
}

func TestMultiplexConnCarriesManyExchanges(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 100)
		synctest.Wait()
		if got := len(f.list()); got != 1 {
			t.Errorf("%d connections for 100 exchanges, want 1", got)
		}
		wantCounts(t, s, 100, 1, 0)
		finishAll(list)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestMultiplexPoolGrowsOneByOne verifies that an exchange that finds all connections busy
// makes the pool open one more, without waiting for it.
func TestMultiplexPoolGrowsOneByOne(t *testing.T) {
	withMuxCluster(t, muxCluster(3, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 1)
		synctest.Wait()
		for i, want := range []int{2, 3, 3, 3} {
			unblock := f.holdConnects("a")
			list = append(list, beginMany(t, c, 5)...) // on the open connections
			unblock()
			synctest.Wait()
			if got := len(f.list()); got != want {
				t.Errorf("%d connections after round %d, want %d", got, i, want)
			}
		}
		wantCounts(t, s, 21, 3, 0)
		finishAll(list)
		wantCounts(t, s, 0, 3, 3)
	})
}

func TestMultiplexPoolDoesNotGrowWhileIdle(t *testing.T) {
	withMuxCluster(t, muxCluster(3, "a"), func(t *testing.T, _ *fakeMuxConnector, s *Set, c *Cluster) {
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
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		f.maxStreams = 10
		list := beginMany(t, c, 10)
		synctest.Wait()
		wantCounts(t, s, 10, 1, 0)
		for _, done := range queueMany(c, 15, 0) { // concurrently
			list = append(list, <-done)
		}
		synctest.Wait()
		wantCounts(t, s, 25, 3, 0)
		for i, conn := range f.list() {
			if got := conn.load.Load(); got > 10 {
				t.Errorf("connection %d carries %d exchanges, want at most the stream limit of 10", i, got)
			}
		}
		advanceClock(maxSweepInterval)
		wantCounts(t, s, 25, 3, 0) // all connections are needed
		if got := s.Describe()[0].Hosts[0].RoundTrip; got != 10 {
			t.Errorf("RoundTrip = %v ms, want 10, the round-trip time of its connections", got)
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
		f := newFakeMuxConnector()
		cfg := muxCluster(4, "a", "b")
		cfg.Pool.WarmProtocol, cfg.IdleTimeout = config.HTTP1, time.Second
		f.refuses["b"] = true
		s, c := f.newTestCluster(t, cfg)
		defer s.Close()
		synctest.Wait()
		wantList(t, "connects", slices.Sorted(slices.Values(f.dialed())), "a", "b")
		f.set(f.refuses, "b", false)
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 2, 2)
		if got := len(f.list()); got != 2 {
			t.Fatalf("%d connections were opened, want one per host", got)
		}
		for _, conn := range f.list() {
			conn.die()
		}
		advanceClock(maxSweepInterval)
		if got := len(f.list()); got != 4 {
			t.Errorf("%d connections were opened, want each lost connection replaced", got)
		}
		finishAll(beginMany(t, c, 10))
		withoutWarm := muxCluster(4, "a", "b")
		withoutWarm.IdleTimeout = time.Second
		apply(t, s, withoutWarm)
		advanceClock(2 * maxSweepInterval)
		wantCounts(t, s, 0, 0, 0)
	})
}

// TestWarmConnectionsStayWithinMaxConnections verifies that warm connections do not exceed
// max_connections: with fewer connections than hosts, some hosts have none before their first
// exchange.
func TestWarmConnectionsStayWithinMaxConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		cfg := withMaxConnections(muxCluster(1, "a", "b", "c"), 2)
		cfg.Pool.WarmProtocol = config.HTTP1
		s, c := f.newTestCluster(t, cfg)
		defer s.Close()
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 2, 2)
		if got := len(f.list()); got != 2 {
			t.Errorf("%d connections were opened without requests, want 2", got)
		}
		for range 3 { // one exchange per host
			finish(begin(t, c))
		}
		advanceClock(time.Hour)
		wantCounts(t, s, 0, 2, 2)
		if got := len(f.list()); got > 5 {
			t.Errorf("%d connections were opened, want at most 5: the 2 warm ones and one per exchange", got)
		}
	})
}

func TestMaxConnectionsBoundsGrowthByStreamLimit(t *testing.T) {
	withMuxCluster(t, withMaxConnections(muxCluster(1, "a"), 3), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		f.maxStreams = 1
		list := beginEach(t, c, 20)
		wantCounts(t, s, 20, 3, 0)
		finishAll(list)
	})
}

// TestHostThatAcceptsOneConnection verifies that a host that refuses further connections is not
// marked down, and that the pool does not connect again for each exchange.
func TestHostThatAcceptsOneConnection(t *testing.T) {
	withMuxCluster(t, muxCluster(2, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		list := beginMany(t, c, 1)
		f.set(f.refuses, "a", true)
		list = append(list, beginEach(t, c, 20)...)
		wantList(t, "connects", f.dialed(), "a", "a")
		if h := s.Describe()[0].Hosts[0]; h.Health != HealthUp || h.ConnectFailures != 1 {
			t.Errorf("the host is %s with %d failed connects, want up with 1", h.Health, h.ConnectFailures)
		}
		f.set(f.refuses, "a", false)
		advanceClock(growBackoff)
		list = append(list, begin(t, c))
		synctest.Wait()
		list = append(list, begin(t, c)) // on the new connection
		wantCounts(t, s, 23, 2, 0)
		finishAll(list)
	})
}

func TestLeastBusyMultiplexConnIsUsed(t *testing.T) {
	withGrownMuxCluster(t, muxCluster(3, "a"), func(t *testing.T, f *fakeMuxConnector, _ *Set, c *Cluster) {
		list := beginMany(t, c, 9)
		for i, conn := range f.list() {
			if got := conn.load.Load(); got != 3 {
				t.Errorf("connection %d carries %d exchanges, want 3", i, got)
			}
		}
		leastBusy := connOf(list[4])
		for _, x := range list {
			if connOf(x) == leastBusy {
				finish(x)
			}
		}
		for range 3 {
			if connOf(begin(t, c)) != leastBusy {
				t.Error("the exchange did not use the connection with the fewest exchanges")
			}
		}
	})
}

func TestEquallyBusyMultiplexConnsRotate(t *testing.T) {
	withGrownMuxCluster(t, muxCluster(3, "a"), func(t *testing.T, f *fakeMuxConnector, _ *Set, c *Cluster) {
		before := map[*fakeMuxConn]int64{}
		for _, conn := range f.list() {
			before[conn] = conn.served.Load()
		}
		for range 30 {
			serveOne(t, c)
		}
		for i, conn := range f.list() {
			if got := conn.served.Load() - before[conn]; got != 10 {
				t.Errorf("connection %d carried %d of 30 consecutive exchanges, want 10", i, got)
			}
		}
	})
}

func TestExchangesShareOneConnect(t *testing.T) {
	withMuxCluster(t, muxCluster(8, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects("a")
		waiting := queueMany(c, 50, 0)
		if got := s.Describe()[0].Pending; got != 50 {
			t.Errorf("%d exchanges are pending, want 50", got)
		}
		wantList(t, "connects", f.dialed(), "a")
		unblock()
		for _, done := range waiting {
			x := <-done
			if x.Record.Reason != protocol.ReasonNone {
				t.Fatalf("an exchange ended with %v, want success", x.Record.Reason)
			}
			defer finish(x)
		}
		synctest.Wait()
		if got := f.list()[0].load.Load(); got != 50 {
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
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects("a")
		start := time.Now()
		first := queue(c, 2*time.Second) // the exchange that started the connect ends first
		second := queue(c, 4*time.Second)
		unlimited := queue(c, 0)
		downstream, ctx := &fakeDownstream{}, context.Background()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		disconnected, canceled := make(chan protocol.Reason, 1), make(chan protocol.Reason, 1)
		go func() {
			x := newExchange()
			x.Downstream = downstream
			disconnected <- protocol.ReasonOf(c.Serve(context.Background(), x))
		}()
		go func() { canceled <- protocol.ReasonOf(c.Serve(ctx, newExchange())) }()
		synctest.Wait()

		downstream.disconnect()
		if got := <-disconnected; got != protocol.ReasonDownstreamDisconnect {
			t.Errorf("the exchange of a disconnected client ended with %v, want downstream_gone", got)
		}
		cancel()
		if got := <-canceled; got != protocol.ReasonDownstreamDisconnect {
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
		unblock()
		x := <-unlimited
		if x.Record.Reason != protocol.ReasonNone {
			t.Errorf("the exchange without a deadline ended with %v, want success", x.Record.Reason)
		}
		finish(x)
		wantList(t, "connects", f.dialed(), "a")
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestUnneededConnectBecomesIdle(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects("a")
		<-queue(c, time.Second)
		unblock()
		synctest.Wait()
		wantCounts(t, s, 0, 1, 1)
		serveOne(t, c)
		wantList(t, "connects", f.dialed(), "a")
	})
}

func TestFailedConnectSendsWaitersToNextHost(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a", "b"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblockA, unblockB := f.holdConnects("a"), f.holdConnects("b")
		f.set(f.refuses, "a", true)
		waiting := queueMany(c, 10, 0)
		unblockA()
		synctest.Wait()
		unblockB()
		triedA := 0
		for _, done := range waiting {
			x := <-done
			if got := x.Record.Host().Name(); got != "b" || x.Record.Reason != protocol.ReasonNone {
				t.Errorf("an exchange ended at %s with %v, want a response from b", got, x.Record.Reason)
			}
			if len(x.Record.Attempts) == 2 {
				wantList(t, "attempts", attempts(x), "a:connect_failure", "b:200")
				triedA++
			}
			finish(x)
		}
		if triedA != 5 {
			t.Errorf("%d exchanges waited for a connection to a, want 5", triedA)
		}
		dialed := f.dialed()
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

func TestMultiplexConnectTimeout(t *testing.T) {
	withMuxCluster(t, muxCluster(1, "a"), func(t *testing.T, f *fakeMuxConnector, s *Set, c *Cluster) {
		f.holdConnects("a")
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
	detached int
}

func (d *detachCounter) Detach() { d.detached++ }

func TestDetachOnlyBeforeWait(t *testing.T) {
	withMuxCluster(t, muxCluster(2, "a"), func(t *testing.T, f *fakeMuxConnector, _ *Set, c *Cluster) {
		downstream := &detachCounter{}
		unblock := f.holdConnects("a")
		done := make(chan *protocol.Exchange)
		go func() {
			x := newExchange()
			x.Downstream = downstream
			x.Record.Reason = protocol.ReasonOf(c.Serve(context.Background(), x))
			done <- x
		}()
		synctest.Wait()
		if downstream.detached != 1 { // the exchange waits, so it does not write concurrently
			t.Errorf("detached %d times before the wait, want once", downstream.detached)
		}
		unblock()
		x := <-done
		downstream.detached = 0
		for range 5 { // the first exchange finds all connections busy and makes the pool grow
			y := newExchange()
			y.Downstream = downstream
			if err := c.Serve(context.Background(), y); err != nil {
				t.Fatal(err)
			}
			defer finish(y)
		}
		finish(x)
		if downstream.detached != 0 {
			t.Errorf("detached %d times with a connection open, want never", downstream.detached)
		}
	})
}

func TestMultiplexServeDoesNotAllocate(t *testing.T) {
	for _, mode := range []config.PoolMode{config.Multiplex, config.Bind} {
		cfg := muxCluster(2, "a", "b")
		cfg.Pool.Mode = mode
		cfg.CircuitBreakers = config.CircuitBreakers{MaxConnections: 100, MaxPendingRequests: 100, MaxRequests: 100}
		_, c := newFakeMuxConnector().newTestCluster(t, cfg)
		x := newExchange()
		x.Meta.Conn = &protocol.ConnMeta{}
		wantNoAllocs(t, string(mode), c, x)
	}
}

func benchmarkMultiplex(b *testing.B, serve func(b *testing.B, c *Cluster)) {
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

func BenchmarkMultiplexServe(b *testing.B) {
	benchmarkMultiplex(b, func(b *testing.B, c *Cluster) {
		picker := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
		ctx := context.Background()
		x := newExchange()
		for b.Loop() {
			x.Record.Attempts = x.Record.Attempts[:0]
			if err := x.Serve(ctx, picker); err != nil {
				b.Fatal(err)
			}
			x.ResetResponse()
		}
	})
}

func BenchmarkMultiplexServeParallel(b *testing.B) {
	benchmarkMultiplex(b, func(b *testing.B, c *Cluster) {
		b.RunParallel(func(pb *testing.PB) {
			picker := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
			ctx := context.Background()
			x := newExchange()
			for pb.Next() {
				x.Record.Attempts = x.Record.Attempts[:0]
				if err := x.Serve(ctx, picker); err != nil {
					b.Error(err)
					return
				}
				x.ResetResponse()
			}
		})
	})
}
