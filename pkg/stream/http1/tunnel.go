package http1

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/buffer"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
)

// tunnel is an upstream connection that has switched protocols (RFC 9110 7.8, 9.3.6). One goroutine
// reads it and one writes it. Close is safe from any goroutine.
type tunnel struct {
	conn     *network.Conn
	early    []byte // bytes that came with the response head
	closed   atomic.Bool
	released func(reusable bool)
}

// newTunnel takes over the connection of c. A tunnel may last for days and must hold no buffer, so
// newTunnel copies the strings of the response headers.
func newTunnel(c *UpstreamConn) *tunnel {
	t := &tunnel{conn: c.conn, early: bytes.Clone(c.in.unread()), released: c.released}
	h := &c.x.Response.Header
	for i := range h.Len() {
		f := h.At(i)
		f.Name, f.Value = strings.Clone(f.Name), strings.Clone(f.Value)
	}
	c.in.release()
	c.x = nil
	c.conn.SetReadDeadline(time.Time{})
	c.conn.SetWriteDeadline(time.Time{})
	return t
}

// Read implements protocol.Tunnel.
func (t *tunnel) Read(p []byte) (int, error) {
	if len(t.early) > 0 {
		n := copy(p, t.early)
		t.early = t.early[n:]
		return n, nil
	}
	return t.conn.Read(p)
}

// Write implements protocol.Tunnel.
func (t *tunnel) Write(p []byte) (int, error) { return t.conn.Write(p) }

// CloseWrite implements protocol.Tunnel.
func (t *tunnel) CloseWrite() error { return t.conn.CloseWrite() }

// SetReadDeadline sets the deadline of later reads.
func (t *tunnel) SetReadDeadline(at time.Time) { t.conn.SetReadDeadline(at) }

// Close implements protocol.Tunnel.
func (t *tunnel) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	err := t.conn.Close()
	t.released(false)
	return err
}

// tunnel switches the downstream side: it relays bytes until both directions have ended.
func (c *downstreamConn) tunnel() error {
	x := &c.x
	peer := x.Response.TakeTunnel()
	c.conn.SetWriteDeadline(time.Time{}) // clear the previous exchange's deadline
	defer peer.Close()                   //nolint:errcheck // unsent bytes cannot be delivered
	if err := completeUpgrade(x); err != nil {
		return err
	}
	out := buffer.Get(firstRead)
	out.SetStorage(syntax.AppendResponse(out.Storage(), &x.Response, syntax.ResponseOptions{Minor: c.framing.Minor, Tunnel: true}))
	err := c.write(out.Bytes(), 0)
	out.Release()
	if err != nil {
		return err
	}
	if rest := c.in.rest; rest != nil && rest.Len() > 0 {
		early := buffer.Get(rest.Len())
		_, _ = early.Write(rest.Bytes()) // never fails
		rest.Discard(rest.Len())
		c.conn.Unread(early)
	}
	c.conn.SetReadDeadline(time.Time{})
	idle := c.s.o.IdleTimeout
	if x.IdleTimeout > 0 {
		idle = x.IdleTimeout
	}
	var t network.RelayCounters
	t.Relay(c.conn, peer, idle)
	x.Record.ResponseBytes += t.In.Load()
	c.body.content.read.Add(t.Out.Load())
	if t.Idle() {
		return protocol.Faultf(protocol.StreamIdle, "no byte in either direction of the tunnel for %v", idle)
	}
	return nil
}

// spliceFrom is the minimum number of remaining bytes for a splice. Below it, a copy is cheaper
// than the additional system calls.
const spliceFrom = 16 << 10

// splice lets the kernel move body bytes from the upstream's socket to the client's, if both are
// sockets and the body has no coding. ok is false when the caller must copy the body.
func (c *downstreamConn) splice(body protocol.Body, left int64) (n int64, ok bool, err error) {
	source, is := body.(*responseBody)
	if !is || left < spliceFrom {
		return 0, false, nil
	}
	n, ok, err = source.spliceTo(c.conn, left)
	if n > 0 {
		c.move()
	}
	c.x.Record.ResponseBytes += n
	return n, ok, err
}

// spliceTo moves up to left bytes to dst. It returns early, without an error, when the upstream
// pauses: the copying read handles the wait.
func (b *responseBody) spliceTo(dst *network.Conn, left int64) (n int64, ok bool, err error) {
	if b.content.kind != syntax.Length || b.content.left < left {
		return 0, false, nil
	}
	b.c.conn.SetReadDeadline(b.c.until(time.Now().Add(watchAfter)))
	n, ok, readErr, writeErr := network.Splice(dst, b.c.conn, left)
	b.content.left -= n
	b.content.read.Add(n)
	b.content.done = b.content.left == 0
	switch {
	case writeErr != nil:
		return n, true, protocol.NewFault(protocol.ReasonDownstreamDisconnect, writeErr)
	case errors.Is(readErr, os.ErrDeadlineExceeded):
		return n, n > 0, nil
	case readErr != nil:
		return n, true, b.c.readFault(cutShort(readErr))
	}
	return n, ok, nil
}
