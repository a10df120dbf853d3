package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// testProxy is an engine on loopback between clients and a host that the test scripts. Its service
// uses one upstream connection for each client connection.
type testProxy struct {
	t        testing.TB
	listener *network.Listener
	host     net.Listener
	records  chan protocol.Record
	reusable chan bool // receives the argument of each OnRelease
}

func newTestProxy(t testing.TB, change func(*stream.ServerOptions)) *testProxy {
	t.Helper()
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &testProxy{t: t, host: host, records: make(chan protocol.Record, 1000), reusable: make(chan bool, 1000)}
	o := stream.ServerOptions{
		Listener: "test",
		HTTP1:    config.DefaultHTTP1Options(),
		Service:  &perClientService{address: host.Addr().String(), reusable: p.reusable},
		Observe: func(x *protocol.Exchange) {
			r := x.Record
			r.Attempts = nil
			p.records <- r
		},
	}
	if change != nil {
		change(&o)
	}
	p.listener, err = network.Listen(context.Background(), network.ListenOptions{Name: "test", Network: "tcp", Address: "127.0.0.1:0"}, NewServer(o))
	if err != nil {
		t.Fatal(err)
	}
	serveErr := make(chan error, 1)
	go func() { serveErr <- p.listener.Serve(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if forceClosed := p.listener.Drain(ctx); forceClosed > 0 {
			t.Errorf("%d connections were force-closed, want 0", forceClosed)
		}
		host.Close()
		if err := <-serveErr; err != nil {
			t.Error(err)
		}
		if n := buffer.Outstanding(); n != 0 && invariants.Enabled {
			t.Errorf("%d buffers were not released, want 0", n)
		}
	})
	return p
}

// perClientService sends the exchanges of each client over one upstream connection.
type perClientService struct {
	address  string
	reusable chan bool

	mu    sync.Mutex
	conns map[uint64]*UpstreamConn // guarded by mu; key: ID of the downstream connection
}

func (s *perClientService) Start(ctx context.Context, x *protocol.Exchange) error {
	id := x.Meta.Conn.ID
	s.mu.Lock()
	c := s.conns[id]
	s.mu.Unlock()
	if c == nil {
		conn, err := network.Dialer{}.Dial(ctx, "tcp", s.address, time.Time{})
		if err != nil {
			return err
		}
		c = newUpstreamConn(conn, stream.UpstreamConnOptions{HTTP1: config.DefaultHTTP1Options(), OnRelease: func(reusable bool) {
			if !reusable {
				c.Close()
				s.put(id, nil)
			}
			s.reusable <- reusable
		}})
		s.put(id, c)
	}
	return c.Serve(ctx, x)
}

func (s *perClientService) put(id uint64, c *UpstreamConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = make(map[uint64]*UpstreamConn)
	}
	s.conns[id] = c
}

// serve runs script on each connection to the host.
func (p *testProxy) serve(script func(c *peer)) {
	go func() {
		for {
			nc, err := p.host.Accept()
			if err != nil {
				return
			}
			go func() {
				c := newPeer(p.t, nc)
				script(c)
				c.Close()
			}()
		}
	}()
}

// dial opens a client connection to the engine.
func (p *testProxy) dial() *peer {
	nc, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	return newPeer(p.t, nc)
}

// peer is the remote end of a connection, which tests write and read directly.
type peer struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func newPeer(t testing.TB, nc net.Conn) *peer {
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{TCPConn: nc.(*net.TCPConn), t: t, r: bufio.NewReader(nc)}
}

func (p *peer) send(s string) {
	if _, err := io.WriteString(p.TCPConn, s); err != nil {
		p.t.Logf("send: %v", err)
	}
}

// head reads up to and including an empty line.
func (p *peer) head() string {
	var b strings.Builder
	for {
		line, err := p.r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

func (p *peer) read(n int) string {
	b := make([]byte, n)
	m, _ := io.ReadFull(p.r, b)
	return string(b[:m])
}

// rest reads to the end of the connection; a reset counts as the end.
func (p *peer) rest() string {
	b, err := io.ReadAll(p.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Errorf("the connection did not end: %v", err)
	}
	return string(b)
}

func (p *peer) expect(want string) {
	p.t.Helper()
	if got := p.read(len(want)); got != want {
		p.t.Errorf("read %q\nwant %q", got, want)
	}
}

const get = "GET /a%2Fb?q=1 HTTP/1.1\r\nHost: example.com\r\nX-One: 1\r\nx-two: 2\r\n\r\n"

func TestSequentialExchangesShareConnection(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		for range 3 {
			if got := c.head(); got != get {
				t.Errorf("the host got %q, want %q", got, get)
			}
			c.send("HTTP/1.1 200 OK\r\nDate: d\r\nServer: o\r\nContent-Length: 5\r\n\r\nhello")
		}
		c.head()
	})
	c := proxy.dial()
	defer c.Close()
	for range 3 {
		c.send(get)
		c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nServer: o\r\nContent-Length: 5\r\n\r\nhello")
		if r := <-proxy.records; r.Reason != protocol.ReasonNone || r.ResponseBytes != 5 {
			t.Errorf("record: reason %v, %d response bytes; want no reason, 5 bytes", r.Reason, r.ResponseBytes)
		}
	}
}

func TestPipelinedResponsesKeepOrder(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		for {
			head := c.head()
			if head == "" {
				return
			}
			path := strings.Fields(head)[1]
			if strings.HasPrefix(head, "POST") {
				c.read(3)
			}
			c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: " + "2\r\n\r\n" + path)
		}
	})
	c := proxy.dial()
	defer c.Close()
	c.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: h\r\n\r\nGET /4 HT")
	for _, path := range []string{"/1", "/2", "/3"} {
		c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\n" + path)
	}
	c.send("TP/1.1\r\nHost: h\r\n\r\n")
	c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\n/4")
}

func TestBodiesStreamInBothDirections(t *testing.T) {
	const size = 2 << 20
	for _, test := range []struct{ name, request, response string }{
		{"length", "Content-Length: 2097152", "Content-Length: 2097152"},
		{"chunked", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, nil)
			proxy.serve(func(c *peer) {
				head := c.head()
				if !strings.Contains(head, test.request) {
					t.Errorf("the host got %q, want %q in it", head, test.request)
				}
				n := checkBody(t, c.r, test.request)
				if n != size {
					t.Errorf("the host got %d bytes, want %d", n, size)
				}
				c.send("HTTP/1.1 200 OK\r\nDate: d\r\n" + test.response + "\r\n\r\n")
				sendBody(c, test.response, size)
				c.head()
			})
			c := proxy.dial()
			defer c.Close()
			go func() {
				c.send("POST / HTTP/1.1\r\nHost: h\r\n" + test.request + "\r\n\r\n")
				sendBody(c, test.request, size)
			}()
			if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || !strings.Contains(head, test.response) {
				t.Fatalf("the client got %q, want status 200 and %q", head, test.response)
			}
			if n := checkBody(t, c.r, test.response); n != size {
				t.Errorf("the client got %d bytes, want %d", n, size)
			}
			if r := <-proxy.records; r.RequestBytes != size || r.ResponseBytes != size || r.Reason != protocol.ReasonNone {
				t.Errorf("recorded %d request bytes, %d response bytes, reason %v; want %d, %d, none", r.RequestBytes, r.ResponseBytes, r.Reason, size, size)
			}
			if !<-proxy.reusable {
				t.Error("the upstream connection was not reusable")
			}
		})
	}
}

// sendBody writes a body of size bytes with a pattern. framing is the header that declares its
// length.
func sendBody(c *peer, framing string, size int) {
	w := bufio.NewWriterSize(c.TCPConn, 10000)
	defer w.Flush()
	piece := make([]byte, 1000)
	for sent := 0; sent < size; {
		n := min(len(piece), size-sent)
		for i := range n {
			piece[i] = byte((sent + i) * 7)
		}
		if strings.Contains(framing, "chunked") {
			w.WriteString(hex(n) + "\r\n")
			w.Write(piece[:n])
			w.WriteString("\r\n")
		} else {
			w.Write(piece[:n])
		}
		sent += n
	}
	if strings.Contains(framing, "chunked") {
		w.WriteString("0\r\nX-Sum: 1\r\n\r\n")
	}
}

func hex(n int) string {
	const digits = "0123456789abcdef"
	s := ""
	for ; n > 0; n /= 16 {
		s = string(digits[n%16]) + s
	}
	return s
}

// checkBody reads a body of sendBody, checks its pattern and returns the number of bytes read. It
// may run on any goroutine.
func checkBody(t testing.TB, r *bufio.Reader, framing string) int {
	t.Helper()
	total := 0
	check := func(n int) (ok bool) {
		for range n {
			c, err := r.ReadByte()
			if err != nil {
				t.Errorf("body ended after %d bytes: %v", total, err)
				return false
			}
			if c != byte(total*7) {
				t.Errorf("byte %d = %d, want %d", total, c, byte(total*7))
				return false
			}
			total++
		}
		return true
	}
	if !strings.Contains(framing, "chunked") {
		check(2 << 20)
		return total
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Errorf("chunk line after %d bytes: %v", total, err)
			return total
		}
		n := 0
		for _, d := range strings.TrimSpace(line) {
			n = n*16 + strings.IndexRune("0123456789abcdef", d)
		}
		if n == 0 {
			break
		}
		if !check(n) {
			return total
		}
		r.Discard(2)
	}
	var trailer strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\r\n" {
			break
		}
		trailer.WriteString(line)
	}
	if trailer.String() != "X-Sum: 1\r\n" {
		t.Errorf("trailer = %q, want X-Sum: 1", trailer.String())
	}
	return total
}
