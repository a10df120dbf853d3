package network

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// startRelay runs Relay on a goroutine and returns a channel for its byte counts.
func startRelay(conn *Conn, peer Stream, idle time.Duration) <-chan [2]int64 {
	counts := make(chan [2]int64, 1)
	go func() {
		out, in := Relay(conn, peer, idle)
		counts <- [2]int64{out, in}
	}()
	return counts
}

func TestRelayForwardsHalfClose(t *testing.T) {
	local, client := pair(t)
	peer, host := pair(t)
	counts := startRelay(local, peer, time.Minute)
	io.WriteString(client, "requests")
	client.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(host); string(got) != "requests" || err != nil {
		t.Fatalf("the host read %q, %v; want \"requests\"", got, err)
	}
	io.WriteString(host, "a response after the client's EOF")
	host.Close()
	if got, err := io.ReadAll(client); string(got) != "a response after the client's EOF" || err != nil {
		t.Fatalf("the client read %q, %v; want the response after the client's EOF", got, err)
	}
	if got := <-counts; got != [2]int64{8, 33} {
		t.Errorf("Relay = %v, want 8 out and 33 in", got)
	}
}

func TestRelaySendsUnreadBytesFirst(t *testing.T) {
	local, client := pair(t)
	peer, host := pair(t)
	local.Unread(filledBuffer("early "))
	counts := startRelay(local, peer, 0)
	io.WriteString(client, "late")
	client.(*net.TCPConn).CloseWrite()
	if got, _ := io.ReadAll(host); string(got) != "early late" {
		t.Errorf("the host read %q, want \"early late\"", got)
	}
	host.Close()
	<-counts
}

func TestRelayFailsBothDirections(t *testing.T) {
	local, client := pair(t)
	peer, host := pair(t)
	counts := startRelay(local, peer, 0)
	client.(*net.TCPConn).SetLinger(0)
	client.Close()
	<-counts
	if _, err := host.Read(make([]byte, 1)); err == nil {
		t.Error("the host's connection is still open")
	}
}

func TestRelayIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		localPipe, client := net.Pipe()
		peerPipe, host := net.Pipe()
		defer client.Close()
		defer host.Close()
		local, peer := NewConn(localPipe), NewConn(peerPipe)
		start := time.Now()
		counts := startRelay(local, peer, time.Minute)
		go func() {
			for range 3 { // bytes in one direction keep both directions open
				<-time.After(40 * time.Second)
				client.Write([]byte("x"))
			}
		}()
		go io.Copy(io.Discard, host)
		if got := <-counts; got != [2]int64{3, 0} {
			t.Errorf("Relay = %v, want 3 out and 0 in", got)
		}
		if d := time.Since(start); d != 3*time.Minute {
			t.Errorf("Relay ended after %v, want 3m: one minute after the last byte", d)
		}
	})
}

// plainTCP is a Stream that is not a Conn.
type plainTCP struct{ *net.TCPConn }

func TestRelayCopiesWithoutSplice(t *testing.T) {
	local, client := pair(t)
	peer, host := pair(t)
	counts := startRelay(local, plainTCP{peer.NetConn().(*net.TCPConn)}, 0)
	io.WriteString(client, "north")
	io.WriteString(host, "west")
	for want, conn := range map[string]net.Conn{"north": host, "west": client} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Errorf("read %q, %v; want %q", got, err, want)
		}
	}
	client.(*net.TCPConn).CloseWrite()
	host.(*net.TCPConn).CloseWrite()
	if got := <-counts; got != [2]int64{5, 4} {
		t.Errorf("Relay = %v, want 5 out and 4 in", got)
	}
}

// TestRelayCountersDuringRelay verifies that bytes are counted before maxSpliceRound or the idle
// time is reached.
func TestRelayCountersDuringRelay(t *testing.T) {
	for name, stream := range map[string]func(c *Conn) Stream{
		"splice": func(c *Conn) Stream { return c },
		"copy":   func(c *Conn) Stream { return plainTCP{c.NetConn().(*net.TCPConn)} },
	} {
		t.Run(name, func(t *testing.T) {
			local, client := pair(t)
			peer, host := pair(t)
			var counters RelayCounters
			done := make(chan struct{})
			go func() {
				defer close(done)
				counters.Relay(local, stream(peer), time.Hour)
			}()
			for range 2 {
				io.WriteString(client, "requests")
				if _, err := io.ReadFull(host, make([]byte, 8)); err != nil {
					t.Fatal(err)
				}
				io.WriteString(host, "responses")
				if _, err := io.ReadFull(client, make([]byte, 9)); err != nil {
					t.Fatal(err)
				}
			}
			for counters.In.Load() < 18 || counters.Out.Load() < 16 { // bytes count once they are written
				runtime.Gosched()
			}
			client.Close()
			host.Close()
			<-done
			if out, in := counters.Out.Load(), counters.In.Load(); out != 16 || in != 18 {
				t.Errorf("%d bytes out and %d in, want 16 and 18", out, in)
			}
		})
	}
}

// TestSpliceWithoutPipeMovesNothing verifies that Splice moves nothing and returns no error if the
// process has no descriptors for a pipe, so that its caller copies instead.
func TestSpliceWithoutPipeMovesNothing(t *testing.T) {
	src, srcPeer := pair(t)
	dst, _ := pair(t)
	io.WriteString(srcPeer, "x")
	idle := drainPipes(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lowLimit := limit
	lowLimit.Cur = 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lowLimit); err != nil {
		t.Skipf("setrlimit: %v", err)
	}
	n, ok, rerr, werr := Splice(dst, src, 1)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if n != 0 || ok || rerr != nil || werr != nil {
		t.Errorf("Splice = %d, %v, %v, %v; want nothing moved and no error", n, ok, rerr, werr)
	}
	for _, p := range idle {
		pipes.put(p)
	}
	if n, ok, rerr, werr = Splice(dst, src, 1); n != 1 || !ok || rerr != nil || werr != nil {
		t.Errorf("Splice with descriptors = %d, %v, %v, %v; want 1, true, nil, nil", n, ok, rerr, werr)
	}
}

// drainPipes empties the free list of pipes and returns the pipes.
func drainPipes(t *testing.T) (drained []*pipe) {
	t.Helper()
	for {
		p := pipes.get()
		if p == nil {
			return drained
		}
		drained = append(drained, p)
	}
}

func TestSpliceEndsAtDeadlines(t *testing.T) {
	t.Run("nothing to read", func(t *testing.T) {
		src, _ := pair(t)
		dst, _ := pair(t)
		src.SetReadDeadline(time.Now().Add(time.Millisecond))
		src.SetReadDeadline(time.Now().Add(30 * time.Millisecond)) // the armed timer fires earlier, which must not end the read
		n, ok, rerr, werr := Splice(dst, src, 1)
		if n != 0 || !ok || !errors.Is(rerr, os.ErrDeadlineExceeded) || werr != nil {
			t.Errorf("Splice = %d, %v, %v, %v; want ErrDeadlineExceeded of the read", n, ok, rerr, werr)
		}
	})
	t.Run("destination does not read", func(t *testing.T) {
		src, srcPeer := pair(t)
		dst, _ := pair(t)
		dst.SetWriteTimeout(20 * time.Millisecond)
		go srcPeer.Write(make([]byte, 64<<20)) // ends when src closes
		_, ok, rerr, werr := Splice(dst, src, 64<<20)
		if !ok || rerr != nil || !errors.Is(werr, os.ErrDeadlineExceeded) {
			t.Errorf("Splice = %v, %v, %v; want ErrDeadlineExceeded of the write", ok, rerr, werr)
		}
	})
	t.Run("destination was reset", func(t *testing.T) {
		src, srcPeer := pair(t)
		dst, dstPeer := pair(t)
		dstPeer.(*net.TCPConn).SetLinger(0)
		dstPeer.Close()
		if err := dst.AwaitReadable(); err == nil {
			t.Fatal("AwaitReadable = nil, want a connection reset")
		}
		io.WriteString(srcPeer, "x")
		if _, _, rerr, werr := Splice(dst, src, 1); rerr != nil || werr == nil {
			t.Errorf("Splice = %v, %v; want a write error", rerr, werr)
		}
	})
}

func TestAbortIsNotEOF(t *testing.T) {
	c, peer := pair(t)
	io.WriteString(c.NetConn(), "part")
	if err := c.Abort(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(peer); err == nil {
		t.Errorf("the peer read %q, then EOF; want an error, because the bytes are incomplete", got)
	}
}

func TestDialerDistinguishesTimeoutFromRefusal(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	c, err := Dialer{}.Dial(t.Context(), "tcp", address, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if c.RemoteAddr().String() != address || c.LocalAddr().String() == address {
		t.Errorf("connected to %v from %v, want %v", c.RemoteAddr(), c.LocalAddr(), address)
	}
	c.Close()
	ln.Close()
	if _, err := (Dialer{}).Dial(t.Context(), "tcp", address, time.Time{}); err == nil || IsTimeout(err) {
		t.Errorf("Dial of an address without a listener = %v, want connection refused", err)
	}
	if _, err := (Dialer{}).Dial(t.Context(), "tcp", address, time.Now().Add(-time.Second)); !IsTimeout(err) {
		t.Errorf("Dial after its deadline = %v, want a timeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Dialer{}).Dial(ctx, "tcp", address, time.Time{}); err == nil || IsTimeout(err) {
		t.Errorf("Dial with a canceled context = %v, want the error of the context", err)
	}
}

func TestHandlerPanicEndsItsConnection(t *testing.T) {
	l := listen(t, ListenOptions{}, handlerFunc(func(_ context.Context, c *Conn) error {
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil {
			return err
		}
		if b[0] == 'p' {
			panic("a defect")
		}
		_, err := c.Write([]byte("ok"))
		return err
	}))
	for _, test := range []struct{ request, want string }{{"p", ""}, {"x", "ok"}} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, test.request)
		if got, err := io.ReadAll(c); string(got) != test.want || err != nil {
			t.Errorf("request %q: response %q, %v; want %q", test.request, got, err, test.want)
		}
		c.Close()
	}
}

func TestListenErrorNamesListener(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, network, address, want string }{
		{"invalid address", "tcp", "nowhere", "listener l: "},
		{"not a socket", "unix", file, "is not a socket"},
		{"missing directory", "unix", file + "/x/y", "listener l: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Listen(t.Context(), ListenOptions{Name: "l", Network: test.network, Address: test.address}, holdHandler)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Listen = %v, want an error with %q", err, test.want)
			}
		})
	}
}
