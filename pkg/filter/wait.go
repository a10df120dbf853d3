package filter

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// ErrClientGone is the error of Wait when the client disconnects.
var ErrClientGone = errors.New("filter: the client disconnected")

// Wait returns nil after d, ErrClientGone once x's client disconnects, or ctx's error once ctx
// ends. Wait can watch the client only when the whole request has arrived; while part of the body
// is missing, only ctx ends the wait early.
func Wait(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	x.Detach()
	gone := make(chan struct{})
	if x.Caller != nil && received(&x.Request) {
		defer x.Caller.OnDisconnect(func() { close(gone) })()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-gone:
		return ErrClientGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// received reports whether the whole request has arrived.
func received(r *protocol.Request) bool {
	return r.Body == nil || r.ContentLength >= 0 && int64(r.Body.Buffered()) >= r.ContentLength
}
