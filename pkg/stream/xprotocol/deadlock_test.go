package xprotocol

import (
	"context"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestConnectionClosedAtLimitEnds verifies that a connection ends which Weft closes
// before its reader waits at MaxInFlight: OnClose then calls back immediately.
func TestConnectionClosedAtLimitEnds(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		_ = x.Meta.Conn.DownstreamConn.(*network.Conn).Close()
		close(started)
		x.Detach()
		<-finish
		return protocol.NewFault(protocol.ReasonDenied, nil)
	}), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = 1 })
	p := r.dial()
	p.write(requestFrame(1, "x"))
	<-started
	time.AfterFunc(100*time.Millisecond, func() { close(finish) }) // by then the reader waits, or it never will
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	drained := make(chan int, 1)
	go func() { drained <- r.ln.Drain(ctx) }()
	select {
	case forceClosed := <-drained:
		if forceClosed != 0 {
			t.Errorf("%d connections were force-closed at the end of the drain, want none", forceClosed)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the drain does not end: the connection's goroutine is stuck")
	}
}

// TestOnReleaseMayUseConnection verifies that close hooks run without the lock of the
// UpstreamConn.
func TestOnReleaseMayUseConnection(t *testing.T) {
	r := newRig(t, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), nil)
	u := r.client(startHost(t, func(p *peer) { p.read() }), nil)
	ended := make(chan struct{})
	u.conn.OnClose(func() {
		u.remove(1) // takes the lock
		close(ended)
	})
	go u.Close() // must return
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("Close holds the lock while it runs close hooks")
	}
}
