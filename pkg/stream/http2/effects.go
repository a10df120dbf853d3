package http2

import "github.com/weft-proxy/weft/pkg/network"

// effects says what remains to be done after code that held a muxConn.mu has changed the state of
// streams. That code adds to it; then its caller releases the lock and calls apply. The zero value
// is empty.
//
// apply handles the fields in their order. It matters within one exchange: the pump of its request
// reports why the request ended before the call is abandoned.
type effects struct {
	received  []*pump       // pumps whose source got bytes, its end or an error: kick them
	borrower  *recvBody     // borrows bytes of the reader: it copies those that its pump has not sent
	interims  *call         // claimed: forward its interim responses
	opened    []*call       // asynchronous calls that left the queue: send their bodies
	resumed   []*call       // asynchronous calls that are resolved: resume their exchanges
	abandoned []pendingCall // calls whose clients have disconnected or timed out: fail them
	sendable  []*pump       // pumps whose destination was unblocked or has failed: kick them

	windowOpened *muxConn           // its send window has grown: resume blocked streams
	lingered     []*lingeringStream // streams that stop to linger: release them

	shutdownNotice *downstreamConn // its stream identifiers run out: send the shutdown notice
	goAway         *downstreamConn // its client has seen the shutdown notice: send GOAWAY
	unresponsive   *network.Conn   // the host acknowledges no PING: close it, and its reader notices
}

// kickReceived adds p to received, unless it is nil.
func (f *effects) kickReceived(p *pump) {
	if p != nil {
		f.received = append(f.received, p)
	}
}

// empty reports whether nothing remains to be done.
func (f *effects) empty() bool {
	return len(f.received)+len(f.opened)+len(f.resumed)+len(f.abandoned)+len(f.sendable)+len(f.lingered) == 0 &&
		f.borrower == nil && f.interims == nil && f.windowOpened == nil && f.shutdownNotice == nil && f.goAway == nil && f.unresponsive == nil
}

// apply does what f says, and empties f. The caller holds no lock and owns b.
func (f *effects) apply(b *batch) {
	if f.empty() {
		return // most frames
	}
	for _, p := range f.received {
		p.kick(b)
	}
	if f.borrower != nil {
		f.borrower.copyBorrowed()
	}
	if f.interims != nil {
		f.interims.continueInterims(b)
	}
	for _, k := range f.opened {
		k.continueOpened(b)
	}
	for _, k := range f.resumed {
		k.resumeExchange(b)
	}
	for _, on := range f.abandoned {
		on.conn.abandon(on, b)
	}
	for _, p := range f.sendable {
		p.kick(b)
	}
	if f.windowOpened != nil {
		f.windowOpened.resumeBlocked(b)
	}
	for _, r := range f.lingered {
		r.stop(b)
	}
	if f.shutdownNotice != nil {
		f.shutdownNotice.sendShutdownNotice()
	}
	if f.goAway != nil {
		f.goAway.sendGoAway()
	}
	if f.unresponsive != nil {
		_ = f.unresponsive.Close()
	}
	f.reset()
}

// reset empties f, but keeps the storage of its lists.
func (f *effects) reset() {
	clear(f.received)
	clear(f.opened)
	clear(f.resumed)
	clear(f.abandoned)
	clear(f.sendable)
	clear(f.lingered)
	*f = effects{
		received: f.received[:0], opened: f.opened[:0], resumed: f.resumed[:0],
		abandoned: f.abandoned[:0], sendable: f.sendable[:0], lingered: f.lingered[:0],
	}
}
