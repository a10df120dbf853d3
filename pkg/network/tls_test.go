package network

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/buffer"
)

// tlsConfigs returns the configurations of a server and of a client that trusts it.
func tlsConfigs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	ca := testpki.New(t)
	leaf := ca.Issue(testpki.Spec{})
	server = &tls.Config{Certificates: []tls.Certificate{leaf.TLS}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, DynamicRecordSizingDisabled: true}
	client = &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true}
	return server, client
}

// fragmentingConn is a net.Conn that writes in pieces of size bytes. If permits is not nil, each
// piece waits for a value from permits.
type fragmentingConn struct {
	net.Conn
	size    int
	permits chan struct{}
}

func (c *fragmentingConn) Write(p []byte) (int, error) {
	for written := 0; written < len(p); {
		n := min(c.size, len(p)-written)
		if c.permits != nil {
			<-c.permits
		}
		if _, err := c.Conn.Write(p[written : written+n]); err != nil {
			return written, err
		}
		written += n
	}
	return len(p), nil
}

// tlsPair returns a server's Conn over TLS and its peer. If wrap is not nil, it wraps the socket of
// the peer.
func tlsPair(t *testing.T, wrap func(net.Conn) net.Conn) (*Conn, *tls.Conn) {
	t.Helper()
	server, client := tlsConfigs(t)
	c, nc := pair(t)
	if wrap != nil {
		nc = wrap(nc)
	}
	peer := tls.Client(nc, client)
	handshakeErr := make(chan error, 1)
	go func() { handshakeErr <- peer.Handshake() }()
	if err := c.ServerHandshake(server, time.Now().Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := <-handshakeErr; err != nil {
		t.Fatal(err)
	}
	return c, peer
}

// tlsClientPair is tlsPair for the client side.
func tlsClientPair(t *testing.T) (*Conn, *tls.Conn) {
	t.Helper()
	server, client := tlsConfigs(t)
	c, nc := pair(t)
	peer := tls.Server(nc, server)
	handshakeErr := make(chan error, 1)
	go func() { handshakeErr <- peer.Handshake() }()
	if err := c.ClientHandshake(client, time.Now().Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := <-handshakeErr; err != nil {
		t.Fatal(err)
	}
	return c, peer
}

// readPlaintext reads until at least n bytes have arrived.
func readPlaintext(t *testing.T, c *Conn, n int) []byte {
	t.Helper()
	var b *buffer.IoBuffer
	defer func() {
		if b != nil {
			b.Release()
		}
	}()
	for b == nil || b.Len() < n {
		if _, err := c.Fill(&b, 4096); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Clone(b.Bytes())
}

func TestTLSTransfersBytesAndReportsState(t *testing.T) {
	for name, newPair := range map[string]func(*testing.T) (*Conn, *tls.Conn){
		"server": func(t *testing.T) (*Conn, *tls.Conn) { return tlsPair(t, nil) },
		"client": tlsClientPair,
		"one byte per write": func(t *testing.T) (*Conn, *tls.Conn) {
			return tlsPair(t, func(nc net.Conn) net.Conn { return &fragmentingConn{Conn: nc, size: 1} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := newPair(t)
			text := bytes.Repeat([]byte("weft"), 50_000)
			go peer.Write(text)
			if got := readPlaintext(t, c, len(text)); !bytes.Equal(got, text) {
				t.Errorf("read %d bytes, want the %d bytes that were sent", len(got), len(text))
			}
			go c.Write(text)
			got := bytes.Repeat([]byte{0}, len(text))
			if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, text) {
				t.Errorf("the peer's read: %v; want the bytes that were sent", err)
			}
			if info := c.TLS(); info == nil || info.Version != tls.VersionTLS13 || info.Protocol != "http/1.1" {
				t.Errorf("TLS() = %+v, want TLS 1.3 and http/1.1", info)
			}
		})
	}
}

func TestPartialRecordIsNotReadable(t *testing.T) {
	permits := make(chan struct{}, 1000)
	fragmentingPeer := &fragmentingConn{size: 1000, permits: permits}
	for range 10 {
		permits <- struct{}{} // for the handshake
	}
	c, peer := tlsPair(t, func(nc net.Conn) net.Conn { fragmentingPeer.Conn = nc; return fragmentingPeer })
	for len(permits) > 0 {
		<-permits
	}
	go peer.Write(make([]byte, 1500)) // one record
	permits <- struct{}{}
	waits := 0
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	var b *buffer.IoBuffer
	_, err := c.FillOnWait(&b, 100, func() { waits++ })
	if !errors.Is(err, os.ErrDeadlineExceeded) || b != nil || waits == 0 {
		t.Fatalf("FillOnWait with part of a record = %v, buffer %v, %d calls of wait; want ErrDeadlineExceeded, no buffer and a call", err, b, waits)
	}
	if !c.IsReusable() || c.hasBytes() {
		t.Error("part of a record counts as readable bytes")
	}
	c.SetReadDeadline(time.Time{})
	permits <- struct{}{}
	if got := readPlaintext(t, c, 1500); len(got) != 1500 {
		t.Errorf("read %d bytes, want the 1500 bytes of the record", len(got))
	}
}

func TestAwaitReadableSeesDecryptedBytes(t *testing.T) {
	c, peer := tlsPair(t, nil)
	written := make(chan struct{})
	go func() { // two records
		defer close(written)
		peer.Write([]byte("one"))
		peer.Write([]byte("two"))
	}()
	<-written
	if err := c.AwaitReadable(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1)
	if n, err := c.Read(p); n != 1 || err != nil || p[0] != 'o' {
		t.Fatalf("Read = %d, %v, %q; want 1, nil, \"o\"", n, err, p)
	}
	for _, want := range []string{"ne", "two"} {
		if c.IsReusable() || !c.hasBytes() {
			t.Errorf("before %q: the connection has no readable bytes", want)
		}
		if err := c.AwaitReadable(); err != nil {
			t.Fatal(err)
		}
		if got := readPlaintext(t, c, 1); string(got) != want {
			t.Errorf("Fill = %q, want %q", got, want)
		}
	}
	if !c.IsReusable() {
		t.Error("IsReusable = false after everything was read, want true")
	}
}

func TestSessionTicketsAreNotReadable(t *testing.T) {
	c, peer := tlsClientPair(t) // the peer has sent tickets
	if !c.IsReusable() {
		t.Error("IsReusable = false for a connection with unread tickets, want true")
	}
	peer.Write([]byte("unsolicited"))
	err := c.AwaitReadable()
	if reusable := c.IsReusable(); err != nil || reusable {
		t.Errorf("with unread bytes: AwaitReadable = %v, IsReusable = %t; want nil, false", err, reusable)
	}
}

func TestTLSCloseNotify(t *testing.T) {
	t.Run("close_notify is EOF", func(t *testing.T) {
		c, peer := tlsPair(t, nil)
		peer.CloseWrite()
		var b *buffer.IoBuffer
		if _, err := c.Fill(&b, 10); err != io.EOF {
			t.Errorf("Fill = %v, want EOF", err)
		}
	})
	t.Run("EOF without close_notify is a truncation", func(t *testing.T) {
		c, peer := tlsPair(t, nil)
		peer.NetConn().Close()
		var b *buffer.IoBuffer
		if _, err := c.Fill(&b, 10); err != io.ErrUnexpectedEOF {
			t.Errorf("Fill = %v, want an unexpected EOF", err)
		}
	})
	for name, closeConn := range map[string]func(*Conn) error{"CloseWrite": (*Conn).CloseWrite, "Close": (*Conn).Close} {
		t.Run(name+" sends close_notify", func(t *testing.T) {
			c, peer := tlsPair(t, nil)
			if err := closeConn(c); err != nil {
				t.Fatal(err)
			}
			if _, err := peer.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the peer's read returned %v, want EOF", err)
			}
			// The peer has now read the alert, which caused the EOF. After CloseWrite, the socket is
			// still open.
			peer.NetConn().SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := peer.NetConn().Read(make([]byte, 1))
			if closed := err == io.EOF; closed != (name == "Close") {
				t.Errorf("then the read of the socket returned %v, want io.EOF only after Close", err)
			}
		})
	}
	t.Run("reads continue after CloseWrite", func(t *testing.T) {
		c, peer := tlsPair(t, nil)
		c.CloseWrite()
		go peer.Write([]byte("late"))
		if got := readPlaintext(t, c, 4); string(got) != "late" {
			t.Errorf("read %q, want \"late\"", got)
		}
	})
	t.Run("Abort sends nothing", func(t *testing.T) {
		c, peer := tlsPair(t, nil)
		c.Abort()
		if _, err := peer.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("the peer's read returned %v, want an error other than EOF", err)
		}
	})
}

func TestWriteQueueOverTLSWithFullSocket(t *testing.T) {
	c, peer := tlsPair(t, nil)
	var running sync.WaitGroup
	q := NewWriteQueue(c, func(f func()) { running.Go(f) })
	frame := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	const frames = 200 // 13 MB: more than the sockets hold
	got := make(chan int)
	go func() {
		total, p := 0, make([]byte, 1<<16)
		for {
			n, err := peer.Read(p)
			for i := range n {
				if p[i] != frame[(total+i)%len(frame)] {
					t.Errorf("byte %d differs from the byte that was sent", total+i)
					break
				}
			}
			if err != nil {
				t.Error(err)
			}
			if total += n; err != nil || total == frames*len(frame) {
				got <- total
				return
			}
		}
	}()
	for range frames {
		q.EndFrame(append(q.BeginFrame(len(frame)), frame...))
		if err := q.Flush(); err != nil {
			t.Fatal(err)
		}
		q.AwaitCapacity()
	}
	if n := <-got; n != frames*len(frame) {
		t.Errorf("the peer received %d bytes, want %d", n, frames*len(frame))
	}
	q.Close()
	running.Wait()
}

func TestWriteQueueOverTLSBatchesRecords(t *testing.T) {
	c, peer := tlsPair(t, nil)
	q := NewWriteQueue(c, func(f func()) { t.Error("a goroutine waits for the peer") })
	for range 100 {
		q.EndFrame(append(q.BeginFrame(100), make([]byte, 100)...))
	}
	if err := q.Flush(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1<<16)
	n, err := peer.NetConn().Read(p)
	const overhead = 5 + 1 + 16
	if want := 100*100 + overhead; n != want || err != nil {
		t.Errorf("one read of the socket returned %d bytes (%v), want %d: one record", n, err, want)
	}
}

func TestTLSReadInterruptAndResume(t *testing.T) {
	for name, newPair := range map[string]func(*testing.T) (*Conn, *tls.Conn){
		"on a socket": func(t *testing.T) (*Conn, *tls.Conn) { return tlsPair(t, nil) },
		"in memory":   tlsPipe,
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := newPair(t)
			fill := func() error {
				var b *buffer.IoBuffer
				_, err := c.Fill(&b, 10)
				if b != nil {
					b.Release()
				}
				return err
			}
			result := inBackground(fill)
			c.Interrupt()
			if err := <-result; !errors.Is(err, ErrInterrupted) {
				t.Fatalf("Fill = %v, want ErrInterrupted", err)
			}
			c.Resume()
			go peer.Write([]byte("more"))
			if got := readPlaintext(t, c, 4); string(got) != "more" {
				t.Errorf("after Resume: read %q, want \"more\"", got)
			}
		})
	}
}

// TestTLSTruncationIsNotEOF verifies that the peer reads EOF only after complete data, because
// close_notify means that nothing is missing.
func TestTLSTruncationIsNotEOF(t *testing.T) {
	for _, test := range []struct {
		name   string
		action func(t *testing.T, c *Conn)
		want   error
	}{
		{"Close", func(_ *testing.T, c *Conn) { c.Close() }, io.EOF},
		{"force-close", func(_ *testing.T, c *Conn) { c.forceClose() }, io.ErrUnexpectedEOF},
		{"relay to TLS fails", func(t *testing.T, c *Conn) {
			src, peer := pair(t)
			peer.(*net.TCPConn).SetLinger(0)
			peer.Close()
			Relay(src, c, 0)
		}, io.ErrUnexpectedEOF},
		{"relay from TLS fails", func(t *testing.T, c *Conn) {
			src, peer := pair(t)
			peer.(*net.TCPConn).SetLinger(0)
			peer.Close()
			Relay(c, src, 0)
		}, io.ErrUnexpectedEOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, client := tlsConfigs(t)
			c, nc := pair(t)
			peer := NewConn(nc)
			handshakeErr := inBackground(func() error { return peer.ClientHandshake(client, time.Now().Add(5*time.Second)) })
			if err := c.ServerHandshake(server, time.Now().Add(5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := <-handshakeErr; err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			test.action(t, c)
			p := make([]byte, 10)
			if n, err := peer.Read(p); n != 1 || err != nil {
				t.Fatalf("the peer read %d bytes, %v; want 1", n, err)
			}
			if _, err := peer.Read(p); err != test.want {
				t.Errorf("then the peer's read returned %v, want %v", err, test.want)
			}
		})
	}
}

// TestDrainKeepsTLSConnectionWithUnreadBytes verifies that a drain keeps an idle TLS connection
// that has unread bytes. Over TLS the check for unread bytes decrypts them, so the woken reader
// must return these bytes and not wait.
func TestDrainKeepsTLSConnectionWithUnreadBytes(t *testing.T) {
	for name, read := range map[string]func(c *Conn) (string, error){
		"Fill": func(c *Conn) (string, error) {
			var b *buffer.IoBuffer
			_, err := c.Fill(&b, 10)
			if b == nil {
				return "", err
			}
			defer b.Release()
			return string(b.Bytes()), err
		},
		"Read": func(c *Conn) (string, error) {
			p := make([]byte, 10)
			n, err := c.Read(p)
			return string(p[:n]), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := tlsPair(t, nil)
			if err := c.SetIdle(true); err != nil {
				t.Fatal(err)
			}
			if _, err := peer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := c.raw.Read(func(fd uintptr) bool { n, _ := peek(fd); return n > 0 }); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			c.Drain(true)
			if got, err := read(c); got != "x" || err != nil {
				t.Fatalf("the reader got %q, %v; want x", got, err)
			}
			go peer.Write([]byte("y")) // the connection is busy: the drain no longer wakes its reader
			if got, err := read(c); got != "y" || err != nil {
				t.Errorf("the next read got %q, %v; want \"y\"", got, err)
			}
		})
	}
}

func TestSealedRecordsAreBounded(t *testing.T) {
	t.Run("responses to key updates", func(t *testing.T) {
		c, _ := tlsPair(t, nil)
		w := (*tlsTransport)(c.secure.Load()) // tls.Conn sends its KeyUpdate messages with Write
		total := 0
		for record := make([]byte, 27); total < 2*maxSealed; total += len(record) {
			if _, err := w.Write(record); err != nil {
				break
			}
		}
		if total > maxSealed {
			t.Errorf("%d sealed bytes are pending, want at most %d", total, maxSealed)
		}
	})
	t.Run("large frame", func(t *testing.T) {
		c, peer := tlsPair(t, nil)
		frame := make([]byte, 32*maxSealed) // more than sockets hold
		remaining, err := c.secure.Load().encrypt(frame)
		if !remaining || err != nil {
			t.Fatalf("encrypt = %v, %v; want true: some bytes remain", remaining, err)
		}
		writeErr := inBackground(func() error { _, err := c.Write(nil); return err })
		if _, err := io.ReadFull(peer, make([]byte, len(frame))); err != nil {
			t.Error(err)
		}
		if err := <-writeErr; err != nil {
			t.Error(err)
		}
	})
}

// inBackground runs f on a goroutine and returns a channel that receives its error.
func inBackground(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// tlsPipe is tlsPair over a connection that is not a socket.
func tlsPipe(t *testing.T) (*Conn, *tls.Conn) {
	t.Helper()
	server, client := tlsConfigs(t)
	local, remote := net.Pipe()
	c, peer := NewConn(local), tls.Client(remote, client)
	handshakeErr := inBackground(peer.Handshake)
	if err := c.ServerHandshake(server, time.Now().Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := <-handshakeErr; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); remote.Close() })
	return c, peer
}

func TestHandshakeDeadline(t *testing.T) {
	for name, prefix := range map[string]string{"silence": "", "partial ClientHello": "\x16\x03\x01\x02\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			server, _ := tlsConfigs(t)
			synctest.Test(t, func(t *testing.T) {
				local, peer := net.Pipe()
				defer peer.Close()
				c := NewConn(local)
				defer c.Close()
				if prefix != "" {
					go peer.Write([]byte(prefix))
				}
				start := time.Now()
				err := c.ServerHandshake(server, start.Add(10*time.Second))
				if elapsed := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || elapsed != 10*time.Second {
					t.Errorf("ServerHandshake = %v after %v, want ErrDeadlineExceeded after 10s", err, elapsed)
				}
			})
		})
	}
}

func TestHandshakeConsumesUnreadBytes(t *testing.T) {
	server, client := tlsConfigs(t)
	c, nc := pair(t)
	peer := tls.Client(nc, client)
	handshakeErr := inBackground(peer.Handshake)
	var b *buffer.IoBuffer
	if _, err := c.Fill(&b, 4096); err != nil {
		t.Fatal(err)
	}
	if b.Bytes()[0] != 0x16 {
		t.Fatalf("the ClientHello begins with %#x, want 0x16", b.Bytes()[0])
	}
	c.Unread(b)
	if err := c.ServerHandshake(server, time.Now().Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := <-handshakeErr; err != nil {
		t.Fatal(err)
	}
}

func TestTLSDoesNotAllocatePerMessage(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector empties pools at random")
	}
	c, peer := tlsPair(t, nil)
	go io.Copy(peer, peer)
	p := make([]byte, 1000)
	exchange := func() {
		if _, err := c.Write(p); err != nil {
			t.Error(err)
		}
		var b *buffer.IoBuffer
		for b == nil || b.Len() < len(p) {
			if _, err := c.Fill(&b, 4096); err != nil {
				t.Error(err)
				return
			}
		}
		b.Release()
	}
	// crypto/tls allocates twice for each record that it reads, on each side.
	if n := testing.AllocsPerRun(200, exchange); n > 4 {
		t.Errorf("%v allocations per exchange, want at most the 4 of crypto/tls", n)
	}
}
