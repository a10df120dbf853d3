package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// clusterWithMode returns a cluster with this pool mode.
func clusterWithMode(mode config.PoolMode, hosts ...string) *config.Cluster {
	c := muxCluster(1, hosts...)
	c.Pool.Mode = mode
	return c
}

// fakeDownstreamConn is a downstream connection. Its context ends with the connection.
type fakeDownstreamConn struct {
	context.Context // ends with the connection
	end             context.CancelFunc
	meta            protocol.ConnMeta
}

func newFakeDownstreamConn() *fakeDownstreamConn {
	d := &fakeDownstreamConn{}
	d.Context, d.end = context.WithCancel(context.Background())
	return d
}

// begin is like the function begin, but the exchange arrives on d.
func (d *fakeDownstreamConn) begin(t testing.TB, c *Cluster) *protocol.Exchange {
	t.Helper()
	x := newExchange()
	x.Meta.Conn = &d.meta
	if err := c.Serve(d, x); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	return x
}

func TestBindPoolUsesOneConnPerDownstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.Bind, "a"))
		defer s.Close()
		d, e := newFakeDownstreamConn(), newFakeDownstreamConn()
		var exchanges []*protocol.Exchange
		for range 5 { // on each connection the first exchange waits for a connect, and the others share the connection
			exchanges = append(exchanges, d.begin(t, c), e.begin(t, c))
		}
		synctest.Wait()
		if got := len(f.list()); got != 2 {
			t.Fatalf("%d connections for 2 downstream connections, want 2", got)
		}
		for i, x := range exchanges {
			if want := f.list()[i%2]; connOf(x) != want {
				t.Errorf("exchange %d uses the connection of another downstream connection", i)
			}
		}
		wantCounts(t, s, 10, 2, 0)
		finishAll(exchanges)
		wantCounts(t, s, 0, 2, 2)

		d.end()
		synctest.Wait()
		if conn := f.list(); !conn[0].closed.Load() || conn[1].closed.Load() {
			t.Error("want only the connection of the remaining downstream connection open")
		}
		wantCounts(t, s, 0, 1, 1)
		e.end()
		synctest.Wait()
		wantCounts(t, s, 0, 0, 0)
	})
}

func TestBoundConnClosesAfterLastExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.Bind, "a"))
		defer s.Close()
		d := newFakeDownstreamConn()
		x, y := d.begin(t, c), d.begin(t, c)
		d.end()
		synctest.Wait()
		finish(x)
		if f.list()[0].closed.Load() {
			t.Error("the connection was closed before its last exchange")
		}
		finish(y)
		if !f.list()[0].closed.Load() {
			t.Error("the connection is open after its last exchange and its downstream connection ended")
		}
		wantZeroCounts(t, c)
	})
}

func TestBindPoolReplacesClosedConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.Bind, "a"))
		defer s.Close()
		d := newFakeDownstreamConn()
		defer d.end()
		finish(d.begin(t, c))
		f.list()[0].die()
		finish(d.begin(t, c))
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestIdleTimeoutOfBindPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.Bind, "a"))
		defer s.Close()
		d, e := newFakeDownstreamConn(), newFakeDownstreamConn()
		defer d.end()
		defer e.end()
		finish(d.begin(t, c))
		x := e.begin(t, c)
		advanceClock(2 * time.Minute)
		wantCounts(t, s, 1, 1, 0)
		finish(x)
		finish(d.begin(t, c))
		wantCounts(t, s, 0, 2, 2)
	})
}

// TestBindPoolEvictsIdleConnections verifies that an exchange that waits for a slot takes the slot
// of an idle bound connection.
func TestBindPoolEvictsIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		cfg := clusterWithMode(config.Bind, "a")
		cfg.CircuitBreakers.MaxConnections = 2
		s, c := f.newTestCluster(t, cfg)
		defer s.Close()
		done := make(chan time.Duration)
		start := time.Now()
		for range 10 {
			go func() {
				d := newFakeDownstreamConn()
				defer d.end()
				for range 5 {
					x := newExchange()
					x.Meta.Conn = &d.meta
					if err := c.Serve(d, x); err != nil {
						t.Errorf("Serve: %v", err)
						break
					}
					time.Sleep(10 * time.Millisecond)
					finish(x)
				}
				done <- time.Since(start)
			}()
		}
		for range 10 {
			if got := <-done; got > time.Second {
				t.Errorf("five requests took %v, want at most 1s: a request waited while a connection was idle", got)
			}
		}
		synctest.Wait()
		wantZeroCounts(t, c)
	})
}

func TestBindPoolClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.Bind, "a"))
		d, e := newFakeDownstreamConn(), newFakeDownstreamConn()
		defer d.end()
		defer e.end()
		finish(d.begin(t, c))
		x := e.begin(t, c)
		s.Close()
		if got := f.numOpen(); got != 1 {
			t.Errorf("%d connections are open after Close, want only the one in use", got)
		}
		finish(x)
		wantZeroCounts(t, c)
	})
}

func TestPingPongCarriesOneExchangeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.PingPong, "a"))
		defer s.Close()
		list := beginMany(t, c, 4)
		for i, conn := range f.list() {
			if got := conn.load.Load(); got != 1 {
				t.Errorf("connection %d carries %d exchanges, want 1", i, got)
			}
		}
		wantCounts(t, s, 4, 4, 0)
		finishAll(list)
		finishAll(beginMany(t, c, 4))
		wantCounts(t, s, 0, 4, 4)
	})
}

// TestReloadChangesPoolMode verifies that exchanges in flight complete on the old connections when
// a reload changes the pool mode.
func TestReloadChangesPoolMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.Multiplex, "a"))
		defer s.Close()
		d := newFakeDownstreamConn()
		defer d.end()
		x, y := d.begin(t, c), d.begin(t, c)
		pool := c.state.Load().hosts[0].pools.Load().pool
		apply(t, s, cluster("other"), clusterWithMode(config.Multiplex, "a", "b"))
		if c.state.Load().hosts[0].pools.Load().pool != pool {
			t.Error("a reload with the same mode replaced the pool")
		}
		apply(t, s, clusterWithMode(config.PingPong, "a"))
		oldConn := connOf(x)
		finish(x) // the old connection stays open until its last exchange ends
		x = d.begin(t, c)
		if connOf(x) == oldConn || oldConn.closed.Load() {
			t.Error("ping_pong: want a new connection, and the old one open with its exchange")
		}
		finish(y)
		if !oldConn.closed.Load() {
			t.Error("ping_pong: the old connection is open after its last exchange")
		}

		oldConn = connOf(x)
		apply(t, s, clusterWithMode(config.Bind, "a"))
		y, z := d.begin(t, c), d.begin(t, c)
		if connOf(y) != connOf(z) || connOf(y) == oldConn {
			t.Error("bind: want one new connection for both exchanges")
		}
		finishAll([]*protocol.Exchange{x, y, z})
		if !oldConn.closed.Load() {
			t.Error("bind: the old connection is open after its last exchange")
		}
		wantCounts(t, s, 0, 1, 1)

		apply(t, s, clusterWithMode(config.Multiplex, "a"))
		finish(d.begin(t, c))
		synctest.Wait()
		wantCounts(t, s, 0, 1, 1)
		if got := f.numOpen(); got != 1 {
			t.Errorf("%d connections are open, want 1", got)
		}
	})
}

// callbackCountingConn is a downstream connection that counts the registered OnClose callbacks.
type callbackCountingConn struct {
	protocol.DownstreamConn
	callbacks int
}

func (d *callbackCountingConn) OnClose(func()) (stop func()) {
	d.callbacks++
	return func() { d.callbacks-- }
}

// TestOpenDownstreamDropsClosedPools verifies that an open downstream connection does not retain
// the pools that reloads replaced.
func TestOpenDownstreamDropsClosedPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		s, c := f.newTestCluster(t, clusterWithMode(config.Bind, "a"))
		defer s.Close()
		conn := new(callbackCountingConn)
		d := newFakeDownstreamConn()
		d.meta.DownstreamConn = conn
		for i, host := range []string{"a", "b", "c"} {
			apply(t, s, clusterWithMode(config.Bind, host))
			finish(d.begin(t, c))
			if conn.callbacks != 1 {
				t.Fatalf("%d OnClose callbacks are registered after %d reloads, want 1", conn.callbacks, i)
			}
		}
		d.end()
	})
}

// TestBindPoolReportsRTT verifies that the status of a host includes the round-trip times of
// multiplexed connections that belong to one downstream connection each.
func TestBindPoolReportsRTT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMuxConnector()
		f.maxStreams = 10 // the connections report a round-trip time of 10 ms
		s, c := f.newTestCluster(t, clusterWithMode(config.Bind, "a"))
		defer s.Close()
		d := newFakeDownstreamConn()
		defer d.end()
		finish(d.begin(t, c))
		if got := s.Describe()[0].Hosts[0].RoundTrip; got != 10 {
			t.Errorf("RoundTrip = %v ms, want 10", got)
		}
	})
}
