package xprotocol

import (
	"context"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestConnectionClosedAtLimitEnds verifies that a connection ends if Weft closes it before its
// reader waits at MaxInFlight. The reader then registers its hook with OnClose, which must call it
// immediately.
func TestConnectionClosedAtLimitEnds(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	proxy := newTestProxy(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		_ = x.Meta.Conn.DownstreamConn.(*network.Conn).Close()
		close(started)
		x.Detach()
		<-finish
		return protocol.NewFault(protocol.ReasonDenied, nil)
	}), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = 1 })
	p := proxy.dial()
	p.write(requestFrame(1, "x"))
	<-started
	time.AfterFunc(100*time.Millisecond, func() { close(finish) }) // by then the reader waits at the limit
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	drained := make(chan int, 1)
	go func() { drained <- proxy.ln.Drain(ctx) }()
	select {
	case forceClosed := <-drained:
		if forceClosed != 0 {
			t.Errorf("%d connections were force-closed at the end of the drain, want none", forceClosed)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the drain does not end: the connection's goroutine is stuck")
	}
}

// TestCloseHookMayUseConnection verifies that close hooks run without the lock of the UpstreamConn.
func TestCloseHookMayUseConnection(t *testing.T) {
	proxy := newTestProxy(t, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), nil)
	u := proxy.client(startHost(t, func(p *peer) { p.read() }), nil)
	closed := make(chan struct{})
	u.conn.OnClose(func() {
		u.remove(1) // takes the lock
		close(closed)
	})
	go u.Close() // must return
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("Close holds the lock while it runs close hooks")
	}
}
