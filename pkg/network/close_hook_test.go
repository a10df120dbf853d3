package network

import (
	"context"
	"net"
	"testing"
	"time"
)

// TestCloseHookMayCallListener verifies that a drain runs close hooks without the listener's lock.
func TestCloseHookMayCallListener(t *testing.T) {
	var l *Listener
	counts, serving, release := make(chan int, 1), make(chan struct{}), make(chan struct{})
	defer close(release)
	l, err := Listen(context.Background(), ListenOptions{Name: "t", Network: "tcp", Address: "127.0.0.1:0"},
		handlerFunc(func(_ context.Context, c *Conn) error {
			c.OnClose(func() { counts <- l.Connections() })
			close(serving)
			<-release // so that only the drain closes the connection
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	go l.Serve(context.Background()) // returns after Drain
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	<-serving
	expiredCtx, cancel := context.WithCancel(context.Background())
	cancel()
	go l.Drain(expiredCtx)
	select {
	case n := <-counts:
		if n != 1 {
			t.Errorf("the listener has %d connections, want 1", n)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the listener holds its lock while it runs close hooks")
	}
}
