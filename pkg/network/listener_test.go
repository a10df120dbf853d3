package network

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// TestServeContinuesAfterDescriptorExhaustion covers lesson 1. It verifies that the accept loop
// continues after EMFILE: otherwise the process would run without accepting connections.
func TestServeContinuesAfterDescriptorExhaustion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scriptedListener{results: make(chan any, 4), closed: make(chan struct{})}
		served := make(chan struct{})
		l := newListener(ListenOptions{Name: "l"}, s, handlerFunc(func(context.Context, *Conn) error {
			close(served)
			return nil
		}))
		end := make(chan error)
		go func() { end <- l.Serve(t.Context()) }()
		emfile := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		local, peer := net.Pipe()
		defer peer.Close()
		s.results <- emfile
		s.results <- emfile
		s.results <- local
		<-served
		l.Stop()
		if err := <-end; err != nil {
			t.Errorf("Serve = %v", err)
		}
		l.Drain(t.Context())
	})
}

func listen(t *testing.T, o ListenOptions, h Handler) *Listener {
	t.Helper()
	if o.Address == "" {
		o.Network, o.Address = "tcp", "127.0.0.1:0"
	}
	l, err := Listen(t.Context(), o, h)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- l.Serve(t.Context()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.Drain(ctx)
		if err := <-end; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return l
}

// holdHandler is a handler that keeps each connection open until its peer closes it.
var holdHandler = handlerFunc(func(_ context.Context, c *Conn) error {
	var b *buffer.IoBuffer
	_, err := c.Fill(&b, 1)
	if b != nil {
		b.Release()
	}
	return err
})

func TestConnectionsBeyondLimitAreClosed(t *testing.T) {
	for name, listen := range map[string]func() *Listener{
		"ListenOptions": func() *Listener { return listen(t, ListenOptions{MaxConnections: 1}, holdHandler) },
		"SetMaxConnections": func() *Listener {
			l := listen(t, ListenOptions{}, holdHandler)
			l.SetMaxConnections(1)
			return l
		},
	} {
		t.Run(name, func(t *testing.T) { expectSecondClosed(t, listen()) })
	}
}

func expectSecondClosed(t *testing.T, l *Listener) {
	t.Helper()
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	second.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := second.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("read on the second connection = %v, want EOF", err)
	}
	if n := l.Connections(); n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}
}

func TestDrainClosesIdleThenForceCloses(t *testing.T) {
	idle := make(chan error, 1)
	started := make(chan struct{}, 2)
	l := listen(t, ListenOptions{}, handlerFunc(func(ctx context.Context, c *Conn) error {
		if err := c.SetIdle(true); err != nil {
			return err
		}
		var b *buffer.IoBuffer
		started <- struct{}{}
		_, err := c.Fill(&b, 1)
		if err == nil { // a connection that has received bytes is busy
			b.Release()
			c.SetIdle(false)
			b = nil
			_, err = c.Fill(&b, 1)
			return err
		}
		idle <- err
		return err
	}))
	quiet, _ := net.Dial("tcp", l.Addr().String())
	defer quiet.Close()
	busy, _ := net.Dial("tcp", l.Addr().String())
	defer busy.Close()
	busy.Write([]byte("x"))
	<-started
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if forceClosed := l.Drain(ctx); forceClosed != 1 {
		t.Errorf("Drain force-closed %d connections, want 1: the busy one", forceClosed)
	}
	if err := <-idle; err != ErrDraining {
		t.Errorf("the idle connection ended with %v, want ErrDraining", err)
	}
}

func TestParkedConnectionIsServedAgain(t *testing.T) {
	calls := make(chan int, 8)
	l := listen(t, ListenOptions{}, handlerFunc(func(_ context.Context, c *Conn) error {
		c.Requests++
		calls <- c.Requests
		if c.Requests == 1 {
			return ErrPark
		}
		var b *buffer.IoBuffer
		_, err := c.Fill(&b, 10)
		b.Release()
		return err
	}))
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := <-calls; n != 1 {
		t.Fatalf("call %d, want 1", n)
	}
	c.Write([]byte("x"))
	if n := <-calls; n != 2 {
		t.Fatalf("call %d, want 2", n)
	}
}

func TestParkedConnectionUsesItsHandler(t *testing.T) {
	calls := make(chan string, 8)
	other := handlerFunc(func(context.Context, *Conn) error { calls <- "the other"; return nil })
	l := listen(t, ListenOptions{}, handlerFunc(func(_ context.Context, c *Conn) error {
		calls <- "the first"
		c.Handler = other
		return ErrPark
	}))
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, want := range []string{"the first", "the other"} {
		if got := <-calls; got != want {
			t.Fatalf("served by %s, want %s", got, want)
		}
		c.Write([]byte("x"))
	}
}

func TestStaleUnixSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l := listen(t, ListenOptions{Network: "unix", Address: path}, holdHandler)
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := Listen(t.Context(), ListenOptions{Network: "unix", Address: path}, holdHandler); err == nil {
		t.Error("Listen replaced a socket that is in use")
	}
}

// goAwayHandler is a handler that reads a byte and parks. SendGoAway writes "bye".
type goAwayHandler struct {
	conn   *Conn
	parked chan struct{}
}

func (p *goAwayHandler) ServeConn(_ context.Context, conn *Conn) error {
	p.conn, conn.Handler = conn, p
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return err
	}
	defer close(p.parked)
	return ErrPark
}

func (p *goAwayHandler) SendGoAway() { _, _ = p.conn.Write([]byte("bye")) }

func TestParkedConnectionSendsGoAway(t *testing.T) {
	for name, crossing := range map[string]string{"a silent peer": "", "a peer that sends meanwhile": "a request that crosses it"} {
		t.Run(name, func(t *testing.T) {
			h := &goAwayHandler{parked: make(chan struct{})}
			l := listen(t, ListenOptions{Name: "l"}, h)
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			<-h.parked
			forceClosed := make(chan int, 1)
			go func() { forceClosed <- l.Drain(t.Context()) }()
			first := make([]byte, 1)
			if _, err := io.ReadFull(conn, first); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, crossing); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(conn)
			if got := string(first) + string(rest); got != "bye" || err != nil {
				t.Errorf("read %q, %v", got, err)
			}
			_ = conn.Close()
			if n := <-forceClosed; n != 0 {
				t.Errorf("%d connections were force-closed", n)
			}
		})
	}
}
