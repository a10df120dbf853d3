// Package wait lets an exchange wait for a channel until its deadline or the disconnect of its
// client.
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

// For receives v from ready and returns ReasonNone. It returns UpstreamTimeout at the deadline
// (zero: none), or ReasonDownstreamDisconnect if the client disconnects or ctx ends. downstream may
// be nil.
func For[T any](ctx context.Context, deadline time.Time, downstream protocol.Downstream, ready <-chan T) (v T, reason protocol.Reason) {
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	disconnected := make(chan struct{})
	if downstream != nil {
		stop := downstream.OnDisconnect(func() { close(disconnected) })
		defer stop()
	}
	select {
	case v = <-ready:
		return v, protocol.ReasonNone
	case <-timeout:
		return v, protocol.UpstreamTimeout
	case <-disconnected:
		return v, protocol.ReasonDownstreamDisconnect
	case <-ctx.Done():
		return v, protocol.ReasonDownstreamDisconnect
	}
}
