package network

import (
	"context"
	"net"
	"testing"
	"time"
)

// TestDrainAfterNext verifies that connections accepted before and after the call drain, and that
// the listener still accepts.
func TestDrainAfterNext(t *testing.T) {
	conns := make(chan *Conn, 2)
	l, err := Listen(t.Context(), ListenOptions{Name: "l", Network: "tcp", Address: "127.0.0.1:0"}, handlerFunc(func(_ context.Context, c *Conn) error {
		conns <- c
		_, err := c.Read(make([]byte, 1)) // until the client closes
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(t.Context()) }()
	dial := func() net.Conn {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := dial()
	before := <-conns
	if before.Draining() {
		t.Error("the first connection drains before DrainAfterNext")
	}
	l.DrainAfterNext()
	second := dial()
	after := <-conns
	if !before.Draining() || !after.Draining() || !after.ListenerDraining() {
		t.Errorf("draining: %t and %t, want true for both", before.Draining(), after.Draining())
	}
	_, _ = first.Close(), second.Close()
	l.Stop()
	if err := <-ended; err != nil {
		t.Errorf("Serve = %v, want nil", err)
	}
}
