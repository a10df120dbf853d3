package filter

import (
	"context"
	"errors"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// ErrClientDisconnected is the error of Wait and WaitFor when the client disconnects.
var ErrClientDisconnected = errors.New("filter: the client disconnected")

// Wait waits for d, as WaitFor waits for a channel.
func Wait(ctx context.Context, x *protocol.Exchange, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return WaitFor(ctx, x, timer.C)
}

// WaitFor returns nil when ready delivers a value or is closed, ErrClientDisconnected once x's
// client disconnects, or ctx's error once ctx ends. WaitFor does not watch the client if the body
// has not arrived completely or its length is unknown; then only ctx ends the wait early.
func WaitFor[T any](ctx context.Context, x *protocol.Exchange, ready <-chan T) error {
	x.Detach()
	disconnected := make(chan struct{})
	if x.Downstream != nil && requestComplete(&x.Request) {
		defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
	}
	select {
	case <-ready:
		return nil
	case <-disconnected:
		return ErrClientDisconnected
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requestComplete reports whether the complete request has arrived. It returns false if the length
// of the body is unknown.
func requestComplete(r *protocol.Request) bool {
	return r.Body == nil || r.ContentLength >= 0 && int64(r.Body.Buffered()) >= r.ContentLength
}
