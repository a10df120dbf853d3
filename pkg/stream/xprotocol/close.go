package xprotocol

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// sendGoAway asks the client to send no more requests on this connection.
func (c *downstreamConn) sendGoAway() {
	if !c.goAwayAt.IsZero() {
		return
	}
	c.goAwayAt = time.Now()
	if c.server.traits.OptInGoAway && !c.server.opts.RPC.SendGoAway {
		return // a silent connection closes after the close grace, others when the drain deadline is near
	}
	c.sendFrame(func(dst []byte) []byte { return c.server.codec.AppendGoAway(dst, 0) })
	c.batch.flush()
}

// rejectAndClose rejects the requests that have not started, waits for those in flight, and
// lingers. It processes no more input, so a client that keeps sending cannot delay the close.
func (c *downstreamConn) rejectAndClose() error {
	c.rejecting = true
	err := c.read()
	c.flush()
	if c.await(func() bool { return c.inflight.count() == 0 }) {
		c.writeQueue.Close()
		if err == nil {
			c.in.Release()
			stream.Linger(c.conn, stream.CloseGrace, 0)
		}
	}
	return stream.ErrDrained
}

// respondToAll serves the requests that were read and waits for their responses. The client has
// half-closed or closed the connection.
func (c *downstreamConn) respondToAll() {
	c.flush()
	c.await(func() bool { return c.inflight.count() == 0 })
}

// abort ends the connection because of err: the client would wait for a response forever. b is the
// batch of the calling goroutine. The reader may be inside a read, for which Close would wait
// forever, so on the reader abort only interrupts the read, and run returns err. On any other
// goroutine, abort closes the connection.
func (c *downstreamConn) abort(b *batch, err error) {
	if b != &c.batch {
		_ = c.conn.Close() // the listener closes it again
		return
	}
	c.abortErr = fmt.Errorf("a response could not be sent: %w", err)
	c.conn.Interrupt()
}

// observeMalformed reports malformed input to the observer. It sends no response, because the
// request id is not known.
func (c *downstreamConn) observeMalformed(err error) {
	s := c.server
	if s.opts.Observe == nil {
		return
	}
	var x protocol.Exchange
	x.Reset()
	x.Meta.Conn = &c.meta
	x.Meta.Protocol, x.Meta.Version = s.traits.Name, s.traits.Version
	x.Meta.Start = c.batch.now
	x.LocalReplyError(err)
	x.Response.Status = 0
	x.Record.End = time.Now()
	defer s.engine.goroutines.Contain("recording a malformed frame")
	s.opts.Observe(&x)
}

// close abandons the requests in flight, whose client has disconnected, and waits for them to end.
// One-way requests continue until they end or abandonAll notifies them. close still sends the
// responses in the batch.
func (c *downstreamConn) close(cancel context.CancelFunc) {
	c.in.Release()
	c.dropUnstarted()
	c.batch.flush()
	cancel()
	if c.inflight.count() > 0 {
		_ = c.conn.Close() // the listener closes it again
		stop := c.abandonAll()
		c.inflight.drain()
		stop()
	}
	c.inflight.close()
	c.writeQueue.Close()
}

// dropUnstarted cancels the requests that have not started. Unless the connection rejects requests,
// it serves one-way requests instead, because their client does not wait for a response.
func (c *downstreamConn) dropUnstarted() {
	for r := c.unstarted.pop(); r != nil; r = c.unstarted.pop() {
		if r.oneWay() && !c.rejecting {
			r.serve(&c.batch)
		} else {
			r.cancel(&c.batch)
		}
	}
}

// abandonAll notifies every request in flight that its client has disconnected. It notifies one-way
// requests immediately if the drain deadline is near, and otherwise when oneWayCtx ends. stop
// cancels the later notification.
func (c *downstreamConn) abandonAll() (stop func()) {
	includeOneWay := c.oneWayCtx.Err() != nil || c.conn.DrainExpiring()
	if !c.abandon(includeOneWay) {
		return func() {}
	}
	done := make(chan struct{})
	cancel := context.AfterFunc(c.oneWayCtx, func() {
		defer close(done)
		defer c.server.engine.goroutines.Contain("canceling one-way requests")
		c.abandon(true)
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}

// abandon notifies every request in flight that its client has disconnected, but one-way requests
// only if includeOneWay is true. It reports whether it skipped any. The reader calls it, or another
// goroutine while the reader waits for the requests to end.
func (c *downstreamConn) abandon(includeOneWay bool) (skipped bool) {
	var pending []pendingCall
	for _, r := range c.inflight.active() {
		if r.oneWay() && !includeOneWay {
			skipped = true
			continue
		}
		for _, call := range [...]pendingCall{r.sentCall, r.watch.NotifyDisconnect(c.server.engine.goroutines.Start)} {
			if call.conn != nil {
				pending = append(pending, call)
			}
		}
	}
	c.batch.now = time.Now()
	for _, call := range pending {
		call.conn.abandon(call.id, &c.batch)
	}
	c.batch.flush()
	return skipped
}
