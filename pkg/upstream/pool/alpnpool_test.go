package pool

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// fakeNegotiator is a fakeConnector whose host chooses the protocol.
type fakeNegotiator struct {
	fakeConnector
	http1    bool // the host chooses HTTP/1.1
	failures atomic.Int64
	openConn []*fakeALPNConn
}

// fakeALPNConn is a connection of fakeNegotiator.
type fakeALPNConn struct {
	*fakeConn
	http1  bool
	closed bool
}

func (c *fakeALPNConn) Close() error { c.closed = true; return nil }

func (f *fakeNegotiator) ForDownstream(*protocol.ConnMeta) Connector   { return f }
func (f *fakeNegotiator) ForHostname(config.AutoSNI, string) Connector { return f }

func (f *fakeNegotiator) Negotiate(_ context.Context, _ time.Time, released func(bool)) (Connection, config.Protocol, error) {
	c := &fakeALPNConn{fakeConn: &fakeConn{released: released}, http1: f.http1}
	f.openConn = append(f.openConn, c)
	if f.http1 {
		return c, config.HTTP1, nil
	}
	return c, config.HTTP2, nil
}

func (f *fakeNegotiator) ConnectFailed(error) { f.failures.Add(1) }

func newALPNTestPool(f *fakeNegotiator, cfg *config.Cluster) Pool {
	o := testOptions(&f.fakeConnector, cfg)
	o.Protocol, o.Connector, o.Observer = config.HTTPByALPN, f, f
	return New(o, cfg.Pool.Mode, false)
}

func (f *fakeNegotiator) numOpen() (n int) {
	for _, c := range f.openConn {
		if !c.closed {
			n++
		}
	}
	return n
}

// TestALPNPool verifies that each connection serves requests in the protocol that its host chose, and
// that a choice of HTTP/1.1 costs no second connection and is no failure of the host.
func TestALPNPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNegotiator{http1: true}
		p := newALPNTestPool(f, &config.Cluster{IdleTimeout: time.Second})
		serve(t, p)
		serve(t, p)
		if len(f.openConn) != 1 || p.Stats() != (Stats{Open: 1, Idle: 1}) {
			t.Errorf("HTTP/1.1: %d connections, stats %+v, want one idle connection", len(f.openConn), p.Stats())
		}
		a, b := startExchange(t, p, nil), startExchange(t, p, nil)
		if len(f.openConn) != 2 {
			t.Errorf("HTTP/1.1: %d connections for two concurrent requests, want 2", len(f.openConn))
		}
		a.ResetResponse()
		b.ResetResponse()
		advanceClock(10 * time.Second)
		if n := f.numOpen(); n != 0 {
			t.Errorf("%d connections are open after the idle timeout, want 0", n)
		}

		f.http1 = false // the host was upgraded
		a, b = startExchange(t, p, nil), startExchange(t, p, nil)
		if len(f.openConn) != 3 || f.openConn[2].http1 {
			t.Errorf("HTTP/2: %d connections, want one more than the 2 of HTTP/1.1", len(f.openConn))
		}
		a.ResetResponse()
		b.ResetResponse()
		if n := f.failures.Load(); n != 0 {
			t.Errorf("%d failed connects, want 0", n)
		}
		p.Close()
		if n := f.numOpen(); n != 0 {
			t.Errorf("%d connections are open after the close of the pool, want 0", n)
		}
	})
}

// TestALPNPoolOfDownstreamConnections verifies that connections of one downstream connection never
// serve another, also if the host chose another protocol than expected.
func TestALPNPoolOfDownstreamConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNegotiator{http1: true}
		cfg := &config.Cluster{ProxyProtocol: 2}
		cfg.Pool.Mode = config.Bind
		p := newALPNTestPool(f, cfg)
		for _, conn := range []*protocol.ConnMeta{{}, {}} {
			startExchange(t, p, conn).ResetResponse()
		}
		if n := f.numOpen(); n != 2 {
			t.Errorf("%d connections are open for two downstream connections, want 2", n)
		}
		p.Close()
		if n := f.numOpen(); n != 0 {
			t.Errorf("%d connections are open after the close of the pool, want 0", n)
		}
	})
}

// TestMaxConnectionDuration verifies that a connection takes no requests after its maximum age, and
// that it closes soon after that, but not before its last request has ended.
func TestMaxConnectionDuration(t *testing.T) {
	for _, multiplexed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeConnector{multiplexed: multiplexed}
			p := newTestPool(f, &config.Cluster{HTTP: config.UpstreamHTTP{MaxConnectionDuration: time.Second}})
			defer p.Close()
			serve(t, p)
			advanceClock(900 * time.Millisecond)
			x := startExchange(t, p, nil)
			if len(f.conns) != 1 {
				t.Errorf("multiplexed %v: %d connections before the maximum age, want 1", multiplexed, len(f.conns))
			}
			advanceClock(time.Second)
			if n := f.closed.Load(); n != 0 {
				t.Errorf("multiplexed %v: the connection closed before its last request ended", multiplexed)
			}
			serve(t, p)
			if len(f.conns) != 2 {
				t.Errorf("multiplexed %v: %d connections after the maximum age, want 2", multiplexed, len(f.conns))
			}
			x.ResetResponse()
			if n := f.closed.Load(); n != 1 {
				t.Errorf("multiplexed %v: %d connections closed after the last request of the first one, want 1", multiplexed, n)
			}
			advanceClock(2 * time.Second)
			if n := f.closed.Load(); n != 2 {
				t.Errorf("multiplexed %v: %d connections closed, want both", multiplexed, n)
			}
		})
	}
}
