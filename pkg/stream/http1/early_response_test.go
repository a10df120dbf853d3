package http1

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

const tooLargeResponse = "HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 3\r\n\r\nbig"

// TestResponseIsForwardedIfHostStopsReading verifies that the client gets the response of a host
// that responds and closes without reading the request, which resets the connection.
func TestResponseIsForwardedIfHostStopsReading(t *testing.T) {
	for _, test := range []struct {
		name, framing, body string
		truncated           bool
	}{
		{"body sent with the head", "Content-Length: 2000", strings.Repeat("x", 2000), false},
		{"streamed body", "Content-Length: 8000000", strings.Repeat("x", 8000000), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, nil)
			proxy.serve(func(c *peer) {
				c.r.ReadByte() // the host never reads the rest, so closing resets
				c.send(tooLargeResponse)
			})
			c := proxy.dial()
			defer c.Close()
			go io.WriteString(c.TCPConn, "POST / HTTP/1.1\r\nHost: h\r\n"+test.framing+"\r\n\r\n"+test.body)
			if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 413 ") {
				t.Fatalf("the client got %q, want status 413", head)
			}
			c.expect("big")
			if <-proxy.reusable && test.truncated {
				t.Error("the upstream connection was considered reusable")
			}
			if r := <-proxy.records; r.Reason != protocol.ReasonNone {
				t.Errorf("recorded %v (%s), want no reason", r.Reason, r.Detail)
			}
		})
	}
}

// TestResponseToPartiallyWrittenRequest verifies that the engine reads the response to a partially
// written request. The request exceeds the socket buffers, and the host closes while the rest of it
// is unwritten.
func TestResponseToPartiallyWrittenRequest(t *testing.T) {
	for _, test := range []struct {
		name, response string
		status         int
		want           []protocol.Reason // any of them
	}{
		{"complete response", tooLargeResponse, 413, []protocol.Reason{protocol.ReasonNone}},
		{"no response", "", 0, []protocol.Reason{protocol.UpstreamReset, protocol.UpstreamClosed}},
		{"truncated response", tooLargeResponse[:20], 0, []protocol.Reason{protocol.UpstreamReset, protocol.UpstreamClosed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			local, peer := tcpPair(t)
			local.NetConn().(*net.TCPConn).SetWriteBuffer(1) // the kernel takes its minimum
			peer.SetReadBuffer(1)
			c, reusable := newTestUpstreamConn(local)
			go func() {
				peer.r.ReadByte() // the write has started; the host never reads the rest, so closing resets
				peer.send(test.response)
				peer.Close()
			}()
			x := newExchange("POST", protocol.NewStringBody("hello"))
			x.Request.ContentLength = 5
			x.Request.Header.Add("X-Long", strings.Repeat("x", 1<<20))
			err := c.Serve(context.Background(), x)
			if got := protocol.ReasonOf(err); !slices.Contains(test.want, got) || x.Response.Status != test.status {
				t.Fatalf("Serve = %v with status %d, want one of %v with %d", err, x.Response.Status, test.want, test.status)
			}
			if !c.requestTruncated {
				t.Error("requestTruncated = false, want true: the request was not written completely")
			}
			if err == nil {
				if body, err := io.ReadAll(x.Response.Body); string(body) != "big" || err != nil {
					t.Errorf("body = %q, %v; want \"big\"", body, err)
				}
			}
			x.ResetResponse()
			if <-reusable {
				t.Error("the connection was considered reusable")
			}
		})
	}
}

// TestBytesBeforeRequestAreNotAResponse verifies that bytes from the host before the request are
// not used as a response.
func TestBytesBeforeRequestAreNotAResponse(t *testing.T) {
	local, peer := tcpPair(t)
	c, reusable := newTestUpstreamConn(local)
	peer.send(tooLargeResponse)
	if err := local.AwaitReadable(); err != nil {
		t.Fatal(err)
	}
	if c.Usable(time.Second) {
		t.Error("the pool considered a connection with unexpected bytes usable")
	}
	peer.SetLinger(0)
	peer.Close()
	if err := local.AwaitPeerClose(true); err == nil {
		t.Fatal("AwaitPeerClose = nil, want a connection reset")
	}
	x := newExchange("GET", nil)
	if err := c.Serve(context.Background(), x); protocol.ReasonOf(err) != protocol.UpstreamReset || x.Response.Status != 0 {
		t.Errorf("Serve = %v with status %d, want upstream_reset", err, x.Response.Status)
	}
	if <-reusable {
		t.Error("the connection was considered reusable")
	}
}

// TestBytesAfterResponseMakeConnectionUnusable verifies that a connection with bytes after a
// response is not usable. Some servers send a body with a response that must have none, or respond
// twice, in the next packet. The engine must not read these bytes as the response to another
// client.
func TestBytesAfterResponseMakeConnectionUnusable(t *testing.T) { // RFC 9112 9.2
	for _, test := range []struct{ name, method, response string }{
		{"response to HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n"},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\n\r\n"},
		{"response without a body", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{"response with a body", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"chunked response", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			local, peer := tcpPair(t)
			c, reusable := newTestUpstreamConn(local)
			go func() {
				peer.head()
				peer.send(test.response)
			}()
			x := newExchange(test.method, nil)
			if err := c.Serve(context.Background(), x); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(x.Response.Body); err != nil {
				t.Fatal(err)
			}
			x.ResetResponse()
			if !<-reusable {
				t.Fatal("the connection was not reusable")
			}
			peer.send(tooLargeResponse)
			if err := local.AwaitReadable(); err != nil {
				t.Fatal(err)
			}
			if c.Usable(0) {
				t.Error("the connection was considered usable")
			}
		})
	}
}

// TestResponseBeforeBodyHasConnectionClose verifies that a response before the request body has
// Connection: close. The engine does not know whether the connection can persist.
func TestResponseBeforeBodyHasConnectionClose(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send(tooLargeResponse)
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000\r\n\r\n")
	if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 413 ") || !strings.Contains(head, "Connection: close\r\n") {
		t.Errorf("the client got %q, want status 413 and Connection: close", head)
	}
	c.expect("big")
	if rest := c.rest(); rest != "" {
		t.Errorf("the client then got %q, want EOF", rest)
	}
}

// TestDisconnectDuringRequestIsRecorded verifies that a client that disconnects within its request
// gets no response, and that the record has the reason.
func TestDisconnectDuringRequestIsRecorded(t *testing.T) {
	for _, test := range []struct{ name, request string }{
		{"head", "GET / HTTP/1.1\r\nHo"},
		{"body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc"},
		{"chunked body", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy := newTestProxy(t, nil)
			proxy.serve(func(c *peer) { c.rest() })
			c := proxy.dial()
			defer c.Close()
			c.send(test.request)
			c.CloseWrite()
			if got := c.rest(); got != "" {
				t.Errorf("the client got %q, want nothing", got)
			}
			if r := <-proxy.records; r.Reason != protocol.ReasonDownstreamDisconnect {
				t.Errorf("recorded %v (%s), want the client disconnect", r.Reason, r.Detail)
			}
		})
	}
}

// TestTruncatedResponseWithoutLengthIsAborted verifies that a truncated response to an HTTP/1.0
// client does not end with a FIN, which would mark the end of the body.
func TestTruncatedResponseWithoutLengthIsAborted(t *testing.T) { // RFC 9112 8
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	})
	c := proxy.dial()
	defer c.Close()
	c.send("GET / HTTP/1.0\r\n\r\n")
	if got, err := io.ReadAll(c.r); err == nil {
		t.Errorf("the client got %q and a FIN, as if the body were complete, want a reset, because the body is incomplete", got)
	}
}

// TestContentLengthWithoutBodyIsZero verifies that a response without a body has Content-Length: 0.
// Any other length would make the client read the next response as the body.
func TestContentLengthWithoutBodyIsZero(t *testing.T) {
	proxy := newTestProxy(t, func(o *stream.ServerOptions) {
		o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			x.Response.Status = 200
			x.Response.ContentLength = 5
			return nil
		})
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	if head := c.head(); !strings.Contains(head, "Content-Length: 0\r\n") {
		t.Errorf("the client got %q, want Content-Length: 0", head)
	}
}

// TestObserverSeesResponse verifies that Observe can read the response headers.
func TestObserverSeesResponse(t *testing.T) {
	for _, test := range []struct{ name, request, response string }{
		{"body", get, "HTTP/1.1 200 OK\r\nX-One: first\r\nContent-Length: 2\r\n\r\nok"},
		{"tunnel", "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
			"HTTP/1.1 101 Switching Protocols\r\nX-One: first\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nok"},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := make(chan string, 1)
			proxy := newTestProxy(t, func(o *stream.ServerOptions) {
				o.Observe = func(x *protocol.Exchange) { seen <- strings.Clone(x.Response.Header.Get("X-One")) }
			})
			proxy.serve(func(c *peer) {
				c.head()
				c.send(test.response)
				c.CloseWrite()
				c.rest()
			})
			c := proxy.dial()
			defer c.Close()
			c.send(test.request)
			c.head()
			c.expect("ok")
			c.CloseWrite()
			if got := <-seen; got != "first" {
				t.Errorf("the observer saw %q, want \"first\"", got)
			}
		})
	}
}

// TestRejectedRequestHasFreshRecord verifies that the record of a rejected exchange has no values
// of the previous one.
func TestRejectedRequestHasFreshRecord(t *testing.T) {
	proxy := newTestProxy(t, nil)
	proxy.serve(func(c *peer) {
		c.head()
		c.read(5)
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
	c.head()
	c.expect("ok")
	if r := <-proxy.records; r.RequestBytes != 5 {
		t.Fatalf("recorded %d request bytes, want 5", r.RequestBytes)
	}
	c.send("bad\r\n\r\n")
	c.rest()
	if r := <-proxy.records; r.RequestBytes != 0 || r.Reason != protocol.MalformedRequest {
		t.Errorf("recorded %v with %d request bytes, want MalformedRequest with 0", r.Reason, r.RequestBytes)
	}
}

// TestLastResponseIsReadableDespitePipelinedRequests verifies that a client that pipelines after
// its last permitted request gets the response, not a reset.
func TestLastResponseIsReadableDespitePipelinedRequests(t *testing.T) { // RFC 9112 9.6
	proxy := newTestProxy(t, func(o *stream.ServerOptions) { o.HTTP1.MaxRequestsPerConnection = 1 })
	proxy.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok")
		c.rest()
	})
	c := proxy.dial()
	defer c.Close()
	c.send(get)
	c.head()
	c.send(get) // arrives after the engine has sent the response
	c.expect("ok")
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if rest, err := io.ReadAll(c.r); len(rest) > 0 || err != nil {
		t.Errorf("the client then got %q, %v; want EOF", rest, err)
	}
}
