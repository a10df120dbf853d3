package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// shared is a pool whose connections carry many exchanges at once. An exchange
// goes to the one with the fewest; while all are busy, one more is opened, up to
// as many as the cluster's configuration says. A connect belongs to the pool and
// not to the exchange that wanted it: whoever comes meanwhile waits for the same
// one, each as long as it may, and nobody's impatience ends it for the others.
//
// max_requests_per_conn is not for these connections: one that runs out of ids is
// not usable any more.
type shared struct {
	base
	single bool // immutable; one connection, whatever the configuration says

	mu       sync.Mutex
	lines    []*line  // guarded by mu; those that take exchanges
	turn     int      // guarded by mu; where the search for the least busy begins
	opening  *opening // guarded by mu; nil: none is being opened
	isClosed bool     // guarded by mu
	// growAt is when, by the set's clock, one connection more may be opened beside
	// those there are; guarded by mu.
	growAt time.Duration
}

// growPause is how long a pool with connections does without another that could
// not be opened.
const growPause = time.Second

// line is a connection as its pool sees it.
type line struct {
	pool  *shared
	conn  Connection
	start protocol.Starter // conn, or what makes two halves of it

	load    int           // guarded by pool.mu; exchanges that it carries
	left    bool          // guarded by pool.mu; it takes no exchange, and ends with its last
	givenUp bool          // guarded by pool.mu, until it is discarded; for another host
	used    bool          // guarded by pool.mu; an exchange left it since the last sweep
	rested  time.Duration // guarded by pool.mu; how long it was not
}

// opening is a connection that is being opened.
type opening struct {
	done chan struct{} // closed when line or err is set

	waiting int   // guarded by the pool's mu; exchanges that will be on the line
	line    *line // guarded by the pool's mu until done
	err     error // guarded by the pool's mu until done
}

// errFull is why a host has no connection.
var errFull = errors.New("all that max_connections allows are busy at other hosts")

// tries is how often an exchange is given another connection because the one it
// had been given had ended before it was sent.
const tries = 3

// Start is pool's.
func (p *shared) Start(ctx context.Context, x *protocol.Exchange) error {
	p.mu.Lock()
	l := p.ready()
	p.mu.Unlock()
	if l == nil {
		return x.Fork(ctx, p)
	}
	x.Then(p)
	return l.start.Start(ctx, x)
}

// Finish is protocol.Finisher's.
func (p *shared) Finish(ctx context.Context, x *protocol.Exchange, err error) error {
	if p.lost(x, err) {
		return x.Fork(ctx, protocol.ServiceFunc(p.again))
	}
	return err
}

// Serve is pool's.
func (p *shared) Serve(ctx context.Context, x *protocol.Exchange) error { return p.try(ctx, x, tries) }

// again is Serve for an exchange whose first connection had ended.
func (p *shared) again(ctx context.Context, x *protocol.Exchange) error {
	return p.try(ctx, x, tries-1)
}

// try gives x up to so many connections, one after the other.
func (p *shared) try(ctx context.Context, x *protocol.Exchange, most int) error {
	for range most {
		l, err := p.take(ctx, x)
		if err != nil {
			return &notSent{err}
		}
		if err = l.conn.Serve(ctx, x); !p.lost(x, err) {
			return err
		}
	}
	return &notSent{protocol.Faultf(protocol.ConnectFailure, "each of %d connections to %s had ended before the request was sent", tries, p.host.address)}
}

// lost takes note of how an exchange went on a connection, and reports whether
// that had ended before: then the exchange is in flight once more, and may have
// another.
func (p *shared) lost(x *protocol.Exchange, err error) bool {
	switch {
	case err == nil:
		p.host.answered()
		return false
	case !unsent(err) || expired(x.Until()):
		return false
	}
	p.host.cluster.again(p.host)
	return true
}

// take returns a connection that x is counted on.
func (p *shared) take(ctx context.Context, x *protocol.Exchange) (*line, error) {
	p.mu.Lock()
	if l := p.ready(); l != nil {
		p.mu.Unlock()
		return l, nil
	}
	return p.await(ctx, x)
}

// ready returns a connection on which an exchange more is counted, nil if there
// is none. p.mu is held, and may be released meanwhile.
func (p *shared) ready() *line {
	for {
		l, dead := p.least()
		if dead == nil {
			if l != nil {
				if l.load > 0 {
					p.grow()
				}
				l.load++
			}
			return l
		}
		p.mu.Unlock()
		dead.discard()
		p.mu.Lock()
	}
}

// least returns the connection that carries the fewest exchanges, nil if there is
// none; of equals, each in its turn. What it finds unusable it removes; if that
// carries nothing, it is dead and to be discarded. p.mu is held.
func (p *shared) least() (best, dead *line) {
	p.turn++
	for i := 0; i < len(p.lines); {
		l := p.lines[(p.turn+i)%len(p.lines)]
		if !l.conn.Usable(0) {
			p.leave(l)
			if l.load == 0 {
				return nil, l
			}
			best, i = nil, 0 // what is left has moved up
			continue
		}
		if best == nil || l.load < best.load {
			best = l
		}
		i++
	}
	return best, nil
}

// leave makes l take no exchange. p.mu is held.
func (p *shared) leave(l *line) {
	l.left = true
	if i := slices.Index(p.lines, l); i >= 0 {
		p.lines = slices.Delete(p.lines, i, i+1)
	}
}

// await counts x on the connection that is being opened, and waits for it. p.mu
// is held, and released.
func (p *shared) await(ctx context.Context, x *protocol.Exchange) (*line, error) {
	c := p.host.cluster
	limit := c.settings().Breakers.MaxPendingRequests
	if !enter(&c.pending, limit) {
		p.mu.Unlock()
		c.overflows.Add(1)
		c.count(PendingOverflow)
		return nil, protocol.Faultf(protocol.Overflow, "cluster %s: max_pending_requests (%d) reached", c.name, limit)
	}
	defer c.pending.Add(-1)
	if p.opening == nil {
		p.begin(false)
	}
	o := p.opening
	o.waiting++
	p.mu.Unlock()

	x.Detach()
	_, why := await(ctx, x.Until(), x.Caller, o.done)
	switch {
	case why == protocol.None:
		return o.line, o.err
	case p.desert(o):
		return nil, protocol.Faultf(why, "while a connection to %s was being opened", p.host.address)
	default:
		return o.line, o.err // at the last moment
	}
}

// desert takes back that an exchange waits for o, and reports false if it need
// not wait any more.
func (p *shared) desert(o *opening) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.line != nil || o.err != nil {
		return false
	}
	o.waiting--
	return true
}

// grow opens one connection more, if the cluster may have it. p.mu is held.
func (p *shared) grow() {
	if p.single || p.opening != nil {
		return
	}
	cfg := p.host.cluster.settings()
	if len(p.lines) >= cfg.Pool.Connections || !p.host.health.up() || p.host.cluster.env.now() < p.growAt {
		return
	}
	s := &p.host.cluster.slots
	if s.waiting.Load() > 0 || !s.take(cfg.Breakers.MaxConnections) {
		return
	}
	p.begin(true)
}

// begin opens a connection; slot says that one is taken. p.mu is held.
func (p *shared) begin(slot bool) {
	o := &opening{done: make(chan struct{})}
	p.opening = o
	p.host.cluster.env.start(func() { p.finish(o, slot) })
}

// finish opens the connection that o is to have.
func (p *shared) finish(o *opening, slot bool) {
	l := &line{pool: p}
	err := p.dial(l, slot)
	p.mu.Lock()
	p.opening = nil
	if err != nil {
		o.err = err
		p.mu.Unlock()
		close(o.done)
		return
	}
	o.line = l
	l.load, l.used = o.waiting, true
	if l.left = p.isClosed || l.load == 0 && p.host.cluster.scarce(); !l.left {
		p.lines = append(p.lines, l)
		p.arm(p)
	}
	idle := l.left && l.load == 0
	p.mu.Unlock()
	close(o.done)
	if idle {
		l.discard()
	}
}

// dial opens l's connection within connect_timeout, and while max_connections is
// reached waits as long for a slot.
func (p *shared) dial(l *line, slot bool) (err error) {
	c := p.host.cluster
	s := c.state.Load()
	limit := s.config.Breakers.MaxConnections
	if !slot && (c.slots.waiting.Load() > 0 || !c.slots.take(limit)) {
		c.count(ConnectionOverflow)
		_, err = c.wait(c.env.ctx, s.connectBy(), nil, &p.base, nil)
		switch {
		case err != nil && c.env.ctx.Err() != nil:
			return protocol.Faultf(protocol.ConnectFailure, "connecting to %s: the clusters are closed", p.host.address)
		case err != nil: // another host may have a connection
			return protocol.Faultf(protocol.Overflow, "%s has no connection: %w (%d)", p.host.address, errFull, limit)
		}
	}
	l.conn, err = p.connect(c.env.ctx, s.connectBy(), l.released)
	if err == nil {
		l.start = protocol.Halves(l.conn)
		return nil
	}
	c.freeSlot()
	if c.env.ctx.Err() == nil {
		p.failed(err)
	}
	return err
}

// failed takes note that a connection could not be opened. A host that has
// another is not down for that: it may have as many as it wants.
func (p *shared) failed(err error) {
	p.mu.Lock()
	p.growAt = p.host.cluster.env.now() + growPause
	more := len(p.lines) > 0
	p.mu.Unlock()
	if more {
		p.host.countFailed()
	} else {
		p.host.connectFailed(err)
	}
}

// released is called by the connection when an exchange has left it.
func (l *line) released(reusable bool) {
	p := l.pool
	p.host.load.End()
	p.host.cluster.active.Add(-1)
	p.mu.Lock()
	l.load--
	l.used = true
	switch {
	case l.left:
	case !reusable, l.load == 0 && p.host.cluster.scarce():
		p.leave(l)
	case p.givesUp():
		l.givenUp = true
		p.leave(l)
	}
	over := l.left && l.load == 0
	p.mu.Unlock()
	if over {
		l.discard()
	}
}

// givesUp reports whether one of several connections that always carry something is
// to end with its last exchange, because another host waits for one: for each that
// waits, one. p.mu is held.
func (p *shared) givesUp() bool {
	s := &p.host.cluster.slots
	if len(p.lines) < 2 || s.waiting.Load() == 0 {
		return false
	}
	if s.leaving.Add(1) <= s.waiting.Load() {
		return true
	}
	s.leaving.Add(-1)
	return false
}

// scarce reports whether connections are so few that one which carries nothing
// is to end: somebody waits for its slot, or max_connections was lowered. It is
// asked after the others can see that the connection carries nothing, or with the
// lock held that keeps them from looking: so no wake-up is lost.
func (c *Cluster) scarce() bool {
	if c.slots.waiting.Load() > 0 {
		return true
	}
	limit := c.settings().Breakers.MaxConnections
	return limit > 0 && c.slots.open.Load() > int64(limit)
}

// discard ends a connection that carries nothing and frees its slot.
func (l *line) discard() {
	l.end()
	if l.givenUp {
		l.pool.host.cluster.slots.leaving.Add(-1)
	}
	l.pool.host.cluster.freeSlot()
}

// end is ender's.
func (l *line) end() { l.pool.ended(l.conn) }

// giveWay is pool's.
func (p *shared) giveWay() ender {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.load == 0 {
			p.leave(l)
			return l
		}
	}
	return nil
}

// counts is pool's.
func (p *shared) counts() (open int64, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.load == 0 {
			idle++
		}
	}
	return p.open.Load(), idle
}

// swept ends the connections that carried nothing for the idle timeout, or are
// not usable any more. It runs on the timer.
func (p *shared) swept() {
	timeout, since := p.host.cluster.settings().IdleTimeout, p.sweepEvery()
	p.mu.Lock()
	var over []*line
	most := max(p.host.cluster.settings().Pool.Connections, 1) // it may have been lowered
	for _, l := range slices.Clone(p.lines) {
		if l.used || l.load > 0 {
			l.used, l.rested = false, 0
		} else {
			l.rested += since
		}
		old := timeout > 0 && l.rested >= timeout
		if !old && len(p.lines) <= most && l.conn.Usable(l.rested) {
			continue
		}
		p.leave(l)
		if l.load == 0 {
			over = append(over, l)
		}
	}
	p.mu.Unlock()
	for _, l := range over {
		l.discard()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rearm(!p.isClosed && len(p.lines) > 0)
}

// close is pool's.
func (p *shared) close() {
	p.mu.Lock()
	p.isClosed = true
	var idle []*line
	for _, l := range p.lines {
		l.left = true
		if l.load == 0 {
			idle = append(idle, l)
		}
	}
	p.lines = nil
	p.still()
	p.mu.Unlock()
	for _, l := range idle {
		l.discard()
	}
}
