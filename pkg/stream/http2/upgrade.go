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

// upgradedConn serves a connection that was upgraded from HTTP/1.1. The HTTP/1.1 request is stream
// 1, whose response is in HTTP/2 (RFC 7540 3.2).
type upgradedConn struct{ c *downstreamConn }

// Upgrade implements stream.Upgrader. It returns nil for invalid settings.
func (s *server) Upgrade(conn *network.Conn, u stream.Upgrade) network.Handler {
	settings, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(u.Settings, "="))
	if err != nil {
		return nil
	}
	c := s.newDownstreamConn(conn)
	if err := c.adoptUpgrade(u, settings); err != nil {
		return nil
	}
	return upgradedConn{c}
}

// adoptUpgrade makes u's request an exchange that starts when the connection is served.
func (c *downstreamConn) adoptUpgrade(u stream.Upgrade, settings []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := c.state.AdoptUpgrade(settings)
	if err != nil {
		return err
	}
	e := c.engine.newExchange()
	e.downstream, e.conn = c, &c.muxConn
	e.attach(st, e, u.Meta.Start)
	e.copyUpgrade(u)
	c.inflight++
	c.unstarted = append(c.unstarted, unstartedExchange{e: e})
	return nil
}

// copyUpgrade copies u into the exchange's request, because the caller of Upgrade reuses its
// memory.
func (e *exchange) copyUpgrade(u stream.Upgrade) {
	x := &e.x
	x.Meta = protocol.Meta{
		Conn: &e.downstream.meta, Protocol: string(config.HTTP2), Version: strings.Clone(u.Meta.Version),
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
	e.acceptsTrailers = u.AcceptsTrailers
	e.grpcContentType = ""
	if protocol.IsGRPC(&to.Header) {
		e.grpcContentType = to.Header.Get(contentType)
		setDeadlineFromGRPCTimeout(x)
	}
	e.in.start(&e.muxStream, &to.Trailer, 0)
	e.in.markComplete()
	if len(u.Body) > 0 {
		to.Body = protocol.NewStringBody(string(u.Body))
		e.in.received.Store(int64(len(u.Body)))
	}
}

// IdleTimeout implements network.ClientFirstHandler.
func (u upgradedConn) IdleTimeout() time.Duration { return u.c.IdleTimeout() }

// ServeConn implements network.Handler. It serves the request without waiting for the client's
// preface.
func (u upgradedConn) ServeConn(ctx context.Context, conn *network.Conn) error {
	c := u.c
	c.batch.now = time.Now()
	if c.streamIdleTimeout > 0 {
		c.mu.Lock()
		c.arm(c.batch.now.Add(c.streamIdleTimeout))
		c.mu.Unlock()
	}
	c.start()
	return c.ServeConn(ctx, conn)
}
