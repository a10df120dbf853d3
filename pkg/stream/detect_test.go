package stream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/bolt"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/dubbo"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/stream/http1"
)

// recordingServer reads connections to their end and reports the bytes.
type recordingServer struct {
	name string
	read chan<- string // receives the server's name and the bytes
}

func (s recordingServer) ServeConn(_ context.Context, conn *network.Conn) error {
	data, err := io.ReadAll(conn)
	s.read <- s.name + " " + string(data)
	return err
}

// matchPrefix matches connections that begin with a string.
func matchPrefix(text string) func([]byte) xprotocol.MatchResult {
	return func(b []byte) xprotocol.MatchResult {
		switch n := min(len(b), len(text)); {
		case string(b[:n]) != text[:n]:
			return xprotocol.MatchNo
		case n < len(text):
			return xprotocol.MatchNeedMore
		}
		return xprotocol.MatchYes
	}
}

// newTestDetector returns a detector of HTTP/1.1, Dubbo and stand-ins for both versions of Bolt,
// and a channel that receives the name of each server that is called and the bytes that it reads.
func newTestDetector(o stream.DetectOptions) (*stream.Detector, <-chan string) {
	read := make(chan string, 1)
	for _, c := range []struct {
		name  string
		match func([]byte) xprotocol.MatchResult
	}{
		{"http1", http1.Match},
		{"dubbo", dubbo.Codec{}.Match},
		{"bolt", matchPrefix("\x01")},
		{"boltv2", matchPrefix("\x02\x01")},
	} {
		o.Candidates = append(o.Candidates, stream.Candidate{Match: c.match, Server: recordingServer{c.name, read}})
	}
	return stream.NewDetector(o), read
}

// newFallbackDetector is newTestDetector for HTTP/1.1 and Dubbo, with a fallback server for other
// bytes.
func newFallbackDetector(o stream.DetectOptions) (*stream.Detector, <-chan string) {
	read := make(chan string, 1)
	o.Fallback = recordingServer{"unknown", read}
	for _, match := range []func([]byte) xprotocol.MatchResult{http1.Match, dubbo.Codec{}.Match} {
		o.Candidates = append(o.Candidates, stream.Candidate{Match: match, Server: recordingServer{"candidate", read}})
	}
	return stream.NewDetector(o), read
}

// serveConn runs d on one end of an in-memory connection. It returns the other end, the connection,
// and the result of ServeConn once it has returned.
func serveConn(t *testing.T, d *stream.Detector) (net.Conn, *network.Conn, <-chan error) {
	t.Helper()
	local, peer := net.Pipe()
	conn := network.NewConn(local)
	t.Cleanup(func() { _ = conn.Close(); _ = peer.Close() })
	served := make(chan error, 1)
	go func() {
		served <- d.ServeConn(t.Context(), conn)
		_ = conn.Close()
	}()
	return peer, conn, served
}

// writeParts writes each part after the previous one was read and processed.
func writeParts(peer net.Conn, parts ...string) {
	for _, p := range parts {
		if p != "" {
			_, _ = io.WriteString(peer, p) // the test checks what arrived
		}
		synctest.Wait()
	}
}

// forEachSplit calls f with text split in two at every position.
func forEachSplit(text string, f func(first, rest string)) {
	for n := range len(text) + 1 {
		f(text[:n], text[n:])
	}
}

func TestDetectAtEverySplit(t *testing.T) {
	for name, text := range map[string]string{
		"http1":  "OPTIONS * HTTP/1.1\r\nHost: shop.test\r\n\r\n",
		"dubbo":  "\xda\xbb\xc2\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02hi",
		"bolt":   "\x01\x01\x00\x01\x01\x00\x00\x00\x01",
		"boltv2": "\x02\x01\x01\x00\x01\x01\x00\x00\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			forEachSplit(text, func(first, rest string) {
				synctest.Test(t, func(t *testing.T) {
					d, read := newTestDetector(stream.DetectOptions{Timeout: time.Second})
					peer, conn, served := serveConn(t, d)
					writeParts(peer, first, rest)
					_ = peer.Close()
					if got, want := <-read, name+" "+text; got != want {
						t.Errorf("%q, then %q: read as %q, want %q", first, rest, got, want)
					}
					if err := <-served; err != nil || conn.CloseReason == network.ClosedUnknownProtocol {
						t.Errorf("%q, then %q: ServeConn = %v, close reason %v; want nil and another close reason", first, rest, err, conn.CloseReason)
					}
				})
			})
		})
	}
}

func TestDetectByteByByte(t *testing.T) {
	const text = "PROPFIND /a HTTP/1.1\r\n\r\n"
	synctest.Test(t, func(t *testing.T) {
		d, read := newTestDetector(stream.DetectOptions{Timeout: time.Second})
		peer, _, _ := serveConn(t, d)
		writeParts(peer, strings.Split(text, "")...)
		_ = peer.Close()
		if got, want := <-read, "http1 "+text; got != want {
			t.Errorf("read as %q, want %q", got, want)
		}
	})
}

func TestUnknownProtocolIsClosed(t *testing.T) {
	for name, test := range map[string]struct{ bytes, wantErr string }{
		"TLS":                                {"\x16\x03\x01\x02\x00", "belong to no protocol"},
		"HTTP/2":                             {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2, which the listener does not support"},
		"SMTP":                               {"EHLO mail.test\r\n", "belong to no protocol"},
		"zeros":                              {"\x00\x00\x00\x00", "belong to no protocol"},
		"boltv2 with an invalid second byte": {"\x02\x02", "belong to no protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := newTestDetector(stream.DetectOptions{Timeout: time.Second})
				peer, conn, served := serveConn(t, d)
				writeParts(peer, test.bytes)
				if err := <-served; err == nil || !strings.Contains(err.Error(), test.wantErr) || conn.CloseReason != network.ClosedUnknownProtocol {
					t.Errorf("ServeConn = %v, close reason %v; want %q, %v", err, conn.CloseReason, test.wantErr, network.ClosedUnknownProtocol)
				}
				if n, err := peer.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Error("the client received a byte")
				}
			})
		})
	}
}

func TestIdleTimeoutEndsAtFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, read := newTestDetector(stream.DetectOptions{IdleTimeout: time.Minute})
		peer, conn, served := serveConn(t, d)
		conn.SetReadDeadline(time.Now().Add(time.Minute)) // as the listener does
		writeParts(peer, "P")
		time.Sleep(time.Hour)
		writeParts(peer, "OST ")
		_ = peer.Close()
		if err := <-served; err != nil || len(read) != 1 {
			t.Errorf("ServeConn = %v, %d connections served; want nil, 1: there is no detection timeout", err, len(read))
		}
	})
}

func TestDetectTimeoutStartsAtFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newTestDetector(stream.DetectOptions{Timeout: 10 * time.Second, IdleTimeout: time.Hour})
		peer, conn, served := serveConn(t, d)
		time.Sleep(59 * time.Minute)
		start := time.Now()
		writeParts(peer, "P")
		time.Sleep(6 * time.Second)
		writeParts(peer, "O") // does not extend the timeout
		if err := <-served; err == nil || conn.CloseReason != network.ClosedRequestTimeout {
			t.Errorf("ServeConn = %v, close reason %v; want %v", err, conn.CloseReason, network.ClosedRequestTimeout)
		}
		if elapsed := time.Since(start); elapsed != 10*time.Second {
			t.Errorf("ended after %v, want 10s", elapsed)
		}
	})
}

func TestDetectTimeoutEndsWithDetection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, read := newTestDetector(stream.DetectOptions{Timeout: 10 * time.Second})
		peer, _, _ := serveConn(t, d)
		writeParts(peer, "GE", "T /")
		time.Sleep(time.Minute)
		writeParts(peer, "slow")
		_ = peer.Close()
		if got, want := <-read, "http1 GET /slow"; got != want {
			t.Errorf("read as %q, want %q", got, want)
		}
	})
}

func TestConnectionWithoutBytesIsIdle(t *testing.T) {
	for name, test := range map[string]struct {
		action func(peer net.Conn, conn *network.Conn)
		want   network.CloseReason
	}{
		"idle timeout": {func(net.Conn, *network.Conn) {}, network.ClosedIdle},
		"close":        {func(peer net.Conn, _ *network.Conn) { _ = peer.Close() }, network.ClosedByPeer},
		"drain":        {func(_ net.Conn, conn *network.Conn) { conn.Drain(true) }, network.ClosedDrained},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := newTestDetector(stream.DetectOptions{Timeout: time.Second, IdleTimeout: time.Minute})
				local, peer := net.Pipe()
				defer peer.Close()
				conn := network.NewConn(local)
				defer conn.Close()
				conn.SetReadDeadline(time.Now().Add(d.IdleTimeout())) // the listener does the same
				served := make(chan error, 1)
				go func() { served <- d.ServeConn(t.Context(), conn) }()
				synctest.Wait()
				test.action(peer, conn)
				if err := <-served; err != nil || conn.CloseReason != test.want {
					t.Errorf("ServeConn = %v, close reason %v; want %v", err, conn.CloseReason, test.want)
				}
			})
		})
	}
}

func TestFallbackGetsEveryByte(t *testing.T) {
	for _, text := range []string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"POSTGRES",
		"GE",   // incomplete at the end of the connection
		"\xda", // incomplete at the end of the connection
		strings.Repeat("\r\n", 3) + strings.Repeat("x", 10_000),
	} {
		for n := range min(len(text), 16) + 1 {
			synctest.Test(t, func(t *testing.T) {
				d, read := newFallbackDetector(stream.DetectOptions{Timeout: time.Second})
				peer, _, _ := serveConn(t, d)
				writeParts(peer, text[:n], text[n:])
				_ = peer.Close()
				if got, want := <-read, "unknown "+text; got != want {
					t.Errorf("%.20q, then %.20q: %d bytes of %.30q, want %d of %.30q", text[:n], text[n:], len(got), got, len(want), want)
				}
			})
		}
	}
}

func TestFallbackAfterDetectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, read := newFallbackDetector(stream.DetectOptions{Timeout: time.Second})
		peer, _, _ := serveConn(t, d)
		writeParts(peer, "HE")
		time.Sleep(time.Minute)
		writeParts(peer, "LLO")
		_ = peer.Close()
		if got, want := <-read, "unknown HELLO"; got != want {
			t.Errorf("read as %q, want %q", got, want)
		}
	})
}

func TestUndetectedBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		undecidedCandidate := stream.Candidate{Match: func([]byte) xprotocol.MatchResult { return xprotocol.MatchNeedMore }}
		peer, conn, served := serveConn(t, stream.NewDetector(stream.DetectOptions{Candidates: []stream.Candidate{undecidedCandidate}}))
		n, _ := peer.Write(bytes.Repeat([]byte("x"), 1<<20))
		if <-served; conn.CloseReason != network.ClosedUnknownProtocol || n > 8<<10 {
			t.Errorf("close reason %v after %d bytes, want %v after at most 8 KiB", conn.CloseReason, n, network.ClosedUnknownProtocol)
		}
	})
}

// TestDetectFollowsCandidateOrder verifies that the detected protocol depends only on the bytes and
// on the order of the candidates.
func TestDetectFollowsCandidateOrder(t *testing.T) {
	read := make(chan string, 1)
	d := stream.NewDetector(stream.DetectOptions{Candidates: []stream.Candidate{
		{Match: matchPrefix("xyz"), Server: recordingServer{"first", read}},
		{Match: matchPrefix("x"), Server: recordingServer{"second", read}},
		{Match: matchPrefix("xy"), Server: recordingServer{"third", read}},
	}})
	for text, want := range map[string]string{"xyz!": "first", "xyy!": "second", "x": "second"} {
		for i := range 1000 {
			synctest.Test(t, func(t *testing.T) {
				peer, _, _ := serveConn(t, d)
				n := i % (len(text) + 1)
				writeParts(peer, text[:n], text[n:])
				_ = peer.Close()
				if got := <-read; got != want+" "+text {
					t.Fatalf("run %d: %q, then %q: server and bytes %q, want %q", i, text[:n], text[n:], got, want+" "+text)
				}
			})
		}
	}
}

// forEachPermutation calls f with every permutation of candidates.
func forEachPermutation(candidates []stream.Candidate, f func(order []stream.Candidate)) {
	var permute func(n int)
	permute = func(n int) {
		if n == len(candidates) {
			f(candidates)
		}
		for i := n; i < len(candidates); i++ {
			candidates[n], candidates[i] = candidates[i], candidates[n]
			permute(n + 1)
			candidates[n], candidates[i] = candidates[i], candidates[n]
		}
	}
	permute(0)
}

// TestDetectRealProtocolsInEveryOrder verifies that the real protocols are detected in every order
// of the candidates and with every split of their first bytes.
func TestDetectRealProtocolsInEveryOrder(t *testing.T) {
	read := make(chan string, 1)
	var candidates []stream.Candidate
	for name, match := range map[string]func([]byte) xprotocol.MatchResult{
		"http1": http1.Match, "dubbo": dubbo.Codec{}.Match, "bolt": bolt.V1().Match, "boltv2": bolt.V2().Match,
	} {
		candidates = append(candidates, stream.Candidate{Match: match, Server: recordingServer{name, read}})
	}
	texts := map[string]string{
		"http1":   "PUT /a HTTP/1.1\r\nHost: shop.test\r\n\r\n",
		"dubbo":   "\xda\xbb\xc2\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02hi",
		"bolt":    "\x01\x01\x00\x01\x01\x00\x00\x00\x01\x01\x00\x00\x03\xe8",
		"boltv2":  "\x02\x01\x01\x00\x01\x01\x00\x00\x00\x01\x01\x00\x00\x00\x03\xe8",
		"unknown": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	}
	detected := map[string]int{}
	forEachPermutation(candidates, func(order []stream.Candidate) {
		d := stream.NewDetector(stream.DetectOptions{Candidates: order, Fallback: recordingServer{"unknown", read}, Timeout: time.Second})
		for want, text := range texts {
			for split := range 6 {
				synctest.Test(t, func(t *testing.T) {
					peer, _, _ := serveConn(t, d)
					writeParts(peer, text[:split], text[split:])
					_ = peer.Close()
					if got := <-read; got != want+" "+text {
						t.Fatalf("%q, then %q: server and bytes %q, want %q", text[:split], text[split:], got, want+" "+text)
					}
				})
				detected[want]++
			}
		}
	})
	for want := range texts {
		if detected[want] < 100 {
			t.Errorf("%s was detected %d times, want at least 100", want, detected[want])
		}
	}
}

// parkingServer is a server that parks after each byte.
type parkingServer struct{ read chan<- byte }

func (s parkingServer) ServeConn(_ context.Context, conn *network.Conn) error {
	var b [1]byte
	if _, err := conn.Read(b[:]); err != nil {
		return err
	}
	s.read <- b[0]
	return network.ErrPark
}

func TestParkedConnectionKeepsProtocol(t *testing.T) {
	read, calls := make(chan byte), 0
	d := stream.NewDetector(stream.DetectOptions{Candidates: []stream.Candidate{{
		Match:  func(b []byte) xprotocol.MatchResult { calls++; return matchPrefix("a")(b) },
		Server: parkingServer{read},
	}}})
	l, err := network.Listen(t.Context(), network.ListenOptions{Network: "tcp", Address: "127.0.0.1:0"}, d)
	if err != nil {
		t.Fatal(err)
	}
	serveErr := make(chan error, 1)
	go func() { serveErr <- l.Serve(t.Context()) }()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []byte("abc") {
		if _, err := peer.Write([]byte{c}); err != nil {
			t.Fatal(err)
		}
		if got := <-read; got != c {
			t.Errorf("read %q, want %q", got, c)
		}
	}
	_ = peer.Close()
	l.Drain(t.Context())
	if err := <-serveErr; err != nil || calls != 1 {
		t.Errorf("Serve = %v; Match was called %d times, want once", err, calls)
	}
}

// brokenConn is a connection whose reads return bytes and then errBroken.
type brokenConn struct {
	net.Conn
	bytes io.Reader
}

var errBroken = errors.New("broken")

func (c brokenConn) Read(p []byte) (int, error) {
	if n, _ := c.bytes.Read(p); n > 0 {
		return n, nil
	}
	return 0, errBroken
}

func TestReadErrorSkipsFallback(t *testing.T) {
	for _, text := range []string{"", "GE"} {
		local, peer := net.Pipe()
		defer peer.Close()
		conn := network.NewConn(brokenConn{local, strings.NewReader(text)})
		defer conn.Close()
		d, _ := newFallbackDetector(stream.DetectOptions{Timeout: time.Second})
		if err := d.ServeConn(t.Context(), conn); !errors.Is(err, errBroken) || conn.CloseReason != network.ClosedByPeer {
			t.Errorf("after %q: %v, %v; want %v, %v", text, err, conn.CloseReason, errBroken, network.ClosedByPeer)
		}
	}
}
