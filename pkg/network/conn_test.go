package network

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
)

// pair returns two ends of a TCP connection on loopback.
// pair returns the two ends of a TCP connection; the Conn is the end that was accepted.
func pair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	return pairOf(t, "tcp", "127.0.0.1:0")
}

// pairOf returns the two ends of a connection to a listener of the network and address. The Conn is
// the end that was accepted.
func pairOf(t *testing.T, network, address string) (*Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(nc)
	t.Cleanup(func() { c.Close(); peer.Close() })
	return c, peer
}

// memoryPair returns the two ends of an in-memory connection, which synctest bubbles need.
func memoryPair(t *testing.T) (*Conn, net.Conn) {
	nc, peer := net.Pipe()
	c := NewConn(nc)
	t.Cleanup(func() { c.Close(); peer.Close() })
	return c, peer
}

func TestFillAllocatesBufferOnData(t *testing.T) {
	c, peer := pair(t)
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var b *buffer.IoBuffer
	if _, err := c.Fill(&b, 100); !errors.Is(err, os.ErrDeadlineExceeded) || b != nil {
		t.Fatalf("Fill with nothing to read = %v, buffer %v; want ErrDeadlineExceeded and no buffer", err, b)
	}
	c.SetReadDeadline(time.Time{})
	go peer.Write([]byte("hello"))
	n, err := c.Fill(&b, 100)
	if err != nil || string(b.Bytes()) != "hello" {
		t.Fatalf("Fill = %d, %v, %q; want 5, nil, \"hello\"", n, err, b.Bytes())
	}
	b.Release()
}

func TestFillGrowsFullBuffer(t *testing.T) {
	c, peer := pair(t)
	b := buffer.Get(1)
	defer func() { b.Release() }()
	size := b.Cap()
	go peer.Write(make([]byte, 3*size))
	for b.Len() < 3*size {
		if _, err := c.Fill(&b, 1); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExtendedDeadlineFiresAtLastValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := memoryPair(t)
		start := time.Now()
		c.SetReadDeadline(start.Add(time.Second))
		c.SetReadDeadline(start.Add(time.Minute)) // does not change the timer of one second
		var b *buffer.IoBuffer
		_, err := c.Fill(&b, 10)
		b.Release()
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Fatalf("Fill = %v after %v, want ErrDeadlineExceeded after 1m", err, time.Since(start))
		}
	})
}

func TestSlowReaderDoesNotTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, peer := memoryPair(t)
		c.SetWriteTimeout(time.Second)
		go func() {
			b := make([]byte, 1)
			for range 20 {
				<-time.After(900 * time.Millisecond)
				peer.Read(b)
			}
		}()
		if n, err := c.Write(make([]byte, 20)); err != nil {
			t.Fatalf("Write = %d, %v; want no error", n, err)
		}
	})
}

func TestWriteAndFillReadsResponse(t *testing.T) {
	c, peer := pair(t)
	go func() {
		b := make([]byte, 4)
		for range 3 {
			if _, err := io.ReadFull(peer, b); err != nil {
				return
			}
			peer.Write([]byte("pong"))
		}
	}()
	for range 3 {
		var b *buffer.IoBuffer
		sent, n, err := c.WriteAndFill([]byte("ping"), &b, 100)
		if sent != 4 || n != 4 || err != nil || string(b.Bytes()) != "pong" {
			t.Fatalf("WriteAndFill = %d, %d, %v; want 4, 4, nil and \"pong\"", sent, n, err)
		}
		b.Release()
	}
}

// TestWriteAndFillIgnoresStaleTimer verifies that WriteAndFill writes the request although the read
// timer fired while the connection was idle. WriteAndFill once waited for the response to an
// unwritten request.
func TestWriteAndFillIgnoresStaleTimer(t *testing.T) {
	c, peer := pair(t)
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	var b *buffer.IoBuffer
	if _, err := c.Fill(&b, 10); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	go func() {
		if _, err := io.ReadFull(peer, make([]byte, 4)); err == nil {
			peer.Write([]byte("pong"))
		}
	}()
	sent, n, err := c.WriteAndFill([]byte("ping"), &b, 100)
	if sent != 4 || n != 4 || err != nil {
		t.Fatalf("WriteAndFill = %d, %d, %v; want 4, 4, nil", sent, n, err)
	}
	b.Release()
}

func TestWriteAndFillWritesPartially(t *testing.T) {
	c, peer := pair(t)
	request := make([]byte, 16<<20)
	go func() {
		n, _ := io.ReadFull(peer, make([]byte, len(request)))
		if n == len(request) {
			peer.Write([]byte("all"))
		}
	}()
	var b *buffer.IoBuffer
	sent, n, err := c.WriteAndFill(request, &b, 100)
	if sent != len(request) || n != 3 || err != nil {
		t.Fatalf("WriteAndFill = %d, %d, %v; want %d, 3, nil", sent, n, err, len(request))
	}
	b.Release()
}

func TestInterruptEndsReadsUntilResume(t *testing.T) {
	c, peer := pair(t)
	errs := make(chan error)
	read := func() {
		var b *buffer.IoBuffer
		_, err := c.Fill(&b, 10)
		if b != nil {
			b.Release()
		}
		errs <- err
	}
	go read()
	c.Interrupt()
	if err := <-errs; !errors.Is(err, ErrInterrupted) {
		t.Fatalf("Fill = %v, want ErrInterrupted", err)
	}
	c.Resume()
	go read()
	peer.Write([]byte("x"))
	if err := <-errs; err != nil {
		t.Fatalf("Fill after Resume = %v, want nil", err)
	}
}

func TestIsReusable(t *testing.T) {
	c, peer := pair(t)
	if !c.IsReusable() {
		t.Error("IsReusable = false for a new connection, want true")
	}
	peer.Write([]byte("x"))
	if err := c.AwaitReadable(); err != nil {
		t.Fatal(err)
	}
	if c.IsReusable() {
		t.Error("IsReusable = true with unread bytes, want false")
	}
	closedConn, closedPeer := pair(t)
	closedPeer.Close()
	if err := closedConn.AwaitReadable(); err != io.EOF {
		t.Fatalf("AwaitReadable at the end = %v, want EOF", err)
	}
	if closedConn.IsReusable() {
		t.Error("IsReusable = true after the peer's FIN, want false")
	}
}

// TestDrainKeepsConnectionWithUnreadBytes verifies that a request that arrives while the drain
// begins is served: the client may not be able to send it again.
func TestDrainKeepsConnectionWithUnreadBytes(t *testing.T) {
	write := func(peer *net.TCPConn) { peer.Write([]byte("x")) }
	for _, test := range []struct {
		name    string
		drain   func(c *Conn) error
		prepare func(peer *net.TCPConn)
		want    error
	}{
		{"idle, with bytes", func(c *Conn) error { err := c.SetIdle(true); c.Drain(true); return err }, write, nil},
		{"idle, without bytes", func(c *Conn) error { err := c.SetIdle(true); c.Drain(true); return err }, nil, ErrDraining},
		{"idle, EOF", func(c *Conn) error { err := c.SetIdle(true); c.Drain(true); return err },
			func(peer *net.TCPConn) { peer.CloseWrite() }, ErrDraining},
		{"idle after Drain, with bytes", func(c *Conn) error { c.Drain(true); return c.SetIdle(true) }, write, nil},
		{"idle after Drain, without bytes", func(c *Conn) error { c.Drain(true); return c.SetIdle(true) }, nil, ErrDraining},
		{"idle after Drain, with unread bytes", func(c *Conn) error { c.Unread(filledBuffer("x")); c.Drain(true); return c.SetIdle(true) }, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, peer := pair(t)
			if test.prepare != nil {
				test.prepare(peer.(*net.TCPConn))
				_ = c.AwaitReadable() // also returns at EOF
			}
			err := test.drain(c)
			var b *buffer.IoBuffer
			if err == nil {
				_, err = c.Fill(&b, 10)
			}
			if !errors.Is(err, test.want) {
				t.Fatalf("the reader got %v, want %v", err, test.want)
			}
			if test.want != nil {
				return
			}
			defer func() { b.Release() }()
			if got := string(b.Bytes()); got != "x" || !c.Draining() {
				t.Errorf("read %q, draining %v; want \"x\" and true", got, c.Draining())
			}
			go peer.Write([]byte("y")) // the connection is busy: the drain no longer wakes its reader
			if _, err := c.Fill(&b, 10); err != nil {
				t.Errorf("the next read got %v, want nil", err)
			}
		})
	}
}

func TestAwaitPeerClose(t *testing.T) {
	for _, test := range []struct {
		name      string
		halfClose bool
		action    func(*net.TCPConn)
		want      bool
	}{
		{"close", false, func(p *net.TCPConn) { p.Close() }, true},
		{"close after pipelined bytes", false, func(p *net.TCPConn) { p.Write([]byte("GET")); p.Close() }, true},
		{"reset", true, func(p *net.TCPConn) { p.SetLinger(0); p.Close() }, true},
		{"half-close", false, func(p *net.TCPConn) { p.CloseWrite() }, true},
		{"half-close allowed", true, func(p *net.TCPConn) { p.CloseWrite() }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, peer := pair(t)
			test.action(peer.(*net.TCPConn))
			if !test.want {
				time.AfterFunc(20*time.Millisecond, c.Interrupt)
			}
			err := c.AwaitPeerClose(test.halfClose)
			if got := !errors.Is(err, ErrInterrupted); got != test.want {
				t.Errorf("AwaitPeerClose = %v, want closed: %v", err, test.want)
			}
		})
	}
}

func TestSpliceStopsAtEOF(t *testing.T) {
	src, srcPeer := pair(t)
	dst, dstPeer := pair(t)
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i * 7)
	}
	go srcPeer.Write(data)
	got := make(chan []byte)
	go func() {
		b := make([]byte, len(data))
		io.ReadFull(dstPeer, b)
		got <- b
	}()
	n, ok, rerr, werr := Splice(dst, src, int64(len(data)))
	if n != int64(len(data)) || !ok || rerr != nil || werr != nil {
		t.Fatalf("Splice = %d, %v, %v, %v; want %d, true, nil, nil", n, ok, rerr, werr, len(data))
	}
	if string(<-got) != string(data) {
		t.Error("the bytes differ from those sent")
	}
	srcPeer.Close()
	if _, _, rerr, _ = Splice(dst, src, 1); rerr != io.EOF {
		t.Errorf("Splice at the end = %v, want EOF", rerr)
	}
}

// handlerFunc is a function as a Handler.
type handlerFunc func(context.Context, *Conn) error

func (f handlerFunc) ServeConn(ctx context.Context, c *Conn) error { return f(ctx, c) }

// scriptedListener is a net.Listener whose Accept returns the values in results.
type scriptedListener struct {
	results chan any
	closed  chan struct{}
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	select {
	case r := <-l.results:
		if err, ok := r.(error); ok {
			return nil, err
		}
		return r.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *scriptedListener) Close() error   { close(l.closed); return nil }
func (l *scriptedListener) Addr() net.Addr { return &net.TCPAddr{} }

// filledBuffer returns a buffer that holds text.
func filledBuffer(text string) *buffer.IoBuffer {
	b := buffer.Get(len(text))
	b.WriteString(text)
	return b
}

// TestWriteAndFillWritesAfterReadDeadline verifies that WriteAndFill writes the request although
// its goroutine did not run until the read deadline. WriteAndFill once waited for the response to
// an unwritten request.
func TestWriteAndFillWritesAfterReadDeadline(t *testing.T) {
	c, peer := pair(t)
	c.SetReadDeadline(time.Now().Add(-time.Second))
	var b *buffer.IoBuffer
	sent, n, err := c.WriteAndFill([]byte("ping"), &b, 100)
	if sent != 4 || n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("WriteAndFill = %d, %d, %v; want all bytes sent and ErrDeadlineExceeded", sent, n, err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != "ping" {
		t.Fatalf("the peer received %q, %v; want \"ping\"", got, err)
	}
}

func TestWriteAndFillWithoutSocket(t *testing.T) {
	nc, peer := net.Pipe()
	c := NewConn(nc)
	defer c.Close()
	go func() {
		io.ReadFull(peer, make([]byte, 4))
		peer.Write([]byte("pong"))
		peer.Close()
	}()
	var b *buffer.IoBuffer
	if sent, n, err := c.WriteAndFill([]byte("ping"), &b, 100); sent != 4 || n != 4 || err != nil {
		t.Errorf("WriteAndFill = %d, %d, %v; want 4, 4, nil", sent, n, err)
	}
	b.Release()
	b = nil
	if sent, n, err := c.WriteAndFill([]byte("ping"), &b, 100); sent != 0 || n != 0 || err != io.ErrClosedPipe {
		t.Errorf("WriteAndFill on a closed pipe = %d, %d, %v; want 0, 0, io.ErrClosedPipe", sent, n, err)
	}
	if !c.IsReusable() || c.AwaitReadable() != nil || c.AwaitPeerClose(false) != ErrInterrupted || c.CloseWrite() != nil {
		t.Error("net.Pipe: want IsReusable = true, AwaitReadable = nil, AwaitPeerClose = ErrInterrupted, CloseWrite = nil")
	}
}

func TestWriteAndFillReportsSent(t *testing.T) {
	c, peer := pair(t)
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	if err := c.AwaitReadable(); err == nil {
		t.Fatal("AwaitReadable = nil, want a connection reset")
	}
	var b *buffer.IoBuffer
	sent, n, err := c.WriteAndFill([]byte("ping"), &b, 100)
	if sent != 0 || n != 0 || err == nil || b != nil {
		t.Errorf("WriteAndFill after a reset = %d, %d, %v, buffer %v; want 0, 0, an error, no buffer", sent, n, err, b)
	}
}

func TestUnreadBytesAreReadFirst(t *testing.T) {
	c, peer := pair(t)
	peer.Write([]byte(" world"))
	t.Run("Read", func(t *testing.T) {
		c.Unread(filledBuffer("hello"))
		p := make([]byte, 3)
		for _, want := range []string{"hel", "lo"} {
			if n, err := c.Read(p); err != nil || string(p[:n]) != want {
				t.Fatalf("Read = %q, %v; want %q", p[:n], err, want)
			}
		}
	})
	t.Run("Fill into a buffer", func(t *testing.T) {
		c.Unread(filledBuffer("hello"))
		b := filledBuffer("> ")
		defer func() { b.Release() }()
		for range 2 {
			if _, err := c.Fill(&b, 10); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(b.Bytes()); got != "> hello world" {
			t.Errorf("filled %q, want \"> hello world\"", got)
		}
	})
	t.Run("Fill without a buffer", func(t *testing.T) {
		u := filledBuffer("hello")
		c.Unread(u)
		var b *buffer.IoBuffer
		if n, err := c.Fill(&b, 10); n != 5 || err != nil || b != u {
			t.Errorf("Fill = %d, %v; want the buffer that was unread", n, err)
		}
		b.Release()
	})
	t.Run("released unread", func(t *testing.T) {
		c.Unread(filledBuffer("hello"))
		c.reader.unread.release()
	})
}

func TestDrainKeepsBusyConnection(t *testing.T) {
	c, peer := pair(t)
	c.Drain(true)
	if !c.Draining() {
		t.Error("Draining = false after Drain, want true")
	}
	peer.Write([]byte("x"))
	var b *buffer.IoBuffer
	if _, err := c.Fill(&b, 10); err != nil {
		t.Errorf("Fill while busy = %v, want nil", err)
	}
	b.Release()
	if err := c.SetIdle(true); err != ErrDraining {
		t.Errorf("SetIdle = %v, want ErrDraining", err)
	}
	b = nil
	c.SetReadDeadline(time.Now().Add(10 * time.Second)) // set after Drain
	if _, err := c.Fill(&b, 10); err != ErrDraining {
		t.Errorf("Fill while idle = %v, want ErrDraining", err)
	}
}

func TestDrainAfterNextServesOneExchange(t *testing.T) {
	c, peer := pair(t)
	if err := c.SetIdle(true); err != nil {
		t.Fatal(err)
	}
	c.Drain(false)
	peer.Write([]byte("x"))
	var b *buffer.IoBuffer
	if _, err := c.Fill(&b, 10); err != nil || !c.Draining() {
		t.Errorf("Fill = %v, Draining = %v; want bytes and true", err, c.Draining())
	}
	b.Release()
}

func TestOnClose(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	c := NewConn(a)
	called := make(chan int, 3)
	c.OnClose(func() { called <- 1 })
	stop := c.OnClose(func() { called <- 100 })
	c.OnClose(func() { called <- 2 })
	stop()
	select {
	case <-called:
		t.Error("a hook ran before the close")
	default:
	}
	_ = c.Close()
	_ = c.Close()
	if got := <-called + <-called; got != 3 {
		t.Errorf("hooks added up to %d, want each called once", got)
	}
	c.OnClose(func() { called <- 3 })
	if got := <-called; got != 3 {
		t.Errorf("hooks added up to %d, want 3: OnClose after the close calls immediately", got)
	}
	stop() // no effect
}
