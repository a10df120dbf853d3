package network

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestNotReceived verifies what NotReceived reports about a request after the connection broke, for
// each action of the peer.
func TestNotReceived(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, tt := range []struct {
		name        string
		beforeWrite func(c *net.TCPConn)               // runs before the second request is written; may be nil
		afterWrite  func(t *testing.T, c *net.TCPConn) // runs after the second request is written; may be nil
		want        bool
	}{
		{name: "closed before the write", beforeWrite: func(c *net.TCPConn) { c.Close() }, want: true},
		{name: "reset before the write", beforeWrite: func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, want: false}, // the write fails
		{name: "closed after the read", afterWrite: func(t *testing.T, c *net.TCPConn) {
			readRequest(t, c, len(request))
			c.Close()
		}},
		{name: "reset after the read", afterWrite: func(t *testing.T, c *net.TCPConn) {
			readRequest(t, c, len(request))
			c.SetLinger(0)
			c.Close()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, peer := pair(t)
			if _, err := c.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			readRequest(t, peer.(*net.TCPConn), len(request))
			if _, err := peer.Write([]byte("ok")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
				t.Fatal(err)
			}
			if tt.beforeWrite != nil {
				tt.beforeWrite(peer.(*net.TCPConn))
			}
			_, err := c.Write([]byte(request))
			if err == nil && tt.afterWrite != nil {
				tt.afterWrite(t, peer.(*net.TCPConn))
			}
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := c.Read(make([]byte, 8))
			if err == nil {
				t.Fatalf("read %d bytes on a broken connection", n)
			}
			if got := c.NotReceived(err); got != tt.want {
				t.Errorf("NotReceived(%v) = %v, want %v", err, got, tt.want)
			}
		})
	}
}

func readRequest(t *testing.T, c *net.TCPConn, n int) {
	t.Helper()
	if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}
