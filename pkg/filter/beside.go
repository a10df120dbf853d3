package filter

import "github.com/weft-proxy/weft/pkg/protocol"

// DisconnectWatcher returns the Caller of an exchange of a filter's own that x waits for: Call
// gives that up, with DownstreamGone, once the caller of x has gone. nil if that cannot
// be seen: x has no caller, or some of its content is still on its way.
func DisconnectWatcher(x *protocol.Exchange) protocol.Downstream {
	if x.Caller == nil || !received(&x.Request) {
		return nil
	}
	return beside{x.Caller}
}

// beside is a caller that is watched, and told nothing.
type beside struct{ caller protocol.Downstream }

// SendInterim is protocol.Downstream's.
func (beside) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect is protocol.Downstream's.
func (b beside) OnDisconnect(gone func()) (stop func()) { return b.caller.OnDisconnect(gone) }

// Canceled is protocol.Cancellable's.
func (b beside) Canceled() bool {
	c, ok := b.caller.(protocol.Cancellable)
	return ok && c.Canceled()
}
