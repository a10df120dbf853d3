package http2

import "github.com/weft-proxy/weft/pkg/network"

// effects records work that a goroutine must not do while it holds a muxConn.mu. The goroutine
// unlocks mu and then calls apply. The zero value is empty.
//
// apply handles the fields in their order. The order matters within one exchange: the pump of its
// request reports why the request ended before the call is abandoned.
type effects struct {
	received  []*pump       // pumps whose source got bytes, its end or an error: kick them
	borrower  *recvBody     // borrows bytes of the reader: copy those that its pump has not sent
	interims  *call         // claimed: forward its interim responses
	opened    []*call       // asynchronous calls that left the queue: send their bodies
	resumed   []*call       // asynchronous calls that are resolved: resume their exchanges
	abandoned []pendingCall // calls of canceled exchanges: fail them
	sendable  []*pump       // pumps whose destination was unblocked or has failed: kick them

	windowOpened *muxConn           // its send window has grown: resume blocked streams
	lingered     []*lingeringStream // streams that no longer linger: release them

	shutdownNotice *downstreamConn // its stream identifiers are running out: send the shutdown notice
	goAway         *downstreamConn // its client has seen the shutdown notice: send GOAWAY
	unresponsive   *network.Conn   // its host has not answered a PING: close the connection, so that its reader fails
}

// kickReceived adds p to received, unless it is nil.
func (fx *effects) kickReceived(p *pump) {
	if p != nil {
		fx.received = append(fx.received, p)
	}
}

// empty reports whether nothing remains to be done.
func (fx *effects) empty() bool {
	return len(fx.received)+len(fx.opened)+len(fx.resumed)+len(fx.abandoned)+len(fx.sendable)+len(fx.lingered) == 0 &&
		fx.borrower == nil && fx.interims == nil && fx.windowOpened == nil && fx.shutdownNotice == nil && fx.goAway == nil && fx.unresponsive == nil
}

// apply carries out the effects in fx, and empties fx. The caller holds no lock and owns b.
func (fx *effects) apply(b *batch) {
	if fx.empty() {
		return // most frames have no effects
	}
	for _, p := range fx.received {
		p.kick(b)
	}
	if fx.borrower != nil {
		fx.borrower.copyBorrowed()
	}
	if fx.interims != nil {
		fx.interims.continueInterims(b)
	}
	for _, c := range fx.opened {
		c.continueOpened(b)
	}
	for _, c := range fx.resumed {
		c.resumeExchange(b)
	}
	for _, pending := range fx.abandoned {
		pending.conn.abandon(pending, b)
	}
	for _, p := range fx.sendable {
		p.kick(b)
	}
	if fx.windowOpened != nil {
		fx.windowOpened.resumeBlocked(b)
	}
	for _, ls := range fx.lingered {
		ls.stop(b)
	}
	if fx.shutdownNotice != nil {
		fx.shutdownNotice.sendShutdownNotice()
	}
	if fx.goAway != nil {
		fx.goAway.sendGoAway()
	}
	if fx.unresponsive != nil {
		_ = fx.unresponsive.Close()
	}
	fx.reset()
}

// reset empties fx, but keeps the storage of its lists.
func (fx *effects) reset() {
	clear(fx.received)
	clear(fx.opened)
	clear(fx.resumed)
	clear(fx.abandoned)
	clear(fx.sendable)
	clear(fx.lingered)
	*fx = effects{
		received: fx.received[:0], opened: fx.opened[:0], resumed: fx.resumed[:0],
		abandoned: fx.abandoned[:0], sendable: fx.sendable[:0], lingered: fx.lingered[:0],
	}
}
