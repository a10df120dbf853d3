package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestConnectionsAreReused(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a"))
	for range 100 {
		serveOne(t, c)
	}
	if len(f.conns) != 1 {
		t.Errorf("%d connections for 100 exchanges in a row, want 1", len(f.conns))
	}
	wantCounts(t, s, 0, 1, 1)
}

func TestNewestIdleConnectionIsUsedFirst(t *testing.T) {
	f := newFakeConnector()
	_, c := newTestCluster(t, f, cluster("web", "a"))
	x, y := begin(t, c), begin(t, c)
	last := y.Response.Body.(*fakeBody).conn
	finish(x)
	finish(y)
	for range 3 {
		z := begin(t, c)
		if got := z.Response.Body.(*fakeBody).conn; got != last {
			t.Error("the exchange did not use the connection that became idle last")
		}
		finish(z)
	}
}

func TestMaxRequestsPerConnection(t *testing.T) {
	f := newFakeConnector()
	cfg := cluster("web", "a")
	cfg.MaxRequestsPerConn = 3
	s, c := newTestCluster(t, f, cfg)
	for range 9 {
		serveOne(t, c)
	}
	for i, conn := range f.conns {
		if n := conn.served.Load(); n != 3 {
			t.Errorf("connection %d carried %d exchanges, want 3", i, n)
		}
	}
	if len(f.conns) != 3 || f.numOpen() != 0 {
		t.Errorf("%d connections, %d open, want 3 and 0", len(f.conns), f.numOpen())
	}
	wantCounts(t, s, 0, 0, 0)
}

func TestNonReusableConnectionCloses(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a"))
	x := begin(t, c)
	f.conns[0].oneShot.Store(true)
	finish(x)
	if f.numOpen() != 0 {
		t.Error("the connection is still open")
	}
	wantCounts(t, s, 0, 0, 0)
}

func TestDeadIdleConnectionsAreNotUsed(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a"))
	x, y := begin(t, c), begin(t, c)
	finish(x)
	finish(y)
	f.conns[0].dead.Store(true)
	f.conns[1].dead.Store(true)
	serveOne(t, c)
	if f.conns[0].served.Load() != 1 || f.conns[1].served.Load() != 1 {
		t.Error("an exchange was sent on a connection that its host had closed")
	}
	wantCounts(t, s, 0, 1, 1)
}

// body is a request body that can be rewound only while rewindable is true.
type body struct {
	protocol.StringBody
	rewindable bool
}

func (b *body) Rewind() bool { return b.rewindable && b.StringBody.Rewind() }

// oneShotBody is a body that cannot be rewound.
type oneShotBody struct{ b protocol.StringBody }

func (b *oneShotBody) Read(p []byte) (int, error) { return b.b.Read(p) }
func (b *oneShotBody) Buffered() int              { return b.b.Buffered() }
func (b *oneShotBody) Close() error               { return nil }

// TestStaleConnection verifies which requests are resent when the host closes an idle
// connection while a request is sent on it.
func TestStaleConnection(t *testing.T) {
	tests := []struct {
		name   string
		method string
		body   protocol.Body
		resent bool // the request is resent and served
	}{
		{"GET", "GET", nil, true},
		{"HEAD", "HEAD", nil, true},
		{"OPTIONS", "OPTIONS", nil, true},
		{"TRACE", "TRACE", nil, true},
		{"DELETE", "DELETE", nil, true},
		{"PUT with a buffered body", "PUT", protocol.NewStringBody("held"), true},
		{"PUT with a body that cannot be rewound", "PUT", &body{rewindable: false}, false},
		{"PUT with a streaming body", "PUT", &oneShotBody{}, false},
		{"POST", "POST", nil, false},
		{"PATCH", "PATCH", nil, false},
		{"unknown method", "BREW", nil, false},
		{"methods are case-sensitive", "get", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeConnector()
			s, c := newTestCluster(t, f, cluster("web", "a"))
			serveOne(t, c)
			f.conns[0].stale.Store(true)
			x := newExchange()
			x.Request.Method, x.Request.Body = tt.method, tt.body
			err := c.Serve(context.Background(), x)
			if tt.resent {
				if err != nil {
					t.Fatalf("Serve = %v, want a response on a new connection", err)
				}
				wantList(t, "attempts", attempts(x), "a:200")
				finish(x)
				wantCounts(t, s, 0, 1, 1)
			} else {
				if protocol.ReasonOf(err) != protocol.UpstreamClosed {
					t.Fatalf("Serve = %v, want upstream_closed", err)
				}
				wantList(t, "attempts", attempts(x), "a:upstream_closed")
				wantCounts(t, s, 0, 0, 0)
			}
		})
	}
}

func TestStaleConnectionIsReplacedOnce(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a"))
	serveOne(t, c)
	f.respond = func(*fakeConn, *protocol.Exchange) error {
		return protocol.Faultf(protocol.UpstreamReset, "reset: %w", protocol.ErrNotReceived)
	}
	wantFault(t, c, protocol.UpstreamReset)
	if got := len(f.conns); got != 2 {
		t.Errorf("%d connections, want the idle one and a new one", got)
	}
	if got := s.Describe()[0].Resent; got != 1 {
		t.Errorf("%d requests were resent, want 1", got)
	}
	wantCounts(t, s, 0, 0, 0)
}

func TestFailureOnNewConnectionIsNotResent(t *testing.T) {
	f := newFakeConnector()
	f.respond = func(*fakeConn, *protocol.Exchange) error {
		return protocol.Faultf(protocol.UpstreamClosed, "closed")
	}
	_, c := newTestCluster(t, f, cluster("web", "a"))
	wantFault(t, c, protocol.UpstreamClosed)
	if len(f.conns) != 1 {
		t.Errorf("%d connections, want 1", len(f.conns))
	}
}

func TestOtherFailuresAreNotResent(t *testing.T) {
	f := newFakeConnector()
	_, c := newTestCluster(t, f, cluster("web", "a"))
	serveOne(t, c)
	f.respond = func(*fakeConn, *protocol.Exchange) error {
		return protocol.Faultf(protocol.UpstreamMalformed, "malformed response")
	}
	wantFault(t, c, protocol.UpstreamMalformed)
	if len(f.conns) != 1 {
		t.Errorf("%d connections, want 1", len(f.conns))
	}
}

// TestStaleConnectionToRefusingHost verifies that an idempotent request goes to another host if
// the host of its stale connection refuses a new one.
func TestStaleConnectionToRefusingHost(t *testing.T) {
	f := newFakeConnector()
	s, c := newTestCluster(t, f, cluster("web", "a", "b"))
	serveOne(t, c)
	serveOne(t, c)
	for _, conn := range f.conns {
		conn.stale.Store(conn.host == "a")
	}
	f.refuses["a"] = true
	for range 4 {
		if host := serveOne(t, c); host != "b" {
			t.Errorf("served by %s, want b", host)
		}
	}
	wantCounts(t, s, 0, 1, 1)
}

// TestStaleConnectionUsesNewConnection verifies that a request on a stale connection is resent on a
// new connection and not on another idle one.
func TestStaleConnectionUsesNewConnection(t *testing.T) {
	f := newFakeConnector()
	cfg := cluster("web", "a")
	cfg.CircuitBreakers.MaxConnections = 3
	s, c := newTestCluster(t, f, cfg)
	var exchanges []*protocol.Exchange
	for range 3 {
		exchanges = append(exchanges, begin(t, c))
	}
	for _, x := range exchanges {
		finish(x)
	}
	for _, conn := range f.conns {
		conn.stale.Store(true)
	}
	serveOne(t, c)
	if len(f.conns) != 4 {
		t.Errorf("%d connections, want the three idle ones and a new one", len(f.conns))
	}
	wantCounts(t, s, 0, 3, 3)
}

func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		cfg := cluster("web", "a")
		cfg.IdleTimeout = 8 * time.Second
		s, c := newTestCluster(t, f, cfg)
		defer s.Close()
		x, y := begin(t, c), begin(t, c)
		finish(x)
		advanceClock(3 * time.Second)
		finish(y)
		advanceClock(4999 * time.Millisecond)
		wantCounts(t, s, 0, 2, 2)
		advanceClock(2 * time.Second) // closed at most a quarter of the timeout later
		wantCounts(t, s, 0, 1, 1)
		advanceClock(3 * time.Second)
		wantCounts(t, s, 0, 0, 0)
		serveOne(t, c)
		advanceClock(20 * time.Second)
		wantCounts(t, s, 0, 0, 0)
		if f.numOpen() != 0 {
			t.Errorf("%d connections are open, want 0", f.numOpen())
		}
	})
}

func TestConnectionInUseIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster("web", "a")
		cfg.IdleTimeout = time.Second
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		defer s.Close()
		x := begin(t, c)
		advanceClock(time.Hour)
		wantCounts(t, s, 1, 1, 0)
		finish(x)
		wantCounts(t, s, 0, 1, 1)
	})
}

// TestSweepClosesConnectionsClosedByHost verifies that the sweep closes connections that the host
// has closed, so that they do not keep descriptors.
func TestSweepClosesConnectionsClosedByHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		cfg := cluster("web", "a")
		cfg.IdleTimeout = 0 // none
		s, c := newTestCluster(t, f, cfg)
		t.Cleanup(s.Close)
		var exchanges []*protocol.Exchange
		for range 5 {
			exchanges = append(exchanges, begin(t, c))
		}
		for _, x := range exchanges {
			finish(x)
			advanceClock(time.Millisecond)
		}
		for _, i := range []int{0, 2, 3} {
			f.conns[i].dead.Store(true)
		}
		advanceClock(maxSweepInterval)
		wantCounts(t, s, 0, 2, 2)
	})
}

func TestPingPongPoolClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		s := newTestSet(t, f)
		apply(t, s, cluster("web", "a"))
		c := s.Get("web")
		x, y := begin(t, c), begin(t, c)
		finish(x)
		s.Close()
		if f.numOpen() != 1 {
			t.Errorf("%d connections are open after Close, want only the one in use", f.numOpen())
		}
		finish(y)
		if f.numOpen() != 0 {
			t.Error("a connection is open after its last exchange")
		}
		wantFault(t, c, protocol.NoCluster)
	})
}

func TestServeDoesNotAllocate(t *testing.T) {
	for policy := range policies() {
		cfg := cluster("web", "a", "b", "c")
		cfg.LBPolicy = policy
		cfg.CircuitBreakers = config.CircuitBreakers{MaxConnections: 100, MaxPendingRequests: 100, MaxRequests: 100}
		_, c := newTestCluster(t, newFakeConnector(), cfg)
		wantNoAllocs(t, string(policy), c, newExchange())
	}
}

func BenchmarkServe(b *testing.B) {
	_, c := newTestCluster(b, newFakeConnector(), cluster("web", "a", "b"))
	picker := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
	ctx := context.Background()
	x := newExchange()
	b.ReportAllocs()
	for b.Loop() {
		x.Record.Attempts = x.Record.Attempts[:0]
		if err := x.Serve(ctx, picker); err != nil {
			b.Fatal(err)
		}
		x.ResetResponse()
	}
}

// BenchmarkServeWithHostDown measures exchanges in a cluster with one of two hosts down.
func BenchmarkServeWithHostDown(b *testing.B) {
	f := newFakeConnector()
	f.refuses["a"] = true
	_, c := newTestCluster(b, f, cluster("web", "a", "b"))
	ctx := context.Background()
	x := newExchange()
	b.ReportAllocs()
	for b.Loop() {
		x.Record.Attempts = x.Record.Attempts[:0]
		if err := c.Serve(ctx, x); err != nil {
			b.Fatal(err)
		}
		x.ResetResponse()
	}
}
