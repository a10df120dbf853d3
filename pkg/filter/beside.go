package filter

import "github.com/weft-proxy/weft/pkg/protocol"

// Beside returns the Caller of an exchange of a filter's own that x waits for: Call
// gives that up, with DownstreamGone, once the caller of x has gone. nil if that cannot
// be seen: x has no caller, or some of its content is still on its way.
func Beside(x *protocol.Exchange) protocol.Caller {
	if x.Caller == nil || !received(&x.Request) {
		return nil
	}
	return beside{x.Caller}
}

// beside is a caller that is watched, and told nothing.
type beside struct{ caller protocol.Caller }

// Inform is protocol.Caller's.
func (beside) Inform(int, *protocol.Header) error { return nil }

// Watch is protocol.Caller's.
func (b beside) Watch(gone func()) (stop func()) { return b.caller.Watch(gone) }

// Canceled is protocol.Cancellable's.
func (b beside) Canceled() bool {
	c, ok := b.caller.(protocol.Cancellable)
	return ok && c.Canceled()
}
