package http1

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestALocalReplyAfterAnUpstreamAnswered is a retry: the host's answer is dropped, and the
// second try fails at the exchange's deadline without having reached a host. The reply is
// Weft's own, so the deadline that has passed does not bound its writing.
func TestALocalReplyAfterAnUpstreamAnswered(t *testing.T) {
	upstream := newBench(t, nil)
	upstream.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
		c.rest()
	})
	released := make(chan bool, 10)
	next := &single{address: upstream.origin.Addr().String(), released: released}
	b := newBench(t, func(o *stream.ServerOptions) {
		o.HTTP1.ServerName = "weft"
		o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			if err := x.Serve(ctx, next); err != nil {
				return err
			}
			if x.Response.Source != protocol.UpstreamResponse {
				t.Errorf("the source of a host's answer is %v", x.Response.Source)
			}
			x.ResetResponse()
			x.Deadline = time.Now().Add(-time.Second)
			return protocol.Faultf(protocol.UpstreamTimeout, "no connection in time")
		})
	})
	c := b.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 504 ") || !strings.Contains(got, "\r\nServer: weft\r\n") {
		t.Errorf("the caller got %q, want a 504 of Weft's own", got)
	}
	if r := <-b.records; r.Reason != protocol.UpstreamTimeout {
		t.Errorf("recorded %v, want the timeout", r.Reason)
	}
}
