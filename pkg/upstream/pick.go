package upstream

import (
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// maxPicks is how often the balancer is asked before all hosts are looked at, which gives
// the first after a row of hosts that are down more than its share. It answers with a
// usable host at once unless hosts are down, have just begun or were tried, and asking
// it again keeps the shares of the others as they should be. That takes most where the
// least load wins: hosts that are down have none. Few hosts are soon all known.
const (
	maxPicks        = 32
	maxPicksPerHost = 6 // for each host
)

// maxUnhealthyPicks is how many hosts that are known to be down one exchange tries when
// there is no other. Each costs a refused connect.
const maxUnhealthyPicks = 16

// probeInterval is how long a group's hosts that get nothing are left alone between two
// looks at them.
const probeInterval = minBackoff

// pick returns the host to try next, nil if there is none left. Hash is what the
// exchange goes by, 0 for nothing. Attempts from index first on were made in this
// call of Serve: their hosts could not be reached and are not tried again. From best
// to last resort it returns
//
//  1. a host that is usable, or due for a trial, and was not tried for this exchange:
//     of the block that the plan says, then of the others by priority;
//  2. one that is usable and was tried before: a retry, where there is no other host;
//  3. one that is down, of a level in panic, or of any if none is up: being wrong about
//     most of them must not be an outage.
//
// In a level that is in panic a host is usable unless it is unreachable: that is
// known at first hand. A host that is leaving is none of these.
func (g *hostSet) pick(hash uint64, attempts []protocol.Attempt, first int) *Host {
	p := g.plan.Load()
	if p == nil {
		return nil
	}
	if p.starved {
		if h := g.hostToProbe(attempts); h != nil {
			return h
		}
	}
	switch {
	case !g.hashing && !p.split:
		hash = 0 // nobody will look
	case hash == 0 || !g.hashing:
		hash = g.env.random()
	}
	l, b := g.place(p, hash)
	c := hostPicker{hostSet: g, attempts: attempts, first: first, key: balance.Key{Hash: hash}}
	if h := c.draw(b, p.levels[l].panic); h != nil {
		return h
	}
	return c.search(p, l, b)
}

// place returns the level and the block that a hash, or random bits, belong to.
func (g *hostSet) place(p *loadPlan, bits uint64) (int, *localityGroup) {
	l := 0
	if len(p.levels) > 1 {
		l = p.level(pointOf(hash.Nth(bits, 1<<32)))
	}
	if p.levels[l].blocks == nil {
		return l, &g.levels[l].blocks[0]
	}
	return l, &g.levels[l].blocks[p.levels[l].block(pointOf(hash.Nth(bits, 1<<33)))]
}

// hostPicker is one choice.
type hostPicker struct {
	*hostSet
	attempts []protocol.Attempt
	first    int
	key      balance.Key
}

// draw asks a block's balancer until it names a host that is usable and not too new,
// or is asked too often: then it returns the last that was new, if there was one.
func (c *hostPicker) draw(b *localityGroup, panics bool) *Host {
	limit, slow := min(maxPicks, maxPicksPerHost*len(b.hosts)), c.slow && len(b.hosts) > 1
	var fresh *Host
	for ; c.key.Draw < limit; c.key.Draw++ {
		i := c.choose(b, c.key)
		if i < 0 {
			return nil
		}
		h := b.hosts[i]
		if len(c.attempts) > 0 && tried(c.attempts, h) {
			continue
		}
		if h.health.up() || panics && !h.health.has(unreachable|reportedDraining) {
			if slow && !c.ready(h) {
				fresh = h
				continue
			}
			return h
		}
		if h.health.claim(c.env.now(), c.trialTime()) {
			return h
		}
	}
	return fresh
}

// search looks at every host: first at those of the block, from where the balancer
// would go on, then at all by priority.
func (c *hostPicker) search(p *loadPlan, l int, b *localityGroup) *Host {
	s := hostSearch{hostPicker: *c, now: c.env.now()}
	if start := c.choose(b, c.key); start >= 0 {
		panics := p.levels[l].panic
		if h := s.look(b.hosts[start:], panics); h != nil {
			return h
		}
		if h := s.look(b.hosts[:start], panics); h != nil {
			return h
		}
	}
	for i := range c.levels {
		if h := s.look(c.levels[i].hosts, p.levels[i].panic); h != nil {
			return h
		}
	}
	switch {
	case s.again != nil:
		s.again.health.claim(s.now, c.trialTime()) // does nothing if it is up
		return s.again
	case len(c.attempts)-c.first >= maxUnhealthyPicks:
		return nil
	case s.last == nil && !s.up && measuresOf(&c.config.Failover).threshold > 0:
		return s.down // the plan is about to be told
	default:
		return s.last
	}
}

// hostSearch is a search under way.
type hostSearch struct {
	hostPicker
	now   time.Duration
	again *Host // the first of the second choice
	last  *Host // and of the third
	down  *Host // and of those that are down, whatever the plan says
	up    bool  // there are hosts that are up, tried or not
}

// look returns the first host of the first choice.
func (s *hostSearch) look(hosts []*Host, panics bool) *Host {
	for _, h := range hosts {
		s.up = s.up || h.health.up()
		if h.Config().Weight == 0 || h.health.has(reportedDraining) || tried(s.attempts[s.first:], h) {
			continue
		}
		usable := h.health.up() || h.health.probeDue(s.now) || panics && !h.health.has(unreachable)
		switch {
		case usable && !tried(s.attempts[:s.first], h):
			h.health.claim(s.now, s.trialTime())
			return h
		case usable && s.again == nil:
			s.again = h
		case !usable && panics && s.last == nil:
			s.last = h
		case !usable && s.down == nil:
			s.down = h
		}
	}
	return nil
}

// hostToProbe returns a host that is due for a trial and that the plan gives nothing: how
// else would it be known that it is back. It looks seldom.
func (g *hostSet) hostToProbe(attempts []protocol.Attempt) *Host {
	now := g.env.now()
	from := g.nextTrial.Load()
	if from > int64(now) || !g.nextTrial.CompareAndSwap(from, int64(now+probeInterval)) {
		return nil
	}
	for i := range g.levels {
		for _, h := range g.levels[i].hosts {
			if h.health.probeDue(now) && !tried(attempts, h) && h.health.claim(now, g.trialTime()) {
				return h
			}
		}
	}
	return nil
}

// trialTime is how long the trial of a host that was down keeps others from it: at
// most as long as a connect can take.
func (d *hostSets) trialTime() time.Duration {
	if t := d.config.ConnectTimeout; t > 0 {
		return t
	}
	return maxBackoff
}

func tried(attempts []protocol.Attempt, h *Host) bool {
	for i := range attempts {
		if attempts[i].Host == protocol.Named(h) {
			return true
		}
	}
	return false
}
