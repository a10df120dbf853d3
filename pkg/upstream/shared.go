package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// shared is a pool whose connections carry many exchanges at once. An exchange
// goes to the one with the fewest; while all are busy, one more is opened, up to
// as many as the cluster's configuration says, and beyond that while all of them
// carry as many as the host takes. A connect belongs to the pool and
// not to the exchange that wanted it: whoever comes meanwhile waits for the same
// one, each as long as it may, and nobody's impatience ends it for the others.
//
// max_requests_per_conn is not for these connections: one that runs out of ids is
// not usable any more.
type shared struct {
	base
	single bool // immutable; one connection, whatever the configuration says

	// lines are those that take exchanges: a new slice for each change, made with mu
	// held.
	lines atomic.Pointer[[]*line]
	turn  atomic.Uint32 // where the search for the least busy begins

	mu       sync.Mutex
	opening  *opening // guarded by mu; nil: none is being opened
	isClosed bool     // guarded by mu
	// growAt is when, by the set's clock, one connection more may be opened beside
	// those there are; guarded by mu.
	growAt time.Duration
}

// growPause is how long a pool with connections does without another that could
// not be opened.
const growPause = time.Second

// opening is a connection that is being opened.
type opening struct {
	done  chan struct{} // closed when line or err is set
	seats atomic.Int64  // once done is closed: exchanges that are counted on line, and have not come yet

	waiting int   // guarded by the pool's mu; exchanges that wait for the line
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
	l := p.ready()
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
	p.breaker.again(p.host)
	return true
}

// take returns a connection that x is counted on.
func (p *shared) take(ctx context.Context, x *protocol.Exchange) (*line, error) {
	for {
		if l := p.ready(); l != nil {
			return l, nil
		}
		p.mu.Lock()
		switch l := p.least(); {
		case l != nil && !l.full():
			p.mu.Unlock() // one has come meanwhile
			continue
		case l != nil && p.opening == nil && !p.openAnother():
			ok := l.enter() // to wait there: it does not leave while p.mu is held
			p.mu.Unlock()
			if ok {
				return l, nil
			}
			continue
		}
		l, err := p.await(ctx, x)
		if l != nil || err != nil {
			return l, err
		}
	}
}

// all returns the connections that take exchanges: not to be changed.
func (p *shared) all() []*line {
	if lines := p.lines.Load(); lines != nil {
		return *lines
	}
	return nil
}

// ready returns a connection on which an exchange more is counted, nil if there
// is none, or all are full. In steady state it takes no lock.
func (p *shared) ready() *line {
	for {
		l := p.least()
		if l == nil {
			return nil
		}
		if !l.conn.Usable(0) {
			p.retire(l)
			continue
		}
		if l.full() {
			return nil
		}
		if l.load.Load() > 0 && p.mayGrow() {
			p.grow()
		}
		if l.enter() {
			return l
		}
	}
}

// least returns the connection that carries the fewest exchanges, nil if there is
// none; of equals, each in its turn.
func (p *shared) least() *line {
	lines := p.all()
	switch len(lines) {
	case 0:
		return nil
	case 1:
		return lines[0]
	}
	turn := int(p.turn.Add(1))
	var best *line
	fewest := int64(0)
	for i := range lines {
		l := lines[(turn+i)%len(lines)]
		if n := l.load.Load(); best == nil || n < fewest {
			best, fewest = l, n
		}
	}
	return best
}

// leave makes l take no exchange, and reports whether it is to be discarded: it
// carries none. p.mu is held.
func (p *shared) leave(l *line) bool {
	p.remove(l)
	for {
		n := l.load.Load()
		if n < 0 {
			return false // it has left, and somebody else discards it
		}
		if l.load.CompareAndSwap(n, n-gone) {
			return n == 0
		}
	}
}

// remove takes l out of lines. p.mu is held.
func (p *shared) remove(l *line) {
	lines := p.all()
	if i := slices.Index(lines, l); i >= 0 {
		fewer := slices.Concat(lines[:i], lines[i+1:])
		p.lines.Store(&fewer)
	}
}

// retire is leave for whoever does not hold p.mu.
func (p *shared) retire(l *line) {
	p.mu.Lock()
	over := p.leave(l)
	p.keepWarm()
	p.mu.Unlock()
	if over {
		l.discard()
	}
}

// await waits for the connection that is being opened, and returns it if x is
// counted on it; nil without an error: it takes less than wait for it, or could not
// be opened beside others. p.mu is held, and released.
func (p *shared) await(ctx context.Context, x *protocol.Exchange) (*line, error) {
	if err := p.breaker.enterPending(); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	defer p.breaker.pending.Add(-1)
	if p.opening == nil {
		p.begin(false)
	}
	o := p.opening
	o.waiting++
	p.mu.Unlock()

	x.Detach()
	_, why := await(ctx, x.Until(), x.Caller, o.done)
	if why != protocol.None && p.desert(o) {
		return nil, protocol.Faultf(why, "while a connection to %s was being opened", p.host.address)
	}
	switch { // it is open, if at the last moment
	case o.err != nil && len(p.all()) > 0:
		return nil, nil
	case o.err == nil && o.seats.Add(-1) < 0:
		return nil, nil
	}
	return o.line, o.err
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

// isWarm reports whether there is to be a connection ahead of exchanges.
func (p *shared) isWarm() bool {
	cfg := p.host.cluster.settings()
	return cfg.Pool.Warm == p.protocol && cfg.Pool.Mode == config.Multiplex && p.breaker.priority == config.DefaultPriority
}

// warm opens a connection, if there is none.
func (p *shared) warm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepWarm()
}

// keepWarm is warm for whoever holds p.mu. It takes no connection from another host,
// and nobody's turn: while max_connections is reached there is none.
func (p *shared) keepWarm() {
	if len(p.all()) > 0 || p.opening != nil || p.isClosed || !p.isWarm() {
		return
	}
	if b := p.breaker; b.slots.waiting.Load() == 0 && b.slots.take(b.limits().MaxConnections) {
		p.begin(true)
	}
	p.arm(p) // to try again if that fails
}

// mayGrow reports whether grow might open one connection more.
func (p *shared) mayGrow() bool { return !p.single && len(p.all()) < p.most() }

// most is how many connections there may be that no limit of the host's asks for.
func (p *shared) most() int { return max(p.host.cluster.settings().Pool.Connections, 1) }

// grow opens one connection more, if the cluster may have it.
func (p *shared) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opening == nil && p.mayGrow() {
		_ = p.openAnother() // or none
	}
}

// openAnother opens a connection beside others, and reports false if there can be none
// now. p.mu is held.
func (p *shared) openAnother() bool {
	b := p.breaker
	if p.single || p.isClosed || !p.host.health.up() || p.host.cluster.env.now() < p.growAt {
		return false
	}
	if b.slots.waiting.Load() > 0 || !b.slots.take(b.limits().MaxConnections) {
		return false
	}
	p.begin(true)
	return true
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
	seats := int64(o.waiting)
	if limit := l.limit(); limit > 0 {
		seats = min(seats, limit)
	}
	o.seats.Store(seats)
	l.load.Store(seats)
	l.used.Store(true)
	over := false
	if p.isClosed || o.waiting == 0 && p.breaker.scarce() {
		over = p.leave(l)
	} else {
		more := append(slices.Clone(p.all()), l)
		p.lines.Store(&more)
		p.arm(p)
	}
	p.mu.Unlock()
	close(o.done)
	if over {
		l.discard()
	}
}

// dial opens l's connection within connect_timeout, and while max_connections is
// reached waits as long for a slot.
func (p *shared) dial(l *line, slot bool) (err error) {
	c := p.host.cluster
	s := c.state.Load()
	b, limit := p.breaker, s.config.Limits(p.breaker.priority).MaxConnections
	if !slot && (b.slots.waiting.Load() > 0 || !b.slots.take(limit)) {
		b.reached(ConnectionOverflow)
		_, err = b.wait(c.env.ctx, s.connectBy(), nil, &p.base, nil)
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
		l.limited, _ = l.conn.(Limited)
		return nil
	}
	b.freeSlot()
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
	more := len(p.all()) > 0
	p.mu.Unlock()
	if more {
		p.host.countFailed()
	} else {
		p.host.connectFailed(err)
	}
}

// giveUp makes one of several connections that always carry something end with its
// last exchange, because another host waits for one: for each that waits, one.
func (p *shared) giveUp(l *line) {
	s := &p.breaker.slots
	p.mu.Lock()
	if len(p.all()) < 2 || l.load.Load() < 0 {
		p.mu.Unlock()
		return
	}
	if s.leaving.Add(1) > s.waiting.Load() {
		s.leaving.Add(-1)
		p.mu.Unlock()
		return
	}
	l.givenUp = true
	over := p.leave(l)
	p.mu.Unlock()
	if over {
		l.discard()
	}
}

// scarce reports whether connections are so few that one which carries nothing
// is to end: somebody waits for its slot, or max_connections was lowered. It is
// asked after the others can see that the connection carries nothing, or with the
// lock held that keeps them from looking: so no wake-up is lost.
func (b *Breaker) scarce() bool {
	if b.slots.waiting.Load() > 0 {
		return true
	}
	limit := b.limits().MaxConnections
	return limit != 0 && b.slots.open.Load() > int64(limit)
}

// giveWay is pool's.
func (p *shared) giveWay() ender {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.all() {
		if l.load.CompareAndSwap(0, -gone) {
			p.remove(l)
			return l
		}
	}
	return nil
}

// counts is pool's.
func (p *shared) counts() (open int64, idle int) {
	for _, l := range p.all() {
		if l.load.Load() == 0 {
			idle++
		}
	}
	return p.open.Load(), idle
}

// roundTrip is the longest that a connection measured last; 0: none has.
func (p *shared) roundTrip() (longest time.Duration) {
	for _, l := range p.all() {
		if c, ok := l.conn.(Timed); ok {
			longest = max(longest, c.RoundTrip())
		}
	}
	return longest
}

// swept ends the connections that carried nothing for the idle timeout, or are
// not usable any more. It runs on the timer.
func (p *shared) swept() {
	timeout, since := p.host.cluster.settings().IdleTimeout, p.sweepEvery()
	p.mu.Lock()
	var over []*line
	most := p.most() // it may have been lowered
	for _, l := range p.all() {
		if l.used.Swap(false) || l.load.Load() > 0 {
			l.rested = 0
		} else {
			l.rested += since
		}
		old := timeout > 0 && l.rested >= timeout && !(len(p.all()) == 1 && p.isWarm())
		surplus := len(p.all()) > most && (l.limited == nil || l.load.Load() == 0)
		if !old && !surplus && l.conn.Usable(l.rested) {
			continue
		}
		if p.leave(l) {
			over = append(over, l)
		}
	}
	p.mu.Unlock()
	for _, l := range over {
		l.discard()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepWarm()
	p.rearm(!p.isClosed && (len(p.all()) > 0 || p.isWarm()))
}

// close is pool's.
func (p *shared) close() {
	p.mu.Lock()
	p.isClosed = true
	var idle []*line
	for _, l := range p.all() {
		if p.leave(l) {
			idle = append(idle, l)
		}
	}
	p.still()
	p.mu.Unlock()
	for _, l := range idle {
		l.discard()
	}
}
