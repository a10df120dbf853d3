package upstream

import (
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// maxPicks bounds how often the balancer is asked before pick searches all hosts. The search gives
// the first usable host after a run of unusable ones more than its share, while asking the balancer
// again keeps the shares of the others correct. The balancer returns a usable host immediately
// unless hosts are down, new or tried. Least-load policies need the most picks, because hosts that
// are down have no load. maxPicksPerHost bounds the picks of small groups.
const (
	maxPicks        = 32
	maxPicksPerHost = 6 // for each host
)

// maxUnhealthyPicks is how many hosts that are known to be down one exchange tries when there is no
// other. Each costs a refused connect.
const maxUnhealthyPicks = 16

// probeInterval is the minimum time between two searches for hosts without a share that are due for
// a recovery probe.
const probeInterval = minBackoff

// pick returns the next host to try, or nil if there is none left. hash is the hash of the
// exchange, 0 for none. The attempts from index first on were made in this call of Serve; their
// hosts could not be reached and are not tried again. pick prefers, in this order:
//
//  1. a usable host, or one due for a recovery probe, that was not tried for this exchange: of the
//     locality that the plan selects, then of the others by priority;
//  2. a usable host that was tried before: a retry, where there is no other host;
//  3. a host that is down, of a level in panic, or of any level if none is up: a wrong health state
//     of most hosts must not cause an outage.
//
// In a level in panic, a host is usable unless it is unreachable, which Weft observed itself. pick
// never returns a draining host.
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
		hash = 0 // nothing uses it
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

// place returns the level and the locality that a hash, or random bits, select.
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

// hostPicker is the state of one pick.
type hostPicker struct {
	*hostSet
	attempts []protocol.Attempt
	first    int
	key      balance.Key
}

// draw asks the balancer until it returns a host that is usable and past slow start, or the limit
// is reached. Then it returns the last host in slow start, if there was one.
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

// search searches all hosts: first those of the locality, starting at the balancer's next pick,
// then all by priority.
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
		s.again.health.claim(s.now, c.trialTime()) // no effect if it is up
		return s.again
	case len(c.attempts)-c.first >= maxUnhealthyPicks:
		return nil
	case s.last == nil && !s.up && measuresOf(&c.config.Failover).threshold > 0:
		return s.down // the health counts will be updated in a moment
	default:
		return s.last
	}
}

// hostSearch is the state of one search.
type hostSearch struct {
	hostPicker
	now   time.Duration
	again *Host // first host of preference 2
	last  *Host // first host of preference 3
	down  *Host // first host that is down, regardless of panic
	up    bool  // a host is up, tried or not
}

// look returns the first host of preference 1.
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

// hostToProbe returns a host that is due for a recovery probe, at most once per probeInterval.
// Hosts without a share get no other request that could find them recovered.
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

// trialTime returns how long a recovery probe keeps other exchanges from the host: as long as a
// connect can take.
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
