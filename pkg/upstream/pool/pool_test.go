package pool

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/breaker"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/tasks"
)

// fakeConnector opens connections that respond immediately. As the Observer of the pool, it counts
// closed connections.
type fakeConnector struct {
	multiplexed bool
	conns       []*fakeConn
	closed      atomic.Int64
}

func (f *fakeConnector) Multiplexed() bool                            { return f.multiplexed }
func (f *fakeConnector) ForDownstream(*protocol.ConnMeta) Connector   { return f }
func (f *fakeConnector) ForHostname(config.AutoSNI, string) Connector { return f }

func (f *fakeConnector) Connect(_ context.Context, _ time.Time, released func(bool)) (Connection, error) {
	c := &fakeConn{released: released}
	f.conns = append(f.conns, c)
	return c, nil
}

func (*fakeConnector) Connected()          {}
func (*fakeConnector) ConnectFailed(error) {}
func (*fakeConnector) Alive()              {}

func (f *fakeConnector) Count(e Event) {
	if e == ConnectionClosed {
		f.closed.Add(1)
	}
}

// fakeConn is a connection of fakeConnector.
type fakeConn struct {
	unusable atomic.Bool
	released func(bool)
}

func (c *fakeConn) Start(_ context.Context, x *protocol.Exchange) error {
	x.Response.Status, x.Response.Body = 200, &fakeBody{c: c}
	return nil
}

func (c *fakeConn) Usable(time.Duration) bool { return !c.unusable.Load() }
func (*fakeConn) Close() error                { return nil }

// fakeBody is a response body that releases its connection.
type fakeBody struct {
	protocol.StringBody
	c *fakeConn
}

func (b *fakeBody) Close() error { b.c.released(true); return nil }

// newTestPool returns a pool that connects with f. The test closes it.
func newTestPool(f *fakeConnector, cfg *config.Cluster) Pool {
	return New(testOptions(f, cfg), cfg.Pool.Mode, false)
}

// testOptions returns the options of a pool that connects with f.
func testOptions(f *fakeConnector, cfg *config.Cluster) Options {
	current := new(atomic.Pointer[config.Cluster])
	current.Store(cfg)
	b := new(breaker.Breaker)
	b.Init(breaker.Options{
		Cluster:   "web",
		Config:    current,
		OnLimit:   func(metrics.Limit) {},
		EvictIdle: func() breaker.Evicted { return nil },
	})
	protocol := config.HTTP1
	if f.multiplexed {
		protocol = config.HTTP2
	}
	return Options{
		Address:   "a",
		Protocol:  protocol,
		Connector: f,
		Config:    current,
		Breaker:   b,
		Health:    new(hosthealth.State),
		Load:      new(balance.Load),
		Observer:  f,
		Tasks:     tasks.New(nil),
	}
}

// startExchange sends an exchange of a downstream connection (nil: none) and leaves it in flight.
func startExchange(t testing.TB, p Pool, conn *protocol.ConnMeta) *protocol.Exchange {
	t.Helper()
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Meta.Conn = "GET", conn
	if err := x.Serve(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	return x
}

// serve sends an exchange and finishes it.
func serve(t testing.TB, p Pool) { startExchange(t, p, nil).ResetResponse() }

// advanceClock advances fake time by d and waits until all other goroutines are blocked.
//
//arch:clock called in bubbles of testing/synctest only
func advanceClock(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestNoTimerWithoutConnections verifies that a pool has a timer only while it has connections that
// can expire.
func TestNoTimerWithoutConnections(t *testing.T) {
	for _, multiplexed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeConnector{multiplexed: multiplexed}
			p := newTestPool(f, &config.Cluster{IdleTimeout: time.Second})
			defer p.Close()
			armed := func() bool {
				switch p := p.(type) {
				case *pingPongPool:
					p.mu.Lock()
					defer p.mu.Unlock()
					return p.sweep.armed
				case *multiplexPool:
					p.mu.Lock()
					defer p.mu.Unlock()
					return p.sweep.armed
				}
				t.Fatalf("the pool is a %T", p)
				return false
			}
			for range 2 {
				serve(t, p)
				if !armed() {
					t.Errorf("multiplexed %v: the sweep timer is not set although there is a connection", multiplexed)
				}
				advanceClock(10 * time.Second)
				if armed() || f.closed.Load() != int64(len(f.conns)) {
					t.Errorf("multiplexed %v: after the idle timeout, the sweep timer is set or a connection is open", multiplexed)
				}
			}
		})
	}
}

func TestSweepKeepsOrderOfIdleConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(fakeConnector)
		p := newTestPool(f, new(config.Cluster)).(*pingPongPool)
		defer p.Close()
		var exchanges []*protocol.Exchange
		for range 5 {
			exchanges = append(exchanges, startExchange(t, p, nil))
		}
		for _, x := range exchanges {
			x.ResetResponse()
			advanceClock(time.Millisecond)
		}
		for _, i := range []int{0, 2, 3} {
			f.conns[i].unusable.Store(true)
		}
		advanceClock(maxSweepInterval)
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.idle) != 2 || p.idle[0].conn != Connection(f.conns[1]) || p.idle[1].conn != Connection(f.conns[4]) {
			t.Error("the sweep did not keep exactly the usable connections, in their order")
		}
	})
}

// fakeDownstream is a downstream connection that the test ends.
type fakeDownstream struct{ onClose []func() }

func (*fakeDownstream) Shed()                  {}
func (*fakeDownstream) ListenerDraining() bool { return false }
func (d *fakeDownstream) OnClose(f func()) (stop func()) {
	d.onClose = append(d.onClose, f)
	return func() {}
}

func TestBindPoolDropsClosedDownstreamConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeConnector{multiplexed: true}
		p := newTestPool(f, &config.Cluster{Pool: config.Pool{Mode: config.Bind}}).(*bindPool)
		defer p.Close()
		d := new(fakeDownstream)
		startExchange(t, p, &protocol.ConnMeta{DownstreamConn: d}).ResetResponse()
		if len(p.entries) != 1 || len(d.onClose) != 1 {
			t.Fatalf("%d downstream connections are kept, want 1", len(p.entries))
		}
		d.onClose[0]()
		if len(p.entries) != 0 || f.closed.Load() != 1 {
			t.Errorf("%d downstream connections are kept and %d connections are closed, want 0 and 1", len(p.entries), f.closed.Load())
		}
	})
}

// TestEnterLeastBusySkipsUnusableConn verifies that enterLeastBusy returns the least busy usable
// connection, wherever the search starts and whatever the load of an unusable connection.
func TestEnterLeastBusySkipsUnusableConn(t *testing.T) {
	for start := range uint32(3) {
		for unusable := range 3 {
			for _, load := range [...]int64{1, 5} {
				p := &multiplexPool{singleConn: true}
				p.searchStart.Store(start)
				var conns []*multiplexConn
				for i := range 3 {
					conn := &fakeConn{}
					conn.unusable.Store(i == unusable)
					c := &multiplexConn{pool: p, conn: conn}
					c.load.Store(int64(3 + i))
					conns = append(conns, c)
				}
				p.active.Store(&conns)
				conns[unusable].load.Store(load)
				want := conns[0]
				if unusable == 0 {
					want = conns[1]
				}
				before := want.load.Load()
				if got := p.enterLeastBusy(); got != want || want.load.Load() != before+1 {
					t.Errorf("search start %d, unusable connection %d with %d exchanges: want the least busy usable connection", start, unusable, load)
				}
			}
		}
	}
}

func TestPutIdleAtIndex(t *testing.T) {
	p := newTestPool(new(fakeConnector), new(config.Cluster)).(*pingPongPool)
	defer p.Close()
	serve(t, p)
	middle := p.popIdle()
	first, last := &pingPongConn{pool: p, conn: middle.conn}, &pingPongConn{pool: p, conn: middle.conn}
	p.tryKeepIdle(middle)
	p.putIdleAt([]*pingPongConn{first}, 0)
	p.putIdleAt([]*pingPongConn{last}, 9)
	if want := []*pingPongConn{first, middle, last}; !slices.Equal(p.idle, want) {
		t.Errorf("idle = %v, want %v", p.idle, want)
	}
	p.popIdle()
	p.EvictIdle()
}

// BenchmarkSweep measures a sweep of idle connections, which must take time in proportion to their
// number.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newTestPool(new(fakeConnector), new(config.Cluster)).(*pingPongPool)
			serve(b, p)
			first := p.popIdle()
			conns := make([]*pingPongConn, n)
			for i := range conns {
				conns[i] = &pingPongConn{pool: p, conn: first.conn}
			}
			p.putIdleAt(conns, 0)
			for b.Loop() {
				p.checkIdle(time.Hour)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/connection")
			p.mu.Lock()
			p.idle = nil
			p.mu.Unlock()
			first.discard()
		})
	}
}
