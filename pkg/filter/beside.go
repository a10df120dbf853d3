package filter

import "github.com/weft-proxy/weft/pkg/protocol"

// DisconnectWatcher returns the Caller for an exchange that a filter sends itself while x waits
// for it. Call gives that exchange up, with DownstreamGone, once the client of x disconnects. It
// returns nil if a disconnect cannot be seen: x has no client, or part of its body has not
// arrived.
func DisconnectWatcher(x *protocol.Exchange) protocol.Downstream {
	if x.Caller == nil || !received(&x.Request) {
		return nil
	}
	return beside{x.Caller}
}

// beside watches a client and sends it nothing.
type beside struct{ caller protocol.Downstream }

// SendInterim implements protocol.Downstream.
func (beside) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream.
func (b beside) OnDisconnect(gone func()) (stop func()) { return b.caller.OnDisconnect(gone) }

// Canceled implements protocol.Cancellable.
func (b beside) Canceled() bool {
	c, ok := b.caller.(protocol.Cancellable)
	return ok && c.Canceled()
}
