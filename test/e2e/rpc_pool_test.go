package e2e

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// TestBindModeConnectionLifetime verifies that in bind mode an upstream connection stays open while
// its client is idle, and closes when its client disconnects.
func TestBindModeConnectionLifetime(t *testing.T) {
	p := findProtocol(t, "bolt")
	opened, ended := make(chan struct{}, 8), make(chan struct{}, 8)
	app := startTCPServer(t, func(c net.Conn) {
		opened <- struct{}{}
		for frames := (frameReader{c: c, p: p}); ; {
			f, err := frames.next()
			if err != nil {
				ended <- struct{}{}
				return
			}
			if _, err := c.Write(p.AppendResponse(nil, f.ID, f.Text)); err != nil {
				t.Error(err)
			}
		}
	})
	e := loadExample(t, "bolt_client.json")
	e.replace(e.address("2746"), app)
	e.replace(`"connect_timeout": "1s"`, `"connect_timeout": "1s", "connection_pool": {"mode": "bind"}`)
	e.run("bolt_client.json")
	clients := make([]net.Conn, 2)
	for i := range clients {
		c, err := net.Dial("tcp", e.address("2745"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients[i] = c
	}
	exchange := func(c net.Conn, id uint64) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(p.AppendRequest(nil, id, frame.Text{Token: id})); err != nil {
			t.Fatal(err)
		}
		frames := frameReader{c: c, p: p}
		if f, err := frames.next(); err != nil || f.ID != id {
			t.Fatalf("response %d: %v; want %d, nil", f.ID, err, id)
		}
	}
	for _, c := range clients {
		exchange(c, 1)
	}
	// Wait longer than it takes to park an idle connection.
	_ = clients[0].SetReadDeadline(time.Now().Add(700 * time.Millisecond))
	if _, err := clients[0].Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	for _, c := range clients {
		exchange(c, 2)
	}
	if n := len(opened); n != len(clients) || len(ended) > 0 {
		t.Errorf("%d connections to the host, %d of them closed; want one for each of %d clients", n, len(ended), len(clients))
	}
	_ = clients[0].Close()
	<-ended
	exchange(clients[1], 3)
	if n := len(opened); n != len(clients) {
		t.Errorf("%d connections to the host, want %d", n, len(clients))
	}
}
