package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

func clusterWithMaxConnections(connections int, hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.CircuitBreakers.MaxConnections = connections
	return c
}

// queue starts an exchange that has to wait, and returns when the exchange waits. The channel
// receives the exchange at its end.
func queue(c *Cluster, timeout time.Duration) <-chan *protocol.Exchange {
	done := make(chan *protocol.Exchange, 1)
	go func() {
		x := newExchange()
		if timeout > 0 {
			x.Deadline = time.Now().Add(timeout)
		}
		x.Record.Reason = protocol.ReasonOf(c.Serve(context.Background(), x))
		done <- x
	}()
	synctest.Wait()
	return done
}

func TestConnectionGoesToOldestWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, clusterWithMaxConnections(1, "a"))
		defer s.Close()
		x := begin(t, c)
		var waiting []<-chan *protocol.Exchange
		for range 5 {
			waiting = append(waiting, queue(c, 0))
		}
		if n := s.Describe()[0].Pending; n != 5 {
			t.Errorf("%d exchanges are pending, want 5", n)
		}
		finish(x)
		for _, done := range waiting {
			synctest.Wait()
			select {
			case x = <-done:
			default:
				t.Fatal("the oldest waiter was not served")
			}
			finish(x)
		}
		synctest.Wait()
		if len(f.conns) != 1 {
			t.Errorf("%d connections, want 1", len(f.conns))
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestQueueIsFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), clusterWithMaxConnections(1, "a"))
		defer s.Close()
		x := begin(t, c)
		oldest := queue(c, 0)
		finish(x) // grants the connection to the oldest waiter before other goroutines run
		newest := queue(c, 0)
		x = <-oldest
		select {
		case <-newest:
			t.Fatal("the later exchange was served first")
		default:
		}
		finish(x)
		finish(<-newest)
	})
}

func TestMaxPendingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clusterWithMaxConnections(1, "a")
		cfg.CircuitBreakers.MaxPendingRequests = 2
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		defer s.Close()
		x := begin(t, c)
		first, second := queue(c, 0), queue(c, 0)
		wantFault(t, c, protocol.Overflow)
		finish(x)
		finish(<-first)
		finish(<-second)
		synctest.Wait()
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestConnectingIsPending verifies that exchanges that wait for a connect are pending.
func TestConnectingIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.hangs["a"] = true
		cfg := cluster("web", "a")
		cfg.CircuitBreakers.MaxPendingRequests = 1
		s, c := newTestCluster(t, f, cfg)
		defer s.Close()
		done := queue(c, 5*time.Second)
		wantFault(t, c, protocol.Overflow)
		if got := (<-done).Record.Reason; got != protocol.UpstreamTimeout {
			t.Errorf("the first exchange ended with %v, want upstream_timeout", got)
		}
		synctest.Wait()
		wantCounts(t, s, 0, 1, 0) // the connect belongs to the pool
		advanceClock(cfg.ConnectTimeout)
		wantCounts(t, s, 0, 0, 0)
	})
}

func TestWaitEndsAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), clusterWithMaxConnections(1, "a"))
		defer s.Close()
		x := begin(t, c)
		start := time.Now()
		y := <-queue(c, 3*time.Second)
		if y.Record.Reason != protocol.UpstreamTimeout || time.Since(start) != 3*time.Second {
			t.Errorf("the exchange ended with %v after %v, want upstream_timeout after 3s", y.Record.Reason, time.Since(start))
		}
		if n := c.breakers[0].Counts().Waiting; n != 0 {
			t.Errorf("%d connects wait for slots, want 0", n)
		}
		finish(x)
		wantCounts(t, s, 0, 1, 1)
	})
}

// fakeDownstream is a Downstream whose client the test can disconnect.
type fakeDownstream struct {
	mu           sync.Mutex
	onDisconnect func()
}

func (*fakeDownstream) SendInterim(int, *protocol.Header) error { return nil }

func (d *fakeDownstream) OnDisconnect(onDisconnect func()) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onDisconnect = onDisconnect
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.onDisconnect = nil
	}
}

func (d *fakeDownstream) disconnect() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onDisconnect()
}

func TestWaitEndsOnDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), clusterWithMaxConnections(1, "a"))
		defer s.Close()
		x := begin(t, c)
		ctx, cancel := context.WithCancel(context.Background())
		reasons := make(chan protocol.Reason, 2)
		downstream := &fakeDownstream{}
		go func() {
			y := newExchange()
			y.Downstream = downstream
			reasons <- protocol.ReasonOf(c.Serve(context.Background(), y))
		}()
		go func() { reasons <- protocol.ReasonOf(c.Serve(ctx, newExchange())) }()
		synctest.Wait()
		downstream.disconnect()
		cancel()
		for range 2 {
			if got := <-reasons; got != protocol.ReasonDownstreamDisconnect {
				t.Errorf("the exchange ended with %v, want downstream_gone", got)
			}
		}
		if downstream.onDisconnect != nil {
			t.Error("the OnDisconnect callback was not unregistered")
		}
		finish(x)
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestSlotOfClosedConnectionGoesToWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, clusterWithMaxConnections(1, "a"))
		defer s.Close()
		x := begin(t, c)
		done := queue(c, 0)
		f.conns[0].oneShot.Store(true)
		finish(x)
		finish(<-done)
		if len(f.conns) != 2 || f.numOpen() != 1 {
			t.Errorf("%d connections, %d open, want 2 and 1", len(f.conns), f.numOpen())
		}
	})
}

func TestSlotOfFailedConnectGoesToWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.hangs["a"], f.hangs["b"] = true, true
		s, c := newTestCluster(t, f, clusterWithMaxConnections(1, "a", "b"))
		defer s.Close()
		first := queue(c, time.Second)
		done := queue(c, 0) // for a slot, at the other host
		f.set(f.hangs, "a", false)
		f.set(f.hangs, "b", false)
		y := <-first
		if got := y.Record.Reason; got != protocol.UpstreamTimeout {
			t.Errorf("the first exchange ended with %v, want upstream_timeout", got)
		}
		x := <-done
		if x.Record.Reason != protocol.ReasonNone || x.Record.Host() == y.Record.Host() {
			t.Errorf("the other exchange ended at %s with %v, want success at the other host", x.Record.Host().Name(), x.Record.Reason)
		}
		finish(x)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestIdleConnectionIsEvictedForOtherHost verifies that an idle connection to one host does not
// block exchanges to another.
func TestIdleConnectionIsEvictedForOtherHost(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, clusterWithMaxConnections(1, "a", "b"))
	for range 10 {
		serveOne(t, c)
	}
	served := map[string]int{}
	for _, conn := range f.conns {
		served[conn.host] += int(conn.served.Load())
	}
	if served["a"] != 5 || served["b"] != 5 {
		t.Errorf("served = %v, want five each", served)
	}
	wantCounts(t, s, 0, 1, 1)
}

// TestSlotGoesToHostWithoutConnections verifies that a busy host does not starve a host without
// connections.
func TestSlotGoesToHostWithoutConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, clusterWithMaxConnections(2, "a", "b"))
		defer s.Close()
		f.refuses["b"] = true
		x, y := begin(t, c), begin(t, c) // both use a, because b is down
		advanceClock(hosthealth.MaxBackoff)
		f.set(f.refuses, "b", false)
		var waiting []<-chan *protocol.Exchange
		for range 6 { // round robin, with one recovery probe at b
			waiting = append(waiting, queue(c, time.Minute))
		}
		finish(x)
		finish(y)
		served := map[string]int{}
		for _, done := range waiting {
			z := <-done
			if z.Record.Reason != protocol.ReasonNone {
				t.Errorf("an exchange ended with %v, want success", z.Record.Reason)
				continue
			}
			served[z.Record.Host().Name()]++
			finish(z)
		}
		if served["b"] == 0 {
			t.Errorf("served = %v, want exchanges at b", served)
		}
		synctest.Wait()
		if d := s.Describe()[0]; d.Open > 2 || d.InFlight != 0 {
			t.Errorf("%d connections, %d in flight, want at most 2 and 0", d.Open, d.InFlight)
		}
	})
}

func TestRaisedLimitServesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), clusterWithMaxConnections(1, "a"))
		defer s.Close()
		x := begin(t, c)
		first, second := queue(c, 0), queue(c, 0)
		apply(t, s, clusterWithMaxConnections(3, "a"))
		synctest.Wait() // each has a connection
		finish(<-first)
		finish(<-second)
		finish(x)
		wantCounts(t, s, 0, 3, 3)
		apply(t, s, clusterWithMaxConnections(1, "a"))
		x, y, z := begin(t, c), begin(t, c), begin(t, c) // the connections are open
		finish(x)
		finish(y)
		finish(z)
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestWaiterOfRemovedClusterIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, clusterWithMaxConnections(1, "a"))
		defer s.Close()
		x := begin(t, c)
		done := queue(c, 0)
		apply(t, s)
		finish(x)
		y := <-done
		wantList(t, "attempts", attempts(y), "a:200")
		finish(y)
		if f.numOpen() != 0 {
			t.Errorf("%d connections are open, want 0", f.numOpen())
		}
	})
}

// TestSlotsUnderLoad verifies that under load, with exchanges that end randomly, each exchange is
// served, reset or times out, max_connections holds, and no counts are left.
func TestSlotsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, workers, each = 4, 40, 50
		f := newFakeConnector()
		s, c := newTestCluster(t, f, clusterWithMaxConnections(limit, "a", "b", "c"))
		defer s.Close()
		f.respond = func(conn *fakeConn, _ *protocol.Exchange) error {
			conn.oneShot.Store(rand.IntN(5) == 0)
			if rand.IntN(10) == 0 {
				return protocol.Faultf(protocol.UpstreamReset, "reset")
			}
			<-time.After(time.Duration(rand.IntN(5)) * time.Millisecond)
			return nil
		}
		var wg sync.WaitGroup
		for worker := range workers {
			wg.Go(func() {
				for range each {
					x := newExchange()
					x.Deadline = time.Now().Add(time.Duration(1+rand.IntN(200)) * time.Millisecond)
					err := c.Serve(context.Background(), x)
					switch protocol.ReasonOf(err) {
					case protocol.ReasonNone:
						if worker%2 == 0 {
							<-time.After(time.Duration(rand.IntN(3)) * time.Millisecond)
						}
						finish(x)
					case protocol.UpstreamReset, protocol.UpstreamTimeout:
					default:
						t.Errorf("Serve = %v; want nil, upstream_reset or upstream_timeout", err)
					}
					if n := c.breakers[0].Counts().Connections; n > limit {
						t.Errorf("%d connections are open, want at most %d", n, limit)
					}
				}
			})
		}
		wg.Wait()
		advanceClock(10 * time.Minute)
		wantCounts(t, s, 0, 0, 0)
		if n := c.breakers[0].Counts().Pending + c.breakers[0].Counts().Waiting; n != 0 {
			t.Errorf("%d waiters remain, want 0", n)
		}
		if f.numOpen() != 0 {
			t.Errorf("%d connections are open, want 0", f.numOpen())
		}
	})
}

func BenchmarkServeContended(b *testing.B) {
	for _, limit := range []int{0, 1} {
		b.Run(fmt.Sprintf("max_connections=%d", limit), func(b *testing.B) {
			_, c := newTestCluster(b, newFakeConnector(), clusterWithMaxConnections(limit, "a"))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				x := newExchange()
				for pb.Next() {
					x.Record.Attempts = x.Record.Attempts[:0]
					if err := c.Serve(context.Background(), x); err != nil {
						b.Error(err)
						return
					}
					x.ResetResponse()
				}
			})
		})
	}
}
