package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// pause returns after d, or with a Fault of DownstreamGone once the caller has gone
// or ctx has ended. The caller can be watched once all of its request is here; while
// content is on its way, only ctx ends the pause early.
func pause(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	x.Detach()
	gone := make(chan struct{})
	if x.Caller != nil && arrived(&x.Request) {
		defer x.Caller.Watch(func() { close(gone) })()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-gone:
		return protocol.NewFault(protocol.DownstreamGone, errors.New("client gone before a retry"))
	case <-ctx.Done():
		return protocol.NewFault(protocol.DownstreamGone, ctx.Err())
	}
}

// arrived reports whether all of a request is here.
func arrived(r *protocol.Request) bool {
	return r.Body == nil || r.ContentLength >= 0 && int64(r.Body.Buffered()) >= r.ContentLength
}
