package filter

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// ErrClientDisconnected is the error of Wait when the client disconnects.
var ErrClientDisconnected = errors.New("filter: the client disconnected")

// Wait returns nil after d, ErrClientDisconnected once x's client disconnects, or ctx's error once
// ctx ends. Wait can watch the client only when the whole request has arrived; while part of the
// body is missing, only ctx ends the wait early.
func Wait(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	x.Detach()
	disconnected := make(chan struct{})
	if x.Downstream != nil && requestComplete(&x.Request) {
		defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-disconnected:
		return ErrClientDisconnected
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requestComplete reports whether the whole request has arrived.
func requestComplete(r *protocol.Request) bool {
	return r.Body == nil || r.ContentLength >= 0 && int64(r.Body.Buffered()) >= r.ContentLength
}
