package http2

import (
	"time"

	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// chargeThreshold implements connSide. It returns 1 if no request on the connection got a complete
// response and the address exceeds its flood limit: the connection may be one of many that the
// address opens.
func (c *downstreamConn) chargeThreshold(now time.Time) int {
	if !c.state.HasCompletedStream() && c.server.floodLimiter.SourceExceeded(&c.server.floodLimits, c.meta.Remote.Addr(), now) {
		return 1
	}
	return minCharges
}

// charge implements connSide.
func (c *downstreamConn) charge(n int, now time.Time) error {
	switch c.server.floodLimiter.Take(&c.server.floodLimits, c.meta.Remote.Addr(), n, now) {
	case stream.SourceExceeded:
		return &syntax.ConnectionError{Code: syntax.EnhanceYourCalm, Reason: "too many streams reset by this address", Flood: syntax.FloodSource}
	case stream.ListenerExceeded:
		return &syntax.ConnectionError{Code: syntax.EnhanceYourCalm, Reason: "too many streams reset by clients of this listener", Flood: syntax.FloodListener}
	case stream.WithinLimits:
	}
	return nil
}

// chargeRemaining charges the flood limits when the connection ends: for its remaining charges and
// for the streams that the client has just opened, if the sum exceeds minCharges. The caller holds
// mu.
func (c *downstreamConn) chargeRemaining(now time.Time) {
	n := c.state.TakeCharges(1)
	for s := range c.state.Streams() {
		if s.OpenedRecently(now) {
			n++
		}
	}
	if n > minCharges {
		// The result does not matter: this connection is ending anyway.
		c.server.floodLimiter.Take(&c.server.floodLimits, c.meta.Remote.Addr(), n, now)
	}
}
