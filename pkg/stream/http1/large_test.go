package http1

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestTruncatedLargeBody verifies the reason recorded for a truncated large body of declared
// length, which the engine forwards from socket to socket (splice(2)).
func TestTruncatedLargeBody(t *testing.T) {
	const size, part = 8 << 20, 1 << 20
	arrived := make(chan struct{})
	for _, test := range []struct {
		name     string
		host     func(c *peer)
		client   func(c *peer) // runs after the response head
		deadline time.Duration
		want     protocol.Reason
	}{
		{"upstream closes", func(*peer) {}, func(c *peer) { c.rest() }, 0, protocol.UpstreamClosed},
		{"upstream resets", func(c *peer) { <-arrived; c.SetLinger(0) },
			func(c *peer) { c.read(part); arrived <- struct{}{}; c.rest() }, 0, protocol.UpstreamReset},
		{"upstream timeout", func(c *peer) { c.rest() }, func(c *peer) { c.rest() }, 50 * time.Millisecond, protocol.UpstreamTimeout},
		{"client closes", func(c *peer) { io.Copy(c, zeros{}) }, func(c *peer) { c.Close() }, 0, protocol.ReasonDownstreamDisconnect},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				next := o.Service
				o.Service = wrapService(next, func(x *protocol.Exchange) {
					if test.deadline > 0 {
						x.Deadline = time.Now().Add(test.deadline)
					}
				}, nil)
			})
			proxy.serve(func(c *peer) {
				c.head()
				c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: " + decimal(size) + "\r\n\r\n")
				c.Write(make([]byte, part))
				test.host(c)
			})
			c := proxy.dial()
			defer c.Close()
			c.send(get)
			if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
				t.Fatalf("the client got %q, want status 200", head)
			}
			test.client(c)
			if r := <-proxy.records; r.Reason != test.want || r.ResponseBytes >= size {
				t.Errorf("recorded %v (%s) and %d bytes, want %v and fewer than %d bytes", r.Reason, r.Detail, r.ResponseBytes, test.want, size)
			}
			if <-proxy.reusable {
				t.Error("the upstream connection was considered reusable")
			}
		})
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// watchedDownstream reports calls of OnDisconnect.
type watchedDownstream struct {
	protocol.Downstream
	watches chan<- struct{} // receives when the engine starts to watch for a disconnect
}

func (d watchedDownstream) OnDisconnect(f func()) (stop func()) {
	select {
	case d.watches <- struct{}{}:
	default:
	}
	return d.Downstream.OnDisconnect(f)
}

// TestPausingLargeBodyIsComplete verifies that the engine forwards a large body completely if the
// host pauses until the splice has timed out and the engine watches for a client disconnect.
func TestPausingLargeBodyIsComplete(t *testing.T) {
	const part = 100 << 10
	watches := make(chan struct{}, 1)
	proxy := newTestProxy(t, func(o *stream.ServerOptions) {
		o.Service = wrapService(o.Service, func(x *protocol.Exchange) {
			x.Downstream = watchedDownstream{x.Downstream, watches}
		}, nil)
	})
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: " + decimal(2*part) + "\r\n\r\n")
		c.Write(make([]byte, part))
		<-watches
		c.Write(make([]byte, part))
		c.head()
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	c.head()
	if n := len(c.read(2 * part)); n != 2*part {
		t.Errorf("the client got %d bytes, want %d", n, 2*part)
	}
	if !<-proxy.reusable {
		t.Error("the upstream connection was not reusable")
	}
}

func TestIdleTunnelEnds(t *testing.T) {
	proxy := newTestProxy(t, func(o *stream.ServerOptions) { o.IdleTimeout = 100 * time.Millisecond })
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	c.head()
	if got := c.rest(); got != "hello" {
		t.Errorf("the client got %q, want \"hello\"", got)
	}
	if r := <-proxy.records; r.ResponseBytes != 5 {
		t.Errorf("recorded %d bytes, want 5", r.ResponseBytes)
	}
	if <-proxy.reusable {
		t.Error("the upstream connection was considered reusable")
	}
}

func TestCompleteBodyCanBeRewound(t *testing.T) {
	proxy := newTestProxy(t, func(o *stream.ServerOptions) {
		next := o.Service
		o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			if err := x.Serve(ctx, next); err != nil {
				return err
			}
			x.ResetResponse()
			if !x.Request.Body.(protocol.Rewinder).Rewind() {
				return errors.New("not rewound")
			}
			return x.Serve(ctx, next)
		})
	})
	proxy.serve(func(c *peer) {
		for c.head() != "" {
			c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\n" + c.read(5))
		}
	})
	c := proxy.dial()
	defer c.Close()
	for _, body := range []string{"first", "again"} {
		c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n" + body)
		c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\n" + body)
	}
}

// TestBodyDoesNotWaitForTrailers verifies that the engine forwards buffered body bytes before the
// trailer section is complete.
func TestBodyDoesNotWaitForTrailers(t *testing.T) {
	proxy := newTestProxy(t, nil)
	arrived := make(chan struct{})
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Su")
		<-arrived
		c.send("m: 1\r\n\r\n")
		c.head()
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	c.head()
	c.expect("5\r\nhello\r\n")
	close(arrived)
	c.expect("0\r\nX-Sum: 1\r\n\r\n")
}

// TestMalformedResponseBodyIs502 verifies that the client gets a 502 if the response body fails
// before its first byte.
func TestMalformedResponseBodyIs502(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\nhello")
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 502 ") || strings.Count(got, "HTTP/1.1 ") != 1 {
		t.Errorf("the client got %q, want one response with status 502", got)
	}
	if r := <-proxy.records; r.Reason != protocol.UpstreamMalformed {
		t.Errorf("recorded %v, want %v", r.Reason, protocol.UpstreamMalformed)
	}
}

func TestDrainSendsConnectionClose(t *testing.T) {
	proxy := newTestProxy(t, nil)
	received, idleClosed := make(chan struct{}), make(chan struct{})
	drained := make(chan int, 1)
	proxy.serve(func(c *peer) {
		c.head()
		close(received)
		<-idleClosed
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	idleClient := proxy.dial()
	defer idleClient.Close()
	c.send(get)
	<-received
	go func() { drained <- proxy.listener.Drain(context.Background()) }()
	if rest := idleClient.rest(); rest != "" { // an idle connection ends immediately
		t.Errorf("the idle client got %q, want EOF", rest)
	}
	close(idleClosed)
	if got := c.rest(); !strings.Contains(got, "Connection: close\r\n") || !strings.HasSuffix(got, "ok") {
		t.Errorf("the active client got %q, want Connection: close and the body \"ok\"", got)
	}
	c.Close()
	if forceClosed := <-drained; forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
}

// TestDrainServesReceivedRequest verifies that the engine serves a request that arrived before the
// drain began, after a response without Connection: close.
func TestDrainServesReceivedRequest(t *testing.T) {
	local, peer := tcpPair(t)
	observed, drained, serveErr := make(chan struct{}), make(chan struct{}), make(chan error)
	s := NewServer(stream.ServerOptions{
		HTTP1:   config.DefaultHTTP1Options(),
		Service: echo,
		Observe: func(*protocol.Exchange) { observed <- struct{}{}; <-drained },
	})
	go func() { serveErr <- s.ServeConn(context.Background(), local) }()
	peer.send(get)
	<-observed
	if head := peer.head(); strings.Contains(head, "Connection: close\r\n") {
		t.Fatalf("response before the drain: %q, want no Connection: close", head)
	}
	peer.send(get)
	if err := local.AwaitReadable(); err != nil { // the engine does not read during the wait
		t.Fatal(err)
	}
	local.Drain(true)
	drained <- struct{}{}
	<-observed
	drained <- struct{}{}
	if head := peer.head(); !strings.HasPrefix(head, "HTTP/1.1 200 ") || !strings.Contains(head, "Connection: close\r\n") {
		t.Errorf("response to the request that had arrived: %q, want status 200 and Connection: close", head)
	}
	peer.CloseWrite()
	if err := <-serveErr; err != nil {
		t.Errorf("ServeConn = %v, want nil", err)
	}
}

func TestProtocolCreatesBothSides(t *testing.T) {
	p := Protocol()
	if p.Name != config.HTTP1 {
		t.Errorf("Name = %q, want %q", p.Name, config.HTTP1)
	}
	if _, ok := p.NewServer(stream.ServerOptions{}).(network.ClientFirstHandler); !ok {
		t.Error("the server does not implement ClientFirstHandler")
	}
	local, _ := tcpPair(t)
	c := p.NewUpstreamConn(local, stream.UpstreamConnOptions{})
	if !c.Usable(time.Second) {
		t.Error("a new connection is not usable")
	}
	if err := c.Close(); err != nil || c.Usable(time.Second) {
		t.Errorf("Close = %v, want nil and an unusable connection", err)
	}
}
