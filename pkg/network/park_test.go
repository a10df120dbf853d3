package network

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestParkedConnectionWritesPendingBytes verifies that a client that reads slowly gets all bytes
// that are pending when its connection is parked, however the connection ends. Weft once closed a
// parked connection immediately, and parking changed the state of the writing goroutine, which the
// race detector reports.
func TestParkedConnectionWritesPendingBytes(t *testing.T) {
	const frames, size = 100, 256 << 10 // more than the sockets buffer
	for _, test := range []struct {
		name   string
		idle   time.Duration // read deadline of the parked connection; 0: none
		action func(l *Listener, peer *net.TCPConn)
		want   CloseReason
	}{
		{"drain", 0, func(l *Listener, _ *net.TCPConn) { go l.Drain(context.Background()) }, ClosedDrained},
		{"idle timeout", 10 * time.Millisecond, nil, ClosedIdle},
		{"half-close by the client", 0, func(_ *Listener, peer *net.TCPConn) { _ = peer.CloseWrite() }, ClosedByPeer},
	} {
		t.Run(test.name, func(t *testing.T) {
			var running sync.WaitGroup
			events := connEvents{make(chan struct{}), make(chan CloseReason, 1)}
			parking := make(chan *Conn, 1)
			l := listen(t, ListenOptions{Counter: events}, handlerFunc(func(_ context.Context, c *Conn) error {
				q := NewWriteQueue(c, running.Go)
				for range frames {
					_ = appendFrame(q, string(make([]byte, size)))
				}
				if err := q.Flush(); err != nil {
					return err
				}
				if test.idle > 0 {
					c.SetReadDeadline(time.Now().Add(test.idle))
				}
				parking <- c
				return ErrPark
			}))
			peer, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			c := <-parking
			waitUntil(t, "the connection is parked", func() bool { return c.state.load().idle() })
			if test.action != nil {
				test.action(l, peer.(*net.TCPConn))
			}
			waitUntil(t, "the listener ends the connection", func() bool { return c.state.load()&stateParked == 0 })
			_ = peer.SetReadDeadline(time.Now().Add(20 * time.Second))
			if n, err := io.Copy(io.Discard, peer); n != frames*size || err != nil {
				t.Errorf("the client read %d bytes, %v; want %d and EOF", n, err, frames*size)
			}
			if got := <-events.closed; got != test.want {
				t.Errorf("counted as %v, want %v", got, test.want)
			}
			running.Wait()
		})
	}
}
