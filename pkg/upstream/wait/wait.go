// Package wait waits for what an exchange needs, as long as the exchange may wait.
package wait

import (
	"context"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Expired reports whether a deadline has passed; the zero time never does.
func Expired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// For waits for ready, until the deadline (UpstreamTimeout; zero: none), or until the client
// disconnects or ctx ends (ReasonDownstreamDisconnect). caller may be nil. With ReasonNone it has
// received v.
func For[T any](ctx context.Context, deadline time.Time, caller protocol.Downstream, ready <-chan T) (v T, why protocol.Reason) {
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	gone := make(chan struct{})
	if caller != nil {
		stop := caller.OnDisconnect(func() { close(gone) })
		defer stop()
	}
	select {
	case v = <-ready:
		return v, protocol.ReasonNone
	case <-timeout:
		return v, protocol.UpstreamTimeout
	case <-gone:
		return v, protocol.ReasonDownstreamDisconnect
	case <-ctx.Done():
		return v, protocol.ReasonDownstreamDisconnect
	}
}
