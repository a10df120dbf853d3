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
	conn      *network.Conn
	unread    []byte // bytes that came with the response head
	closed    atomic.Bool
	onRelease func(reusable bool)
}

// newTunnel takes over the connection of c. A tunnel may last for days, so newTunnel copies the
// strings of the response headers and releases their buffer.
func newTunnel(c *UpstreamConn) *tunnel {
	t := &tunnel{conn: c.conn, unread: bytes.Clone(c.in.unread()), onRelease: c.onRelease}
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
	if len(t.unread) > 0 {
		n := copy(p, t.unread)
		t.unread = t.unread[n:]
		return n, nil
	}
	return t.conn.Read(p)
}

// Write implements protocol.Tunnel.
func (t *tunnel) Write(p []byte) (int, error) { return t.conn.Write(p) }

// CloseWrite implements protocol.Tunnel.
func (t *tunnel) CloseWrite() error { return t.conn.CloseWrite() }

// SetReadDeadline sets the deadline of later reads.
func (t *tunnel) SetReadDeadline(deadline time.Time) { t.conn.SetReadDeadline(deadline) }

// Close implements protocol.Tunnel.
func (t *tunnel) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	err := t.conn.Close()
	t.onRelease(false)
	return err
}

// relayTunnel sends the response head and relays bytes until both directions have ended or one has
// failed. It returns a Fault of StreamIdle if the tunnel ended because it was idle.
func (c *downstreamConn) relayTunnel() error {
	x := &c.x
	peer := x.Response.TakeTunnel()
	c.conn.SetWriteDeadline(time.Time{}) // clear the previous exchange's deadline
	defer peer.Close()                   //nolint:errcheck // unsent bytes cannot be delivered
	if err := completeUpgrade(x); err != nil {
		return err
	}
	out := buffer.Get(requestBufferSize)
	out.SetStorage(syntax.AppendResponse(out.Storage(), &x.Response, syntax.ResponseOptions{Minor: c.framing.Minor, BecomesTunnel: true}))
	err := c.write(out.Bytes(), 0)
	out.Release()
	if err != nil {
		return err
	}
	if rest := c.in.rest; rest != nil && rest.Len() > 0 {
		unread := buffer.Get(rest.Len())
		_, _ = unread.Write(rest.Bytes()) // never fails
		rest.Discard(rest.Len())
		c.conn.Unread(unread)
	}
	c.conn.SetReadDeadline(time.Time{})
	idleTimeout := c.server.opts.IdleTimeout
	if x.IdleTimeout > 0 {
		idleTimeout = x.IdleTimeout
	}
	var counters network.RelayCounters
	counters.Relay(c.conn, peer, idleTimeout)
	x.Record.ResponseBytes += counters.In.Load()
	c.body.reader.read.Add(counters.Out.Load())
	if counters.Idle() {
		return protocol.Faultf(protocol.StreamIdle, "no byte in either direction of the tunnel for %v", idleTimeout)
	}
	return nil
}

// minSpliceBytes is the minimum number of remaining bytes for a splice. Below it, a copy is cheaper
// than the additional system calls.
const minSpliceBytes = 16 << 10

// splice lets the kernel move body bytes from the upstream's socket to the client's, if both are
// sockets, the body has no coding and at least minSpliceBytes remain. If ok is false, the caller
// must copy the body.
func (c *downstreamConn) splice(body protocol.Body, limit int64) (n int64, ok bool, err error) {
	source, isUpstreamBody := body.(*responseBody)
	if !isUpstreamBody || limit < minSpliceBytes {
		return 0, false, nil
	}
	n, ok, err = source.spliceTo(c.conn, limit)
	if n > 0 {
		c.recordProgress()
	}
	c.x.Record.ResponseBytes += n
	return n, ok, err
}

// spliceTo moves up to limit bytes to dst. It returns early, without an error, when the upstream
// pauses: the copying read handles the wait.
func (b *responseBody) spliceTo(dst *network.Conn, limit int64) (n int64, ok bool, err error) {
	if b.reader.kind != syntax.Length || b.reader.remaining < limit {
		return 0, false, nil
	}
	b.c.conn.SetReadDeadline(b.c.capDeadline(time.Now().Add(disconnectWatchDelay)))
	n, ok, readErr, writeErr := network.Splice(dst, b.c.conn, limit)
	b.reader.remaining -= n
	b.reader.read.Add(n)
	b.reader.done = b.reader.remaining == 0
	switch {
	case writeErr != nil:
		return n, true, protocol.NewFault(protocol.ReasonDownstreamDisconnect, writeErr)
	case errors.Is(readErr, os.ErrDeadlineExceeded):
		return n, n > 0, nil
	case readErr != nil:
		return n, true, b.c.readFault(unexpectedEOF(readErr))
	}
	return n, ok, nil
}
