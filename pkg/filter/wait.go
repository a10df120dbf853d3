package filter

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// ErrClientGone is what Wait returns when the caller has gone.
var ErrClientGone = errors.New("filter: the caller has gone")

// Wait returns nil after d, ErrClientGone once x's caller has gone, or ctx's error once that
// has ended. The caller can be watched only once all of its request has been read;
// while content is still on its way, only ctx ends the wait early.
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

// received reports whether all of a request has been read.
func received(r *protocol.Request) bool {
	return r.Body == nil || r.ContentLength >= 0 && int64(r.Body.Buffered()) >= r.ContentLength
}
