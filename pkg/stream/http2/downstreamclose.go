package http2

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// maxRequestsReached reports whether the connection has reached its maximum number of requests.
func (c *downstreamConn) maxRequestsReached() bool {
	maxRequests := c.server.opts.HTTP1.MaxRequestsPerConnection
	return maxRequests > 0 && c.conn.Requests >= maxRequests
}

// sendShutdownNotice sends the GOAWAY that announces the end of the connection, once (RFC 9113
// 6.8). Requests that the client sends before it has seen the notice are still served.
func (c *downstreamConn) sendShutdownNotice() {
	if !c.shutdownNoticeAt.IsZero() {
		return
	}
	c.shutdownNoticeAt = time.Now()
	c.mu.Lock()
	c.enqueueBatched(c.state.AppendPing(c.state.AppendShutdownNotice(c.scratch[:0]), drainPing), &c.batch)
	c.mu.Unlock()
	c.flush()
}

// sendGoAwayAfterGrace sends the final GOAWAY once DrainGrace has passed since the shutdown notice,
// even if the client has not acknowledged the PING.
func (c *downstreamConn) sendGoAwayAfterGrace() {
	if !c.shutdownNoticeAt.IsZero() && c.batch.now.Sub(c.shutdownNoticeAt) >= c.server.opts.HTTP2.DrainGrace {
		c.sendGoAway()
	}
}

// sendGoAway queues the final GOAWAY, which names the last stream, once.
func (c *downstreamConn) sendGoAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.goAwaySent {
		return
	}
	c.goAwaySent = true
	c.enqueueBatched(c.state.AppendGoAway(c.scratch[:0], syntax.NoError, ""), &c.batch)
}

// SendGoAway implements network.GoAwayHandler. A parked connection has no exchange in flight, so
// one GOAWAY is enough. The client may retry a request that crosses the GOAWAY (RFC 9113 6.8).
func (c *downstreamConn) SendGoAway() {
	c.mu.Lock()
	c.enqueue(c.state.AppendGoAway(c.scratch[:0], syntax.NoError, ""))
	c.mu.Unlock()
	_ = c.writeQueue.Flush() // the connection ends anyway
}

// setCloseReason sets the close reason, and logs and reports a flood. It returns the error to log:
// see stream.CloseReasonOf. The caller calls it after close, because the callback for floods may
// panic.
func (c *downstreamConn) setCloseReason(err error, partialFrame bool) error {
	reason := &c.conn.CloseReason
	var connErr *syntax.ConnectionError
	if !errors.As(err, &connErr) {
		*reason, err = stream.CloseReasonOf(err, partialFrame)
		if err == nil && !c.shutdownNoticeAt.IsZero() {
			*reason = c.drainCloseReason()
		}
		return err
	}
	switch {
	case connErr.Flood != syntax.NoFlood:
		*reason = network.ClosedFloodLimit
		if skipped, ok := c.server.floodLimiter.AllowLog(time.Now()); ok {
			c.server.opts.Log.Warn("downstream connection closed because of a flood", "listener", c.server.opts.Listener,
				"remote", c.meta.RemoteText, "flood", connErr.Flood.String(), "not_logged_before", skipped)
		}
		if onFlood := c.engine.onFlood; onFlood != nil {
			onFlood(connErr.Flood)
		}
	case connErr.Code == syntax.InternalError:
		*reason = network.ClosedInternalError
	default:
		*reason = network.ClosedProtocolError
	}
	return err
}

// drainCloseReason returns the close reason of a connection that ended after the shutdown notice.
func (c *downstreamConn) drainCloseReason() network.CloseReason {
	if c.maxRequestsReached() && !c.conn.Draining() {
		return network.ClosedMaxRequests
	}
	return network.ClosedDrained
}

// close ends the exchanges in flight because the connection ends, and waits for them. It still
// sends queued responses.
func (c *downstreamConn) close(err error, cancel context.CancelFunc) {
	c.mu.Lock()
	c.chargeRemaining(time.Now())
	var connErr *syntax.ConnectionError
	switch {
	case errors.As(err, &connErr):
		c.enqueueBatched(c.state.AppendGoAway(c.scratch[:0], connErr.Code, connErr.Reason), &c.batch)
	case err != io.EOF:
		c.enqueueBatched(c.state.AppendGoAway(c.scratch[:0], syntax.NoError, ""), &c.batch)
	}
	c.mu.Unlock()
	c.batch.now = time.Now()
	c.batch.flush()
	if connErr != nil {
		stream.Linger(c.conn, lingerTime, stream.MaxReadPerFlush) // the client reads the GOAWAY
	}
	c.read.Release()
	cancel()
	c.failStreams(protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the connection is closed"), &c.batch)
	c.startExchanges() // the unstarted exchanges end immediately
	c.mu.Lock()
	for c.inflight > 0 {
		c.inflightCond.Wait()
	}
	c.mu.Unlock()
	c.writeQueue.Close()
}
