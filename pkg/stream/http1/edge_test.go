package http1

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

func TestInterimResponsesAreForwarded(t *testing.T) { // RFC 9110 15.2
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n")
		c.head()
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	c.expect("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n")

	http10Client := proxy.dial() // HTTP/1.0 has no interim responses
	defer http10Client.Close()
	http10Client.send("GET / HTTP/1.0\r\n\r\n")
	if got := http10Client.head(); !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\nDate: d\r\n") {
		t.Errorf("an HTTP/1.0 client got %q, want only the final response", got)
	}
}

func TestExpectContinueIsForwarded(t *testing.T) { // RFC 9110 10.1.1
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		if head := c.head(); !strings.Contains(head, "Expect: 100-continue\r\n") {
			t.Errorf("the host got %q, want Expect: 100-continue", head)
		}
		c.send("HTTP/1.1 100 Continue\r\n\r\n")
		c.expect("hello")
		c.send("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n")
		c.head()
	})
	c := proxy.dial()
	defer c.Close()
	c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	c.expect("HTTP/1.1 100 Continue\r\n\r\n")
	c.send("hello")
	c.expect("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n")
	if !<-proxy.reusable {
		t.Error("the upstream connection was not reusable")
	}
}

func TestEarlyFinalResponseSkipsBody(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 417 Expectation Failed\r\nDate: d\r\nContent-Length: 2\r\n\r\nno")
		if rest := c.rest(); rest != "" {
			t.Errorf("the host then got %q, want EOF", rest)
		}
	})
	c := proxy.dial()
	defer c.Close()
	c.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\nExpect: 100-continue\r\n\r\n")
	head := c.head()
	if !strings.HasPrefix(head, "HTTP/1.1 417 ") {
		t.Errorf("the client got %q, want status 417", head)
	}
	c.expect("no")
	if <-proxy.reusable {
		t.Error("the upstream connection was considered reusable")
	}
	if rest := c.rest(); rest != "" {
		t.Errorf("the client then got %q, want EOF", rest)
	}
}

func TestResponseBeforeEndOfBody(t *testing.T) { // RFC 9112 9.5
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n")
		for _, piece := range []string{"one", "two"} { // the host echoes each chunk
			c.expect("3\r\n" + piece + "\r\n")
			c.send("3\r\n" + piece + "\r\n")
		}
		c.expect("0\r\n\r\n")
		c.send("0\r\n\r\n")
		c.head()
	})
	c := proxy.dial()
	defer c.Close()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
	if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") {
		t.Fatalf("the client got %q, want status 200", head)
	}
	for _, piece := range []string{"one", "two"} {
		c.send("3\r\n" + piece + "\r\n")
		c.expect("3\r\n" + piece + "\r\n")
	}
	c.send("0\r\n\r\n")
	c.expect("0\r\n\r\n")
	if !<-proxy.reusable {
		t.Error("the upstream connection was not reusable")
	}
}

// TestResponseOvertakingUploadKeepsConnection verifies that both connections persist if the
// response arrives before the goroutine that sent the last body bytes has run again.
func TestResponseOvertakingUploadKeepsConnection(t *testing.T) {
	const size, requests = 60_000, 300
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		for range requests {
			c.head()
			if got := len(c.read(size)); got != size {
				return
			}
			c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c := proxy.dial()
	defer c.Close()
	body := strings.Repeat("x", size)
	for i := range requests {
		c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n" + body)
		if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || strings.Contains(head, "close") {
			t.Fatalf("request %d got %q, want status 200 without Connection: close", i, head)
		}
		c.expect("ok")
		if !<-proxy.reusable {
			t.Fatalf("the upstream connection of request %d was not reusable", i)
		}
	}
}

// TestResponseBeforeEndOfBodyClosesConnection verifies that a response to a part of the body has
// Connection: close and ends the connection.
func TestResponseBeforeEndOfBodyClosesConnection(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.read(10)
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n0123456789")
	if head := c.head(); !strings.Contains(head, "Connection: close\r\n") {
		t.Errorf("the client got %q, want Connection: close", head)
	}
	c.expect("ok")
	if <-proxy.reusable {
		t.Error("the upstream connection was considered reusable")
	}
}

func TestDisconnectEndsUpstreamRequest(t *testing.T) {
	for _, test := range []struct {
		name   string
		action func(*peer)
	}{
		{"close", func(c *peer) { c.Close() }},
		{"reset", func(c *peer) { c.SetLinger(0); c.Close() }},
		{"close after a pipelined request", func(c *peer) { c.send(get); c.Close() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, nil)
			received, hostRead := make(chan struct{}), make(chan string)
			proxy.serve(func(c *peer) {
				c.head()
				close(received)
				hostRead <- c.rest()
			})
			c := proxy.dial()
			c.send(get)
			<-received
			test.action(c)
			if rest := <-hostRead; rest != "" {
				t.Errorf("the host then got %q, want EOF", rest)
			}
			if r := <-proxy.records; r.Reason != protocol.ReasonDownstreamDisconnect {
				t.Errorf("recorded %v, want the client disconnect", r.Reason)
			}
		})
	}
}

func TestDisconnectDuringResponseEndsUpstreamRequest(t *testing.T) {
	proxy := newTestProxy(t, nil)
	started, hostDone := make(chan struct{}), make(chan struct{})
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		close(started)
		c.rest()
		close(hostDone)
	})
	c := proxy.dial()
	c.send(get)
	<-started
	c.head()
	c.Close()
	<-hostDone
	if r := <-proxy.records; r.Reason != protocol.ReasonDownstreamDisconnect {
		t.Errorf("recorded %v, want the client disconnect", r.Reason)
	}
}

//arch:clock nothing signals that the disconnect watch, which begins after a delay, ignores the FIN
func TestHalfClosedClientGetsResponse(t *testing.T) {
	for _, slow := range []bool{false, true} {
		proxy := newTestProxy(t, func(o *stream.ServerOptions) { o.HTTP1.AllowHalfClose = slow })
		proxy.serve(func(c *peer) {
			c.head()
			if slow {
				time.Sleep(2 * disconnectWatchDelay)
			}
			c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
			c.head()
		})
		c := proxy.dial()
		c.send(get)
		c.CloseWrite()
		c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
		c.Close()
	}
}

func TestTruncatedUpstreamResponseIsDetected(t *testing.T) {
	for _, test := range []struct {
		name, response string
		want           protocol.Reason
		head           string // prefix of the response
		complete       bool
	}{
		{"before the head", "", protocol.UpstreamClosed, "HTTP/1.1 502 ", true},
		{"within the head", "HTTP/1.1 200 OK\r\nDate: d\r\nContent-", protocol.UpstreamClosed, "HTTP/1.1 502 ", true},
		{"within a body of declared length", "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 10\r\n\r\nhello", protocol.UpstreamClosed, "HTTP/1.1 200 ", false},
		{"within a chunked body", "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", protocol.UpstreamClosed, "HTTP/1.1 200 ", false},
		{"after the last byte", "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello", protocol.ReasonNone, "HTTP/1.1 200 ", true},
		{"body until close", "HTTP/1.1 200 OK\r\nDate: d\r\n\r\nhello", protocol.ReasonNone, "HTTP/1.1 200 ", true},
		{"garbage", "SSH-2.0-OpenSSH\r\n\r\n", protocol.UpstreamMalformed, "HTTP/1.1 502 ", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, nil)
			proxy.serve(func(c *peer) {
				c.head()
				c.send(test.response)
			})
			c := proxy.dial()
			defer c.Close()
			c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			got := c.rest()
			if !strings.HasPrefix(got, test.head) {
				t.Errorf("the client got %q, want the prefix %q", got, test.head)
			}
			if looksComplete := strings.HasSuffix(got, "0\r\n\r\n") || strings.Contains(got, "Content-Length: 5\r\n") || strings.HasPrefix(got, "HTTP/1.1 502"); looksComplete != test.complete {
				t.Errorf("the response looks complete: %v, want %v: %q", looksComplete, test.complete, got)
			}
			if r := <-proxy.records; r.Reason != test.want {
				t.Errorf("recorded %v (%s), want %v", r.Reason, r.Detail, test.want)
			}
		})
	}
}

func TestBytesAfterResponsePreventReuse(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 4\r\n\r\nevil")
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	c.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
	if <-proxy.reusable {
		t.Error("the pool considered a connection with unexpected bytes reusable")
	}
}

func TestUpgradeTunnelsBothDirections(t *testing.T) { // RFC 9110 7.8
	proxy := newTestProxy(t, func(o *stream.ServerOptions) { o.HTTP1.MaxRequestsPerConnection = 1 }) // does not apply to tunnels
	proxy.serve(func(c *peer) {
		head := c.head()
		if !strings.Contains(head, "Upgrade: websocket\r\n") || !strings.Contains(head, "Connection: upgrade\r\n") {
			t.Errorf("the host got %q, want Upgrade: websocket and Connection: upgrade", head)
		}
		c.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
		c.expect("ping")
		c.send("pong")
		c.CloseWrite()
		c.expect("last bytes")
	})
	c := proxy.dial()
	defer c.Close()
	c.send("GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nping")
	head := c.head()
	if !strings.HasPrefix(head, "HTTP/1.1 101 ") || !strings.Contains(head, "Upgrade: websocket\r\n") {
		t.Fatalf("the client got %q, want status 101 and Upgrade: websocket", head)
	}
	c.expect("earlypong")
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("the client's read returned %v, want io.EOF after the half-close of the host", err)
	}
	c.send("last bytes")
	c.CloseWrite()
	<-proxy.records
}

func TestUnrequestedUpgradeIsRejected(t *testing.T) { // RFC 9110 15.2.2
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 502 ") {
		t.Errorf("the client got %q, want status 502", head)
	}
}

func TestResponsesWithoutBody(t *testing.T) {
	for _, test := range []struct{ name, request, response, want string }{
		{"HEAD keeps the length", "HEAD", "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 500\r\n\r\n", "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 500\r\n\r\n"},
		{"204", "GET", "HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n", "HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"},
		{"304 keeps the length", "GET", "HTTP/1.1 304 Not Modified\r\nDate: d\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nDate: d\r\nContent-Length: 9\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, nil)
			proxy.serve(func(c *peer) {
				for c.head() != "" {
					c.send(test.response)
				}
			})
			c := proxy.dial()
			defer c.Close()
			for range 2 { // the second request shows that the connection is in sync
				c.send(test.request + " / HTTP/1.1\r\nHost: h\r\n\r\n")
				c.expect(test.want)
			}
		})
	}
}

func TestRejectionsCloseConnection(t *testing.T) {
	for _, test := range []struct {
		name, request, want string
	}{
		{"CL and TE", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400 "},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"head too large", "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 20000) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"target too long", "GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 414 "},
		{"body too large", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200\r\n\r\n" + strings.Repeat("a", 200), "HTTP/1.1 413 "},
		{"chunked body too large", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n78\r\n" + strings.Repeat("a", 120) + "\r\n0\r\n\r\n", "HTTP/1.1 413 "},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, func(o *stream.ServerOptions) { o.HTTP1.MaxRequestBodySize = 100 })
			proxy.serve(func(c *peer) { c.rest() })
			c := proxy.dial()
			defer c.Close()
			c.send(test.request + "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
			got := c.rest()
			if !strings.HasPrefix(got, test.want) || strings.Count(got, "HTTP/1.1 ") != 1 {
				t.Errorf("the client got %q, want one %q", got, test.want)
			}
			if !strings.Contains(got, "Connection: close\r\n") {
				t.Errorf("response %q, want Connection: close", got)
			}
		})
	}
}

func TestSlowRequestsGet408(t *testing.T) {
	for _, test := range []struct{ name, request string }{
		{"head", "GET / HTTP/1.1\r\nHo"},
		{"body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.HTTP1.HeadTimeout = 50 * time.Millisecond
				o.HTTP1.BodyTimeout = 50 * time.Millisecond
			})
			proxy.serve(func(c *peer) { c.rest() })
			c := proxy.dial()
			defer c.Close()
			c.send(test.request)
			if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
				t.Errorf("the client got %q, want status 408", got)
			}
			if r := <-proxy.records; r.Reason != protocol.RequestTimeout {
				t.Errorf("recorded %v, want %v", r.Reason, protocol.RequestTimeout)
			}
		})
	}
}

func TestHTTP10Clients(t *testing.T) { // RFC 9112 9.3, 7
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		for c.head() != "" {
			c.send("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
		}
	})
	c := proxy.dial()
	defer c.Close()
	c.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	if got := c.rest(); !strings.HasSuffix(got, "\r\n\r\nhello") || strings.Contains(got, "chunked") {
		t.Errorf("the client got %q, want the body \"hello\" without a coding", got)
	}
}

func TestUpstreamTimeout(t *testing.T) {
	upstream := newTestProxy(t, nil)
	upstream.serve(func(c *peer) { c.rest() })
	proxy := newTestProxy(t, func(o *stream.ServerOptions) {
		next := &perClientService{address: upstream.host.Addr().String(), reusable: make(chan bool, 10)}
		o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			x.Deadline = x.Meta.Start.Add(30 * time.Millisecond)
			return x.Serve(ctx, next)
		})
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 504 ") {
		t.Errorf("the client got %q, want status 504", head)
	}
}
