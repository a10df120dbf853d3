package http1

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
	"github.com/weft-proxy/weft/pkg/stream"
)

// switchingProtocols is the response to a request after which the connection speaks HTTP/2 (RFC
// 7540 3.2).
const switchingProtocols = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

// upgrade returns the handler that continues the connection in HTTP/2, if the request asks for it.
// It returns nil if the request is to be served in HTTP/1.1: the listener does not support HTTP/2;
// the body is chunked, or is incomplete and would have to be read before the first frame; the
// client waits for 100 (Continue); the request came over TLS, where ALPN chooses (RFC 7540 3.3);
// the listener does not serve the target; the connection is about to end; or the HTTP/2 engine
// rejects the upgrade.
func (c *downstreamConn) upgrade() network.Handler {
	x, f := &c.x, &c.framing
	b := &c.body.reader
	if f.HTTP2Settings == "" || c.targetNotServed || c.server.opts.H2C == nil || c.meta.Secure || c.conn.Draining() ||
		!f.KeepAlive || f.Body != syntax.NoBody && b.bufferedSize < 0 || x.Request.ExpectContinue {
		return nil
	}
	u := stream.Upgrade{Request: &x.Request, Meta: &x.Meta, Settings: f.HTTP2Settings, AcceptsTrailers: f.AcceptsTrailers}
	if b.bufferedSize > 0 {
		u.Body = c.in.unread()[:b.bufferedSize]
	}
	return c.server.opts.H2C.Upgrade(c.conn, u)
}

// handOver sends the 101 and passes the connection to next, which has taken over the request and
// reads the bytes after it. handOver returns c to the pool.
func (c *downstreamConn) handOver(ctx context.Context, next network.Handler) error {
	s, conn := c.server, c.conn
	conn.SetReadDeadline(time.Time{})
	conn.SetWriteDeadline(time.Time{})
	_, _ = conn.Write([]byte(switchingProtocols)) // the next read detects a disconnect
	if rest := c.in.rest; rest != nil {
		rest.Discard(max(0, c.body.reader.bufferedSize))
	}
	c.in.endMessage()
	if c.in.rest != nil {
		conn.Unread(c.in.rest)
		c.in.rest = nil
	}
	c.x.Reset()
	s.putConn(c)
	conn.Handler = next
	return next.ServeConn(ctx, conn)
}
