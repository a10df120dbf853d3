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

// pingPongConnector is a network of hosts whose connections carry one exchange at a time. The test
// can block connects.
type pingPongConnector struct{ *fakeMuxConnector }

func (pingPongConnector) Multiplexed() bool { return false }

// WithAddrs implements ProxyProtocolConnector.
func (s pingPongConnector) WithAddrs(_, _ netip.AddrPort) Connector { return s }

// poolCase is a pool mode and protocol with which a test runs.
type poolCase struct {
	name    string
	cluster func() *config.Cluster
	single  bool // the protocol carries one exchange at a time
	// maxConns is the maximum number of concurrent connects for many exchanges.
	maxConns int
	// perDownstream reports that each exchange has its own downstream connection, which ends with
	// it.
	perDownstream bool
	dst           string // original destination; "": none
}

func poolCases() []poolCase {
	const limit = config.DefaultMaxConnecting
	ping := func() *config.Cluster { return clusterWithMode(config.PingPong, "a") }
	return []poolCase{
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
		{name: "original destination", cluster: func() *config.Cluster { return originalDstCluster() }, single: true, maxConns: limit, dst: "198.51.100.7:80"},
	}
}

// host returns the host that serves the exchanges.
func (tc *poolCase) host() string {
	if tc.dst != "" {
		return tc.dst
	}
	return "a"
}

// eachPool runs test with each pool case, with the hosts of a fake network.
func eachPool(t *testing.T, change func(*config.Cluster), test func(t *testing.T, tc *poolCase, f *fakeMuxConnector, s *Set, c *Cluster)) {
	t.Helper()
	for _, tc := range poolCases() {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, cfg := newFakeMuxConnector(), tc.cluster()
				if change != nil {
					change(cfg)
				}
				s := newTestSet(t, &f.fakeConnector, func(o *Options) {
					o.Connectors[config.HTTP1] = f
					if tc.single {
						o.Connectors[config.HTTP1] = pingPongConnector{f}
					}
				})
				apply(t, s, cfg)
				defer s.Close()
				test(t, &tc, f, s, s.Get(cfg.Name))
			})
		})
	}
}

// cancelableExchange is an exchange that the test can cancel.
type cancelableExchange struct {
	x          *protocol.Exchange
	cancel     context.CancelFunc
	downstream *fakeDownstreamConn
	done       chan protocol.Reason // receives the reason of the end
}

// start starts an exchange.
func (tc *poolCase) start(c *Cluster, downstream *fakeDownstreamConn, x *protocol.Exchange) *cancelableExchange {
	e := &cancelableExchange{x: x, downstream: downstream, done: make(chan protocol.Reason, 1)}
	if tc.dst != "" {
		x.Meta.Conn = exchangeTo(tc.dst).Meta.Conn
	} else {
		x.Meta.Conn = &downstream.meta
	}
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(downstream)
	go func() { e.done <- protocol.ReasonOf(c.Serve(ctx, x)) }()
	return e
}

// begin starts n exchanges one after the other. Each waits before the next one starts.
func (tc *poolCase) begin(t *testing.T, c *Cluster, n int) []*cancelableExchange {
	t.Helper()
	list := make([]*cancelableExchange, n)
	downstream := newFakeDownstreamConn()
	t.Cleanup(downstream.end)
	for i := range list {
		if tc.perDownstream {
			downstream = newFakeDownstreamConn()
			t.Cleanup(downstream.end)
		}
		list[i] = tc.start(c, downstream, newExchange())
		synctest.Wait()
	}
	return list
}

// drop cancels the exchange and ends its own downstream connection, if it has one.
func (tc *poolCase) drop(e *cancelableExchange) {
	e.cancel()
	if tc.perDownstream {
		e.downstream.end()
	}
}

// TestCanceledExchangesDoNotDial verifies that clients that open and cancel requests cannot make
// Weft open more than Pool.MaxConnecting connections concurrently, or a connection for a canceled
// request.
func TestCanceledExchangesDoNotDial(t *testing.T) {
	const waves, each = 5, 100
	eachPool(t, nil, func(t *testing.T, tc *poolCase, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects(tc.host())
		for range waves {
			exchanges := tc.begin(t, c, each)
			if got := c.breakers[0].Counts().Pending; got != each {
				t.Errorf("%d exchanges are pending, want %d", got, each)
			}
			for _, e := range exchanges {
				tc.drop(e)
			}
			for _, e := range exchanges {
				if reason := <-e.done; reason != protocol.ReasonDownstreamDisconnect {
					t.Fatalf("a canceled exchange ended with %v, want downstream_gone", reason)
				}
			}
			synctest.Wait()
			if c.InFlight() != 0 || c.breakers[0].Counts().Waiting != 0 {
				t.Fatalf("%d exchanges and %d connects still wait, want none", c.InFlight(), c.breakers[0].Counts().Waiting)
			}
		}
		if f.maxConnecting > tc.maxConns {
			t.Errorf("%d concurrent connects, want at most %d", f.maxConnecting, tc.maxConns)
		}
		// A bound connect ends with its downstream connection, and then the next one begins.
		if dials := len(f.dialed()); !tc.perDownstream && dials > tc.maxConns {
			t.Errorf("%d canceled exchanges caused %d connects, want at most %d", waves*each, dials, tc.maxConns)
		}
		unblock()
		synctest.Wait()
		idle := f.numOpen()
		if idle > tc.maxConns {
			t.Errorf("%d connections were kept, want at most %d", idle, tc.maxConns)
		}
		if tc.perDownstream {
			return // each downstream connection has its own connections
		}
		for range 10 {
			for _, e := range tc.begin(t, c, 1) {
				if reason := <-e.done; reason != protocol.ReasonNone {
					t.Fatalf("the next exchange ended with %v, want success", reason)
				}
				finish(e.x)
			}
		}
		if newDials := f.dialed(); len(newDials) > 0 && idle > 0 && c.Config().Pool.MaxRPCRequests == 0 {
			t.Errorf("the next exchanges opened %d connections although %d were idle", len(newDials), idle)
		}
	})
}

// canceledDownstream is a client that has already disconnected.
type canceledDownstream struct{ fakeDownstream }

func (*canceledDownstream) Canceled() bool { return true }

// TestCanceledOnArrivalDoesNotDial verifies that no connection is opened for an exchange whose
// client or context has ended before it starts.
func TestCanceledOnArrivalDoesNotDial(t *testing.T) {
	eachPool(t, nil, func(t *testing.T, tc *poolCase, f *fakeMuxConnector, _ *Set, c *Cluster) {
		downstream := newFakeDownstreamConn()
		defer downstream.end()
		x := newExchange()
		x.Downstream = &canceledDownstream{}
		if reason := <-tc.start(c, downstream, x).done; reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("the exchange of a disconnected client ended with %v, want downstream_gone", reason)
		}
		canceled := newFakeDownstreamConn()
		canceled.end()
		if reason := <-tc.start(c, canceled, newExchange()).done; reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("the exchange with a canceled context ended with %v, want downstream_gone", reason)
		}
		synctest.Wait()
		if dials := f.dialed(); len(dials) != 0 {
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
	const exchangeCount, limit = 200, 7
	eachPool(t, func(c *config.Cluster) { c.Pool.MaxConnecting = limit }, func(t *testing.T, tc *poolCase, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects(tc.host())
		list := tc.begin(t, c, exchangeCount)
		if dials := len(f.dialed()); dials > limit || dials == 0 {
			t.Errorf("%d concurrent connects, want 1 to %d", dials, limit)
		}
		unblock()
		for i, e := range list {
			if reason := <-e.done; reason != protocol.ReasonNone {
				t.Fatalf("exchange %d ended with %v, want success", i, reason)
			}
			finish(e.x)
		}
		synctest.Wait()
		if c.InFlight() != 0 {
			t.Errorf("%d exchanges are counted after all have ended, want 0", c.InFlight())
		}
	})
}

// TestPendingExchangesAreServedInOrder verifies that pending exchanges are served in order of
// arrival, whichever connection is ready first, even if other exchanges are canceled meanwhile.
func TestPendingExchangesAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tc := poolCases()[0]
		cfg := tc.cluster()
		cfg.Pool.MaxConnecting, cfg.CircuitBreakers.MaxConnections = 2, 2
		f := newFakeMuxConnector()
		s := newTestSet(t, &f.fakeConnector, func(o *Options) { o.Connectors[config.HTTP1] = pingPongConnector{f} })
		apply(t, s, cfg)
		defer s.Close()
		c := s.Get(cfg.Name)
		unblock := f.holdConnects("a")
		list := tc.begin(t, c, 10)
		for _, i := range []int{0, 3, 4} {
			tc.drop(list[i])
			<-list[i].done
		}
		synctest.Wait()
		unblock()
		synctest.Wait()
		served := func() (indexes []int) {
			for i, e := range list {
				select {
				case reason := <-e.done:
					if reason != protocol.ReasonNone {
						t.Errorf("exchange %d ended with %v, want success", i, reason)
					}
					indexes = append(indexes, i)
				default:
				}
			}
			return indexes
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
		if dials := f.dialed(); len(dials) != 2 {
			t.Errorf("%d connections were opened, want 2", len(dials))
		}
	})
}

// TestFailedConnectEndsWaits verifies that a failed connect ends the wait of the exchanges that
// arrived before it, and of all exchanges while no connection to the host is open.
func TestFailedConnectEndsWaits(t *testing.T) {
	eachPool(t, func(c *config.Cluster) { c.Pool.MaxConnecting, c.ConnectTimeout = 4, 3*time.Second }, func(t *testing.T, tc *poolCase, f *fakeMuxConnector, s *Set, c *Cluster) {
		unblock := f.holdConnects(tc.host()) // until connect_timeout
		defer unblock()
		start := time.Now()
		list := tc.begin(t, c, 50)
		for i, e := range list {
			if reason := <-e.done; reason != protocol.ConnectTimeout {
				t.Fatalf("exchange %d ended with %v, want connect_timeout", i, reason)
			}
		}
		// A second connect timeout passes in pools in which a failed connect does not end all
		// waits, and for exchanges that wait for the dial limit.
		if took := time.Since(start); took > 2*c.Config().ConnectTimeout {
			t.Errorf("all exchanges failed after %v, want at most two connect timeouts", took)
		}
		synctest.Wait()
		wantCounts(t, s, 0, 0, 0)
	})
	eachPool(t, func(c *config.Cluster) { c.Pool.MaxConnecting = 4 }, func(t *testing.T, tc *poolCase, f *fakeMuxConnector, s *Set, c *Cluster) {
		f.set(f.refuses, tc.host(), true)
		for i, e := range tc.begin(t, c, 50) {
			if reason := <-e.done; reason != protocol.ConnectFailure {
				t.Fatalf("exchange %d ended with %v, want connect_failure", i, reason)
			}
		}
		f.set(f.refuses, tc.host(), false)
		advanceClock(hosthealth.MaxBackoff)
		for _, e := range tc.begin(t, c, 5) {
			if reason := <-e.done; reason != protocol.ReasonNone {
				t.Fatalf("after the host recovered, an exchange ended with %v", reason)
			}
			finish(e.x)
		}
	})
}

// TestHangingConnectDoesNotDelayNextExchange verifies that a connect that hangs does not delay the
// next exchange, for which a new connect may succeed.
func TestHangingConnectDoesNotDelayNextExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s, c := newTestCluster(t, f, cluster("web", "a"))
		defer s.Close()
		f.set(f.hangs, "a", true)
		done := queue(c, 2*time.Second)
		f.set(f.hangs, "a", false)
		if got := (<-done).Record.Reason; got != protocol.UpstreamTimeout {
			t.Errorf("the first exchange ended with %v, want upstream_timeout", got)
		}
		advanceClock(time.Second)
		start := time.Now()
		serveOne(t, c)
		if took := time.Since(start); took != 0 {
			t.Errorf("the next exchange took %v, want 0", took)
		}
	})
}

// TestFailedConnectFailsOnlyEarlierExchanges verifies that a failed connect fails only the
// exchanges that arrived before it, while the pool has working connections.
func TestFailedConnectFailsOnlyEarlierExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		cfg := cluster("web", "a")
		cfg.Pool.MaxConnecting = 1
		s, c := newTestCluster(t, f, cfg)
		defer s.Close()
		x := begin(t, c)
		f.set(f.hangs, "a", true)
		earlier := queue(c, 0)
		f.set(f.hangs, "a", false)
		later := queue(c, 0)
		if got := (<-earlier).Record.Reason; got != protocol.ConnectTimeout {
			t.Errorf("the earlier exchange ended with %v, want connect_timeout", got)
		}
		y := <-later
		if y.Record.Reason != protocol.ReasonNone {
			t.Fatalf("the later exchange ended with %v, want success", y.Record.Reason)
		}
		finish(x)
		finish(y)
		wantCounts(t, s, 0, 2, 2)
	})
}

// TestForwardedConnectsAreBounded verifies that Pool.MaxConnecting bounds the concurrent connects
// for forwarded connections of tcp_proxy.
func TestForwardedConnectsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const connCount, limit = 100, 7
		cfg := cluster("db", "a")
		cfg.Pool.MaxConnecting = limit
		cfg.CircuitBreakers.MaxPendingRequests = connCount
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		defer s.Close()
		unblock := make(chan struct{})
		started := make(chan int, connCount+1)
		serve := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				done <- c.ForwardWithoutAddrs(ctx, 1, func(ctx context.Context, _ *Host, _ time.Time) (func() error, error) {
					started <- 1
					select {
					case <-unblock:
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
		var canceled, served []chan error
		for range connCount / 2 {
			canceled = append(canceled, serve(ctx))
		}
		for range connCount / 2 {
			served = append(served, serve(context.Background()))
		}
		if err := <-serve(context.Background()); protocol.ReasonOf(err) != protocol.Overflow {
			t.Errorf("connection above max_pending_requests: %v, want an overflow", err)
		}
		if dialing := len(started); dialing != limit {
			t.Errorf("%d concurrent connects, want %d", dialing, limit)
		}
		cancel()
		for _, done := range canceled {
			if err := <-done; protocol.ReasonOf(err) != protocol.ReasonDownstreamDisconnect {
				t.Errorf("a canceled connection ended with %v, want downstream_gone", err)
			}
		}
		synctest.Wait()
		if dialed := len(started); dialed != 2*limit {
			t.Errorf("%d connects after %d connections were canceled, want %d", dialed, connCount/2, 2*limit)
		}
		close(unblock)
		for _, done := range served {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		wantZeroCounts(t, c)
		if h := c.state.Load().hosts[0]; h.dialing.Load() != 0 || h.relayDials.Active() != 0 {
			t.Errorf("%d attempts and %d dials are counted, want 0", h.dialing.Load(), h.relayDials.Active())
		}
	})
}
