package http1

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestLocalReplyAfterUpstreamResponse verifies that the expired deadline of the exchange does not
// bound the write of a local reply. The test simulates a retry: the response of the first attempt
// is dropped, and the second attempt fails at the deadline without a host.
func TestLocalReplyAfterUpstreamResponse(t *testing.T) {
	upstream := newTestProxy(t, nil)
	upstream.serve(func(c *peer) {
		c.head()
		c.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
		c.rest()
	})
	reusable := make(chan bool, 10)
	next := &perClientService{address: upstream.host.Addr().String(), reusable: reusable}
	proxy := newTestProxy(t, func(o *stream.ServerOptions) {
		o.HTTP1.ServerName = "weft"
		o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			if err := x.Serve(ctx, next); err != nil {
				return err
			}
			if x.Response.Source != protocol.UpstreamResponse {
				t.Errorf("Source = %v, want UpstreamResponse for the response of a host", x.Response.Source)
			}
			x.ResetResponse()
			x.Deadline = time.Now().Add(-time.Second)
			return protocol.Faultf(protocol.UpstreamTimeout, "no connection in time")
		})
	})
	c := proxy.dial()
	c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	if got := c.rest(); !strings.HasPrefix(got, "HTTP/1.1 504 ") || !strings.Contains(got, "\r\nServer: weft\r\n") {
		t.Errorf("the client got %q, want a local reply with 504", got)
	}
	if r := <-proxy.records; r.Reason != protocol.UpstreamTimeout {
		t.Errorf("recorded %v, want UpstreamTimeout", r.Reason)
	}
}
