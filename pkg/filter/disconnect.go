package filter

import "github.com/weft-proxy/weft/pkg/protocol"

// DisconnectWatcher returns the Downstream for an exchange that a filter sends itself while x waits
// for it. Call gives that exchange up, with DownstreamGone, once the client of x disconnects. It
// returns nil if a disconnect cannot be seen: x has no client, or part of its body has not
// arrived.
func DisconnectWatcher(x *protocol.Exchange) protocol.Downstream {
	if x.Downstream == nil || !requestComplete(&x.Request) {
		return nil
	}
	return disconnectWatcher{x.Downstream}
}

// disconnectWatcher watches a client and sends it nothing.
type disconnectWatcher struct{ downstream protocol.Downstream }

// SendInterim implements protocol.Downstream.
func (disconnectWatcher) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream.
func (b disconnectWatcher) OnDisconnect(gone func()) (stop func()) {
	return b.downstream.OnDisconnect(gone)
}

// Canceled implements protocol.Cancellable.
func (b disconnectWatcher) Canceled() bool {
	c, ok := b.downstream.(protocol.Cancellable)
	return ok && c.Canceled()
}
