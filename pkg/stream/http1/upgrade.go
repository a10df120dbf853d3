package http1

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
	"github.com/weft-proxy/weft/pkg/stream"
)

// switching is the answer to a request after which the connection speaks HTTP/2
// (RFC 7540 3.2).
const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

// upgrade looks whether the request that was read asks for HTTP/2, and returns who
// goes on with the connection if so. nil: the request is served as any other. That
// is so for a request whose content is not at hand, for it would have to be read
// before the first frame; for one over TLS, where ALPN chooses (RFC 7540 3.3); for one
// whose target the listener does not serve; and on a connection that is about to end.
func (c *downstreamConn) upgrade() network.Handler {
	x, f := &c.x, &c.framing
	b := &c.body.content
	if f.HTTP2Settings == "" || c.unrouted || c.s.o.H2C == nil || c.meta.Secure || c.conn.Draining() ||
		!f.KeepAlive || f.Body != syntax.NoBody && b.whole < 0 || x.Request.ExpectContinue {
		return nil
	}
	u := stream.Upgrade{Request: &x.Request, Meta: &x.Meta, Settings: f.HTTP2Settings, Trailers: f.Trailers}
	if b.whole > 0 {
		u.Content = c.in.unread()[:b.whole]
	}
	return c.s.o.H2C.Upgrade(c.conn, u)
}

// handOver lets next go on with the connection, behind the request that it has
// taken. What came behind that is its to read. The session is given back.
func (c *downstreamConn) handOver(ctx context.Context, next network.Handler) error {
	s, conn := c.s, c.conn
	conn.SetReadDeadline(time.Time{})
	conn.SetWriteDeadline(time.Time{})
	_, _ = conn.Write([]byte(switching)) // that the caller is gone shows when it is read from
	if rest := c.in.rest; rest != nil {
		rest.Discard(max(0, c.body.content.whole))
	}
	c.in.endMessage()
	if c.in.rest != nil {
		conn.Unread(c.in.rest)
		c.in.rest = nil
	}
	c.x.Reset()
	s.give(c)
	conn.Handler = next
	return next.ServeConn(ctx, conn)
}
