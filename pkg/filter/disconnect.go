package filter

import "github.com/weft-proxy/weft/pkg/protocol"

// DisconnectWatcher returns the Downstream for an exchange that a filter sends while x waits. When
// the client of x disconnects, ClusterClient.Call cancels that exchange with
// ReasonDownstreamDisconnect. DisconnectWatcher returns nil if Weft cannot detect a disconnect: x
// has no client, its body has not arrived completely, or the length of its body is unknown.
func DisconnectWatcher(x *protocol.Exchange) protocol.Downstream {
	if x.Downstream == nil || !requestComplete(&x.Request) {
		return nil
	}
	return disconnectWatcher{x.Downstream}
}

// disconnectWatcher is a Downstream that reports the disconnect of a client and drops interim
// responses.
type disconnectWatcher struct{ downstream protocol.Downstream }

// SendInterim implements protocol.Downstream.
func (disconnectWatcher) SendInterim(int, *protocol.Header) error { return nil }

// OnDisconnect implements protocol.Downstream.
func (w disconnectWatcher) OnDisconnect(onDisconnect func()) (stop func()) {
	return w.downstream.OnDisconnect(onDisconnect)
}

// Canceled implements protocol.Cancellable.
func (w disconnectWatcher) Canceled() bool {
	c, ok := w.downstream.(protocol.Cancellable)
	return ok && c.Canceled()
}
