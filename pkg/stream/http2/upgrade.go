package http2

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// upgraded serves a connection that was upgraded from HTTP/1.1. The HTTP/1.1 request is stream 1,
// whose response is in HTTP/2 (RFC 7540 3.2).
type upgraded struct{ c *downstreamConn }

// Upgrade implements stream.Upgrader. It returns nil for invalid settings.
func (s *server) Upgrade(conn *network.Conn, u stream.Upgrade) network.Handler {
	settings, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(u.Settings, "="))
	if err != nil {
		return nil
	}
	c := s.newSession(conn)
	if err := c.adopt(u, settings); err != nil {
		return nil
	}
	return upgraded{c}
}

// adopt makes u's request an exchange that begins when the connection is served.
func (c *downstreamConn) adopt(u stream.Upgrade, settings []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := c.state.AdoptUpgrade(settings)
	if err != nil {
		return err
	}
	e := c.engine.newExchange()
	e.c, e.wire = c, &c.muxConn
	e.open(st, e, u.Meta.Start)
	e.take(u)
	c.inflight++
	c.unstarted = append(c.unstarted, begin{e: e})
	return nil
}

// take copies u into the exchange's request, because the caller of Upgrade reuses its memory.
func (e *exchange) take(u stream.Upgrade) {
	x := &e.x
	x.Meta = protocol.Meta{
		Conn: &e.c.meta, Protocol: string(config.HTTP2), Version: strings.Clone(u.Meta.Version),
		Start: u.Meta.Start, HeadSize: u.Meta.HeadSize,
	}
	from, to := u.Request, &x.Request
	to.Method, to.Scheme = strings.Clone(from.Method), strings.Clone(from.Scheme)
	to.Authority, to.Path = strings.Clone(from.Authority), strings.Clone(from.Path)
	for name, value := range from.Header.All() {
		// Names in HTTP/2 are lowercase (RFC 9113 8.2).
		to.Header.Add(strings.ToLower(name), strings.Clone(value))
	}
	to.ContentLength = from.ContentLength
	e.trailers = u.Trailers
	e.grpc = ""
	if protocol.IsGRPC(&to.Header) {
		e.grpc = to.Header.Get(contentType)
		takeTimeout(x)
	}
	e.in.start(&e.muxStream, &to.Trailer, 0)
	e.in.end()
	if len(u.Content) > 0 {
		to.Body = protocol.NewStringBody(string(u.Content))
		e.in.total.Store(int64(len(u.Content)))
	}
}

// IdleTimeout implements network.ClientFirstHandler.
func (u upgraded) IdleTimeout() time.Duration { return u.c.IdleTimeout() }

// ServeConn implements network.Handler. It serves the request without waiting for the client's
// preface.
func (u upgraded) ServeConn(ctx context.Context, conn *network.Conn) error {
	c := u.c
	c.batch.now = time.Now()
	if c.idle > 0 {
		c.mu.Lock()
		c.arm(c.batch.now.Add(c.idle))
		c.mu.Unlock()
	}
	c.start()
	return c.ServeConn(ctx, conn)
}
