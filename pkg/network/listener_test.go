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

// TestServeContinuesAfterDescriptorExhaustion verifies that the accept loop continues after EMFILE:
// otherwise the process would run without accepting connections.
func TestServeContinuesAfterDescriptorExhaustion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &scriptedListener{results: make(chan any, 4), closed: make(chan struct{})}
		served := make(chan struct{})
		l := newListener(ListenOptions{Name: "l"}, ln, handlerFunc(func(context.Context, *Conn) error {
			close(served)
			return nil
		}))
		serveErr := make(chan error)
		go func() { serveErr <- l.Serve(t.Context()) }()
		emfile := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		local, peer := net.Pipe()
		defer peer.Close()
		ln.results <- emfile
		ln.results <- emfile
		ln.results <- local
		<-served
		l.Stop()
		if err := <-serveErr; err != nil {
			t.Errorf("Serve = %v, want nil", err)
		}
		l.Drain(t.Context())
	})
}

// listen returns a listener that serves until the test ends. It listens on loopback unless opts has
// an address.
func listen(t *testing.T, opts ListenOptions, h Handler) *Listener {
	t.Helper()
	if opts.Address == "" {
		opts.Network, opts.Address = "tcp", "127.0.0.1:0"
	}
	l, err := Listen(t.Context(), opts, h)
	if err != nil {
		t.Fatal(err)
	}
	serveErr := make(chan error, 1)
	go func() { serveErr <- l.Serve(t.Context()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.Drain(ctx)
		if err := <-serveErr; err != nil {
			t.Errorf("Serve = %v, want nil", err)
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
	for name, newListener := range map[string]func() *Listener{
		"ListenOptions": func() *Listener { return listen(t, ListenOptions{MaxConnections: 1}, holdHandler) },
		"SetMaxConnections": func() *Listener {
			l := listen(t, ListenOptions{}, holdHandler)
			l.SetMaxConnections(1)
			return l
		},
	} {
		t.Run(name, func(t *testing.T) { expectSecondClosed(t, newListener()) })
	}
}

// expectSecondClosed verifies that l serves its first connection and closes a second one.
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
	idleErr := make(chan error, 1)
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
		idleErr <- err
		return err
	}))
	idleConn, _ := net.Dial("tcp", l.Addr().String())
	defer idleConn.Close()
	busyConn, _ := net.Dial("tcp", l.Addr().String())
	defer busyConn.Close()
	busyConn.Write([]byte("x"))
	<-started
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if forceClosed := l.Drain(ctx); forceClosed != 1 {
		t.Errorf("Drain force-closed %d connections, want 1: the busy one", forceClosed)
	}
	if err := <-idleErr; err != ErrDraining {
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
	nextHandler := handlerFunc(func(context.Context, *Conn) error { calls <- "the next handler"; return nil })
	l := listen(t, ListenOptions{}, handlerFunc(func(_ context.Context, c *Conn) error {
		calls <- "the first handler"
		c.Handler = nextHandler
		return ErrPark
	}))
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, want := range []string{"the first handler", "the next handler"} {
		if got := <-calls; got != want {
			t.Fatalf("served by %s, want %s", got, want)
		}
		c.Write([]byte("x"))
	}
}

func TestStaleUnixSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	staleListener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	staleListener.SetUnlinkOnClose(false)
	staleListener.Close()
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

func (h *goAwayHandler) ServeConn(_ context.Context, conn *Conn) error {
	h.conn, conn.Handler = conn, h
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return err
	}
	defer close(h.parked)
	return ErrPark
}

func (h *goAwayHandler) SendGoAway() { _, _ = h.conn.Write([]byte("bye")) }

func TestParkedConnectionSendsGoAway(t *testing.T) {
	for name, request := range map[string]string{"silent peer": "", "peer sends a request concurrently": "a request"} {
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
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(conn)
			if got := string(first) + string(rest); got != "bye" || err != nil {
				t.Errorf("read %q, %v; want \"bye\"", got, err)
			}
			_ = conn.Close()
			if n := <-forceClosed; n != 0 {
				t.Errorf("%d connections were force-closed, want 0", n)
			}
		})
	}
}
