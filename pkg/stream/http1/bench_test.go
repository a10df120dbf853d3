package http1

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
)

// exchanger is a client that sends requests through both sides of the engine to a host with a
// constant response, on loopback. Only the engine allocates.
type exchanger struct {
	client            *net.TCPConn
	request, response []byte
	head              int // bytes of the request that the client sends in a separate write
}

// writeDelay is the delay between the head and the rest of a request.
const writeDelay = 20 * time.Microsecond

// newExchanger returns an exchanger whose requests and responses are all alike.
func newExchanger(t testing.TB, request, response string) *exchanger {
	t.Helper()
	local, peer := tcpPair(t)
	requestLength := len(request)
	go func() { // the host: each request it receives has the same length
		b, response := make([]byte, requestLength), []byte(response)
		for {
			if _, err := io.ReadFull(peer.TCPConn, b); err != nil {
				return
			}
			if _, err := peer.Write(response); err != nil {
				return
			}
		}
	}()
	client := newUpstreamConn(local, stream.UpstreamConnOptions{HTTP1: config.DefaultHTTP1Options(), OnRelease: func(bool) {}})
	l, err := network.Listen(context.Background(), network.ListenOptions{Network: "tcp", Address: "127.0.0.1:0"},
		NewServer(stream.ServerOptions{HTTP1: config.DefaultHTTP1Options(), Service: client}))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Serve(context.Background()) }() // until Drain
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		l.Drain(context.Background())
	})
	return &exchanger{client: nc.(*net.TCPConn), request: []byte(request), response: make([]byte, len(response))}
}

func (e *exchanger) exchange() error {
	if e.head > 0 {
		if _, err := e.client.Write(e.request[:e.head]); err != nil {
			return err
		}
		for sent := time.Now(); time.Since(sent) < writeDelay; runtime.Gosched() { // the server reads the head before the rest arrives
		}
	}
	if _, err := e.client.Write(e.request[e.head:]); err != nil {
		return err
	}
	_, err := io.ReadFull(e.client, e.response)
	return err
}

const (
	postHead = "POST /path HTTP/1.1\r\nHost: example.com\r\nContent-Length: "
	fixedGet = "GET /path?query=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n"
)

// fixedPost returns a request with a body, and the size of its head.
func fixedPost(size int) (request string, head int) {
	request = postHead + decimal(size) + "\r\n\r\n"
	return request + strings.Repeat("x", size), len(request)
}

func fixedResponse(size int) string {
	return "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: " +
		decimal(size) + "\r\n\r\n" + strings.Repeat("x", size)
}

func decimal(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return decimal(n/10) + string(rune('0'+n%10))
}

func TestKeepAliveExchangeDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	post, head := fixedPost(1 << 10)
	for _, test := range []struct {
		name, request string
		head          int
	}{
		{"GET", fixedGet, 0},
		{"POST", post, 0},
		{"POST in two writes", post, head},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newExchanger(t, test.request, fixedResponse(1024))
			e.head = test.head
			if err := e.exchange(); err != nil {
				t.Fatal(err)
			}
			var err error
			n := testing.AllocsPerRun(2000, func() {
				if exchangeErr := e.exchange(); exchangeErr != nil {
					err = exchangeErr
				}
			})
			if err != nil || n != 0 {
				t.Errorf("%v allocations per exchange, want 0 (%v)", n, err)
			}
		})
	}
}

func BenchmarkExchange(b *testing.B) {
	post, _ := fixedPost(4 << 10)
	small, head := fixedPost(1 << 10)
	for _, bench := range []struct {
		name, request string
		head          int
		responseSize  int
	}{
		{"GET 1 KB", fixedGet, 0, 1 << 10},
		{"GET 64 KB", fixedGet, 0, 64 << 10},
		{"GET 1 MB", fixedGet, 0, 1 << 20},
		{"POST 4 KB", post, 0, 2},
		{"POST 1 KB in two writes", small, head, 2},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e := newExchanger(b, bench.request, fixedResponse(bench.responseSize))
			e.head = bench.head
			b.SetBytes(int64(len(e.request) + len(e.response)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.exchange(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUsable measures the check of a pooled connection.
func BenchmarkUsable(b *testing.B) {
	local, _ := tcpPair(b)
	c := newUpstreamConn(local, stream.UpstreamConnOptions{OnRelease: func(bool) {}})
	b.ReportAllocs()
	for b.Loop() {
		if !c.Usable(0) {
			b.Fatal("not usable")
		}
	}
}
