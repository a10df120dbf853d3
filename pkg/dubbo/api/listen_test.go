package api

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
)

// endlessListener is a listener whose Accept always returns a connection.
type endlessListener struct{ closed bool }

func (l *endlessListener) Accept() (net.Conn, error) {
	if l.closed {
		return nil, net.ErrClosed
	}
	conn, _ := net.Pipe()
	return conn, nil
}

func (l *endlessListener) Addr() net.Addr { return &net.TCPAddr{} }
func (l *endlessListener) Close() error   { l.closed = true; return nil }

// TestLimitListener verifies that connections beyond the limit wait until another connection or the
// listener closes.
func TestLimitListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newLimitListener(&endlessListener{})
		var conns []net.Conn
		for range maxConnections {
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		type accepted struct {
			conn net.Conn
			err  error
		}
		results := make(chan accepted, 1)
		accept := func() {
			conn, err := ln.Accept()
			results <- accepted{conn, err}
		}
		go accept()
		synctest.Wait()
		select {
		case <-results:
			t.Fatalf("more than %d connections are open", maxConnections)
		default:
		}
		_ = conns[0].Close()
		_ = conns[0].Close() // a second Close releases no second slot
		if got := <-results; got.err != nil {
			t.Fatal(got.err)
		}
		go accept()
		synctest.Wait()
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		if got := <-results; !errors.Is(got.err, net.ErrClosed) {
			t.Errorf("Accept after Close = %v, want ErrClosed", got.err)
		}
	})
}
