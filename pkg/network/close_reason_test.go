package network

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

func TestCloseReasonsAreCompleteAndUnique(t *testing.T) {
	seen := map[string]CloseReason{}
	for c := range CloseReasons() {
		if c.String() == "" || strings.Trim(c.String(), "abcdefghijklmnopqrstuvwxyz_") != "" || !strings.HasSuffix(c.Text(), ".") {
			t.Errorf("close reason %d: name %q, text %q; want a name of lowercase letters and underscores, and a sentence", c, c, c.Text())
		}
		if other, ok := seen[c.String()]; ok {
			t.Errorf("%q is the name of %d and %d", c, other, c)
		}
		seen[c.String()] = c
	}
}

// connEvents is a ListenerCounter that reports the accept and the close of one connection.
type connEvents struct {
	accepted chan struct{}
	closed   chan CloseReason
}

func (e connEvents) Accepted()            { close(e.accepted) }
func (connEvents) Refused()               {}
func (connEvents) AcceptError()           {}
func (e connEvents) Closed(c CloseReason) { e.closed <- c }

// idleHandler is a handler that lets the listener wait for the first byte.
type idleHandler struct {
	handlerFunc
	idle time.Duration
}

func (h idleHandler) IdleTimeout() time.Duration { return h.idle }

func TestListenerCountsCloseReasons(t *testing.T) {
	setReason := func(c CloseReason) handlerFunc {
		return func(_ context.Context, conn *Conn) error { conn.CloseReason = c; return nil }
	}
	noAction := func(*Listener, *net.TCPConn) {}
	drain := func(l *Listener, _ *net.TCPConn) { l.Drain(context.Background()) }
	for _, test := range []struct {
		name    string
		handler Handler
		action  func(l *Listener, peer *net.TCPConn)
		want    CloseReason
	}{
		{"default", setReason(ClosedComplete), noAction, ClosedComplete},
		{"set by the handler", setReason(ClosedMaxRequests), noAction, ClosedMaxRequests},
		{"panic", handlerFunc(func(context.Context, *Conn) error { panic("a defect") }), noAction, ClosedInternalError},
		{"closed before its first byte", idleHandler{setReason(ClosedComplete), 0}, func(_ *Listener, peer *net.TCPConn) { peer.Close() }, ClosedByPeer},
		{"reset before its first byte", idleHandler{setReason(ClosedComplete), 0}, func(_ *Listener, peer *net.TCPConn) { peer.SetLinger(0); peer.Close() }, ClosedByPeer},
		{"idle timeout", idleHandler{setReason(ClosedComplete), 10 * time.Millisecond}, noAction, ClosedIdle},
		{"drained before its first byte", idleHandler{setReason(ClosedComplete), 0}, drain, ClosedDrained},
		{"force-closed by a drain", holdHandler, func(l *Listener, _ *net.TCPConn) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			l.Drain(ctx)
		}, ClosedDrainTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := connEvents{make(chan struct{}), make(chan CloseReason, 1)}
			l := listen(t, ListenOptions{Counter: events}, test.handler)
			peer, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			<-events.accepted
			test.action(l, peer.(*net.TCPConn))
			if got := <-events.closed; got != test.want {
				t.Errorf("counted as %v, want %v", got, test.want)
			}
		})
	}
}
