package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// serialConnector is a network of hosts whose connections carry one exchange at a time. The test
// can block its connects.
type serialConnector struct{ *fakeMuxConnector }

func (serialConnector) Multiplexed() bool { return false }

// WithAddrs implements ProxyProtocolConnector.
func (s serialConnector) WithAddrs(_, _ netip.AddrPort) Connector { return s }

// poolKind is a kind of pool with the path of exchanges to it.
type poolKind struct {
	name    string
	cluster func() *config.Cluster
	single  bool // the protocol carries one exchange at a time
	// maxConns is the maximum number of concurrent connects for many exchanges.
	maxConns int
	// perDownstream is true if each exchange has its own downstream connection, which ends with it.
	perDownstream bool
	to            string // original destination
}

func poolKinds() []poolKind {
	const limit = config.DefaultMaxConnecting
	ping := func() *config.Cluster { return clusterWithMode(config.PingPong, "a") }
	return []poolKind{
		{name: "ping-pong, HTTP/1", cluster: func() *config.Cluster { return cluster("web", "a") }, single: true, maxConns: limit},
		{name: "ping-pong, RPC", cluster: ping, maxConns: limit},
		{name: "multiplex", cluster: func() *config.Cluster { return muxCluster(4, "a") }, maxConns: 1},
		{name: "multiplex, one exchange per connection", cluster: func() *config.Cluster {
			c := muxCluster(1, "a")
			c.Pool.MaxRPCRequests = 1
			return c
		}, maxConns: limit},
		{name: "bind, RPC", cluster: func() *config.Cluster { return clusterWithMode(config.Bind, "a") }, maxConns: limit, perDownstream: true},
		{name: "bind, HTTP/1 with the PROXY protocol", cluster: func() *config.Cluster {
			c := clusterWithMode(config.Bind, "a")
			c.ProxyProtocol = 1
			return c
		}, single: true, maxConns: limit, perDownstream: true},
		{name: "original destination", cluster: func() *config.Cluster { return originalDstCluster() }, single: true, maxConns: limit, to: "198.51.100.7:80"},
	}
}

// host returns the host that serves the exchanges of this kind.
func (k *poolKind) host() string {
	if k.to != "" {
		return k.to
	}
	return "a"
}

// eachPool calls test for each kind of pool, with the hosts of a fake network.
func eachPool(t *testing.T, change func(*config.Cluster), test func(t *testing.T, k *poolKind, n *fakeMuxConnector, s *Set, c *Cluster)) {
	t.Helper()
	for _, k := range poolKinds() {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, cfg := newFakeMuxConnector(), k.cluster()
				if change != nil {
					change(cfg)
				}
				s := newTestSet(t, &n.fakeConnector, func(o *Options) {
					o.Connectors[config.HTTP1] = n
					if k.single {
						o.Connectors[config.HTTP1] = serialConnector{n}
					}
				})
				apply(t, s, cfg)
				defer s.Close()
				test(t, &k, n, s, s.Get(cfg.Name))
			})
		})
	}
}

// cancelable is an exchange that the test can cancel.
type cancelable struct {
	x      *protocol.Exchange
	cancel context.CancelFunc
	down   *fakeDownstreamConn
	done   chan protocol.Reason // receives once
}

// start starts an exchange.
func (k *poolKind) start(c *Cluster, down *fakeDownstreamConn, x *protocol.Exchange) *cancelable {
	a := &cancelable{x: x, down: down, done: make(chan protocol.Reason, 1)}
	if k.to != "" {
		x.Meta.Conn = exchangeTo(k.to).Meta.Conn
	} else {
		x.Meta.Conn = &down.meta
	}
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(down)
	go func() { a.done <- protocol.ReasonOf(c.Serve(ctx, x)) }()
	return a
}

// begin starts n exchanges one after the other. Each waits before the next one starts.
func (k *poolKind) begin(t *testing.T, c *Cluster, n int) []*cancelable {
	t.Helper()
	list := make([]*cancelable, n)
	down := newFakeDownstreamConn()
	t.Cleanup(down.end)
	for i := range list {
		if k.perDownstream {
			down = newFakeDownstreamConn()
			t.Cleanup(down.end)
		}
		list[i] = k.start(c, down, get())
		synctest.Wait()
	}
	return list
}

// drop cancels the exchange and ends its own downstream connection, if it has one.
func (k *poolKind) drop(a *cancelable) {
	a.cancel()
	if k.perDownstream {
		a.down.end()
	}
}

// TestCanceledExchangesDoNotDial verifies that clients that open and cancel requests cannot make
// Weft open more than Pool.MaxConnecting connections concurrently, or a connection for a canceled
// request.
func TestCanceledExchangesDoNotDial(t *testing.T) {
	const waves, each = 5, 100
	eachPool(t, nil, func(t *testing.T, k *poolKind, n *fakeMuxConnector, s *Set, c *Cluster) {
		open := n.holdConnects(k.host())
		for range waves {
			list := k.begin(t, c, each)
			if got := c.breakers[0].Counts().Pending; got != each {
				t.Errorf("%d exchanges are pending, want %d", got, each)
			}
			for _, a := range list {
				k.drop(a)
			}
			for _, a := range list {
				if why := <-a.done; why != protocol.ReasonDownstreamDisconnect {
					t.Fatalf("a canceled exchange ended with %v, want downstream_gone", why)
				}
			}
			synctest.Wait()
			if c.InFlight() != 0 || c.breakers[0].Counts().Waiting != 0 {
				t.Fatalf("%d exchanges and %d connects still wait, want none", c.InFlight(), c.breakers[0].Counts().Waiting)
			}
		}
		if n.maxConnecting > k.maxConns {
			t.Errorf("%d concurrent connects, want at most %d", n.maxConnecting, k.maxConns)
		}
		// A bound connect ends with its downstream connection, and then the next one begins.
		if dials := len(n.dialed()); !k.perDownstream && dials > k.maxConns {
			t.Errorf("%d canceled exchanges caused %d connects, want at most %d", waves*each, dials, k.maxConns)
		}
		open()
		synctest.Wait()
		idle := n.open()
		if idle > k.maxConns {
			t.Errorf("%d connections were kept, want at most %d", idle, k.maxConns)
		}
		if k.perDownstream {
			return // each downstream connection has its own connections
		}
		for range 10 {
			for _, a := range k.begin(t, c, 1) {
				if why := <-a.done; why != protocol.ReasonNone {
					t.Fatalf("the next exchange ended with %v, want success", why)
				}
				finish(a.x)
			}
		}
		if more := n.dialed(); len(more) > 0 && idle > 0 && c.Config().Pool.MaxRPCRequests == 0 {
			t.Errorf("the next exchanges opened %d connections although %d were idle", len(more), idle)
		}
	})
}

// canceledDownstream is a client that has already disconnected.
type canceledDownstream struct{ fakeDownstream }

func (*canceledDownstream) Canceled() bool { return true }

// TestCanceledOnArrivalDoesNotDial verifies that no connection is opened for an exchange whose
// client or context has ended before it starts.
func TestCanceledOnArrivalDoesNotDial(t *testing.T) {
	eachPool(t, nil, func(t *testing.T, k *poolKind, n *fakeMuxConnector, _ *Set, c *Cluster) {
		down := newFakeDownstreamConn()
		defer down.end()
		x := get()
		x.Downstream = &canceledDownstream{}
		if why := <-k.start(c, down, x).done; why != protocol.ReasonDownstreamDisconnect {
			t.Errorf("the exchange of a disconnected client ended with %v, want downstream_gone", why)
		}
		over := newFakeDownstreamConn()
		over.end()
		if why := <-k.start(c, over, get()).done; why != protocol.ReasonDownstreamDisconnect {
			t.Errorf("the exchange with a canceled context ended with %v, want downstream_gone", why)
		}
		synctest.Wait()
		if dials := n.dialed(); len(dials) != 0 {
			t.Errorf("%d connections were opened, want none", len(dials))
		}
		if c.InFlight() != 0 {
			t.Errorf("%d exchanges are counted, want 0", c.InFlight())
		}
	})
}

// TestConnectsAreBounded verifies that at most Pool.MaxConnecting connects run concurrently for
// many pending exchanges, and that all are served when the host accepts.
func TestConnectsAreBounded(t *testing.T) {
	const many, limit = 200, 7
	eachPool(t, func(c *config.Cluster) { c.Pool.MaxConnecting = limit }, func(t *testing.T, k *poolKind, n *fakeMuxConnector, s *Set, c *Cluster) {
		open := n.holdConnects(k.host())
		list := k.begin(t, c, many)
		if dials := len(n.dialed()); dials > limit || dials == 0 {
			t.Errorf("%d concurrent connects, want 1 to %d", dials, limit)
		}
		open()
		for i, a := range list {
			if why := <-a.done; why != protocol.ReasonNone {
				t.Fatalf("exchange %d ended with %v, want success", i, why)
			}
			finish(a.x)
		}
		synctest.Wait()
		if c.InFlight() != 0 {
			t.Errorf("%d exchanges are counted after all have ended, want 0", c.InFlight())
		}
	})
}

// TestWaitersOfAPoolAreServedInOrder verifies that pending exchanges are served in order of
// arrival, whichever connection is ready first, and if other exchanges are canceled meanwhile.
func TestWaitersOfAPoolAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := poolKinds()[0]
		cfg := k.cluster()
		cfg.Pool.MaxConnecting, cfg.CircuitBreakers.MaxConnections = 2, 2
		n := newFakeMuxConnector()
		s := newTestSet(t, &n.fakeConnector, func(o *Options) { o.Connectors[config.HTTP1] = serialConnector{n} })
		apply(t, s, cfg)
		defer s.Close()
		c := s.Get(cfg.Name)
		open := n.holdConnects("a")
		list := k.begin(t, c, 10)
		for _, i := range []int{0, 3, 4} {
			k.drop(list[i])
			<-list[i].done
		}
		synctest.Wait()
		open()
		synctest.Wait()
		served := func() (now []int) {
			for i, a := range list {
				select {
				case why := <-a.done:
					if why != protocol.ReasonNone {
						t.Errorf("exchange %d ended with %v, want success", i, why)
					}
					now = append(now, i)
				default:
				}
			}
			return now
		}
		if got := served(); fmt.Sprint(got) != "[1 2]" {
			t.Fatalf("exchanges served first = %v, want [1 2]", got)
		}
		for _, step := range []struct{ ends, next int }{{2, 5}, {1, 6}, {6, 7}, {5, 8}, {7, 9}} {
			finish(list[step.ends].x)
			synctest.Wait()
			if got := served(); fmt.Sprint(got) != fmt.Sprint([]int{step.next}) {
				t.Fatalf("after exchange %d ended: served %v, want [%d]", step.ends, got, step.next)
			}
		}
		finish(list[8].x)
		finish(list[9].x)
		if dials := n.dialed(); len(dials) != 2 {
			t.Errorf("%d connections were opened, want 2", len(dials))
		}
	})
}

// TestAFailedConnectStallsNobody verifies that a failed connect ends the wait of the exchanges that
// arrived before it, and of all exchanges while no connection to the host is open.
func TestAFailedConnectStallsNobody(t *testing.T) {
	eachPool(t, func(c *config.Cluster) { c.Pool.MaxConnecting, c.ConnectTimeout = 4, 3*time.Second }, func(t *testing.T, k *poolKind, n *fakeMuxConnector, s *Set, c *Cluster) {
		open := n.holdConnects(k.host()) // until connect_timeout
		defer open()
		began := time.Now()
		list := k.begin(t, c, 50)
		for i, a := range list {
			if why := <-a.done; why != protocol.ConnectTimeout {
				t.Fatalf("exchange %d ended with %v, want connect_timeout", i, why)
			}
		}
		// Pools in which a failed connect does not end all waits, and exchanges that wait for the
		// dial limit, take at most two connect timeouts.
		if took := time.Since(began); took > 2*c.Config().ConnectTimeout {
			t.Errorf("all exchanges failed after %v, want at most two connect timeouts", took)
		}
		synctest.Wait()
		wantCounts(t, s, 0, 0, 0)
	})
	eachPool(t, func(c *config.Cluster) { c.Pool.MaxConnecting = 4 }, func(t *testing.T, k *poolKind, n *fakeMuxConnector, s *Set, c *Cluster) {
		n.set(n.refuses, k.host(), true)
		for i, a := range k.begin(t, c, 50) {
			if why := <-a.done; why != protocol.ConnectFailure {
				t.Fatalf("exchange %d ended with %v, want connect_failure", i, why)
			}
		}
		n.set(n.refuses, k.host(), false)
		advanceClock(hosthealth.MaxBackoff)
		for _, a := range k.begin(t, c, 5) {
			if why := <-a.done; why != protocol.ReasonNone {
				t.Fatalf("after the host recovered, an exchange ended with %v", why)
			}
			finish(a.x)
		}
	})
}

// TestAHangingConnectDoesNotHoldUpTheNextExchange verifies that a connect that hangs does not delay
// the next exchange, for which a new connect may succeed.
func TestAHangingConnectDoesNotHoldUpTheNextExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeConnector()
		s, c := newTestCluster(t, w, cluster("web", "a"))
		defer s.Close()
		w.set(w.hangs, "a", true)
		hung := queue(c, 2*time.Second)
		w.set(w.hangs, "a", false)
		if got := (<-hung).Record.Reason; got != protocol.UpstreamTimeout {
			t.Errorf("the first exchange ended with %v, want upstream_timeout", got)
		}
		advanceClock(time.Second)
		began := time.Now()
		serveOne(t, c)
		if took := time.Since(began); took != 0 {
			t.Errorf("the next exchange took %v, want 0", took)
		}
	})
}

// TestFailedConnectFailsOnlyEarlierExchanges verifies that a failed connect fails only the
// exchanges that arrived before it, while the pool has working connections.
func TestFailedConnectFailsOnlyEarlierExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeConnector()
		cfg := cluster("web", "a")
		cfg.Pool.MaxConnecting = 1
		s, c := newTestCluster(t, w, cfg)
		defer s.Close()
		x := begin(t, c)
		w.set(w.hangs, "a", true)
		before := queue(c, 0)
		w.set(w.hangs, "a", false)
		after := queue(c, 0)
		if got := (<-before).Record.Reason; got != protocol.ConnectTimeout {
			t.Errorf("the earlier exchange ended with %v, want connect_timeout", got)
		}
		y := <-after
		if y.Record.Reason != protocol.ReasonNone {
			t.Fatalf("the later exchange ended with %v, want success", y.Record.Reason)
		}
		finish(x)
		finish(y)
		wantCounts(t, s, 0, 2, 2)
	})
}

// TestConnectsOfCarriedBytesAreBounded verifies that Pool.MaxConnecting bounds the concurrent
// connects for forwarded connections of tcp_proxy.
func TestConnectsOfCarriedBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, limit = 100, 7
		cfg := cluster("db", "a")
		cfg.Pool.MaxConnecting = limit
		cfg.CircuitBreakers.MaxPendingRequests = many
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		defer s.Close()
		open := make(chan struct{})
		started := make(chan int, many+1)
		serve := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				done <- c.ForwardWithoutAddrs(ctx, 1, func(ctx context.Context, _ *Host, _ time.Time) (func() error, error) {
					started <- 1
					select {
					case <-open:
						return func() error { return nil }, nil
					case <-ctx.Done():
						return nil, protocol.NewFault(protocol.ReasonDownstreamDisconnect, ctx.Err())
					}
				})
			}()
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancel(context.Background())
		var first, second []chan error
		for range many / 2 {
			first = append(first, serve(ctx))
		}
		for range many / 2 {
			second = append(second, serve(context.Background()))
		}
		if err := <-serve(context.Background()); protocol.ReasonOf(err) != protocol.Overflow {
			t.Errorf("connection above max_pending_requests: %v, want an overflow", err)
		}
		if dialing := len(started); dialing != limit {
			t.Errorf("%d concurrent connects, want %d", dialing, limit)
		}
		cancel()
		for _, done := range first {
			if err := <-done; protocol.ReasonOf(err) != protocol.ReasonDownstreamDisconnect {
				t.Errorf("a canceled connection ended with %v, want downstream_gone", err)
			}
		}
		synctest.Wait()
		if dialed := len(started); dialed != 2*limit {
			t.Errorf("%d connects after %d connections were canceled, want %d", dialed, many/2, 2*limit)
		}
		close(open)
		for _, done := range second {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		wantNothing(t, c)
		if h := c.state.Load().hosts[0]; h.dialing.Load() != 0 || h.relayDials.Active() != 0 {
			t.Errorf("%d attempts and %d dials are counted, want 0", h.dialing.Load(), h.relayDials.Active())
		}
	})
}
