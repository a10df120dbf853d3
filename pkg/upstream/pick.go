package upstream

import (
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/share"
)

// maxPicks bounds how often pick asks the balancer before it searches all hosts. The search gives
// the first usable host after a run of unusable ones more than its share, while further picks of
// the balancer keep the shares correct. The balancer returns a usable host immediately unless hosts
// are down, new or tried. Least-load policies need the most picks, because hosts that are down have
// no load. maxPicksPerHost bounds the picks of small groups.
const (
	maxPicks        = 32
	maxPicksPerHost = 6 // for each host
)

// maxUnhealthyPicks is how many hosts that are known to be down one exchange tries when there is no
// other. Each costs a refused connect.
const maxUnhealthyPicks = 16

// probeInterval is the minimum time between two searches for hosts without a share that are due for
// a recovery probe.
const probeInterval = hosthealth.MinBackoff

// pick returns the next host to try, or nil if there is none left. hash is the hash of the
// exchange, 0 for none. The attempts from index first on were made for this pick of a cluster;
// their hosts could not be reached and are not tried again. pick prefers, in this order:
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
	if p.Starved {
		if h := g.hostToProbe(attempts); h != nil {
			return h
		}
	}
	switch {
	case !g.usesHash && !p.Split:
		hash = 0 // nothing uses it
	case hash == 0 || !g.usesHash:
		hash = g.env.random()
	}
	l, b := g.selectLocality(p, hash)
	c := hostPicker{hostSet: g, attempts: attempts, first: first, key: balance.Key{Hash: hash}}
	if h := c.drawHost(b, p.LevelPanics(l)); h != nil {
		return h
	}
	return c.search(p, l, b)
}

// selectLocality returns the level and the locality that a hash, or random bits, select.
func (g *hostSet) selectLocality(p *share.Plan, bits uint64) (int, *localityGroup) {
	l := 0
	if p.Levels() > 1 {
		l = p.LevelAt(hash.Nth(bits, 1<<32))
	}
	if p.OneLocality(l) {
		return l, &g.levels[l].localities[0]
	}
	return l, &g.levels[l].localities[p.LocalityAt(l, hash.Nth(bits, 1<<33))]
}

// hostPicker is the state of one pick.
type hostPicker struct {
	*hostSet
	attempts []protocol.Attempt
	first    int
	key      balance.Key
}

// drawHost asks the balancer until it returns a host that is usable and past slow start, or the
// limit is reached. Then it returns the last host in slow start, if there was one.
func (c *hostPicker) drawHost(b *localityGroup, panics bool) *Host {
	limit, slow := min(maxPicks, maxPicksPerHost*len(b.hosts)), c.slowStart && len(b.hosts) > 1
	var fresh *Host
	for ; c.key.Draw < limit; c.key.Draw++ {
		i := c.pickIndex(b, c.key)
		if i < 0 {
			return nil
		}
		h := b.hosts[i]
		if len(c.attempts) > 0 && wasTried(c.attempts, h) {
			continue
		}
		if h.health.Up() || panics && !h.health.Has(hosthealth.Unreachable|hosthealth.ReportedDraining) {
			if slow && !c.passesSlowStart(h) {
				fresh = h
				continue
			}
			return h
		}
		if h.health.ClaimProbe(c.env.now(), c.probeTimeout()) {
			return h
		}
	}
	return fresh
}

// passesSlowStart reports whether to use a host that the balancer returned.
func (d *hostSetBuilder) passesSlowStart(h *Host) bool {
	c := &d.config.SlowStart
	age := d.env.now() - time.Duration(h.usableSince.Load())
	return age >= c.Duration || share.PassesSlowStart(c, age, d.env.random())
}

// search searches all hosts: first those of the locality, starting at the balancer's next pick,
// then all by priority.
func (c *hostPicker) search(p *share.Plan, l int, b *localityGroup) *Host {
	s := hostSearch{hostPicker: *c, now: c.env.now()}
	if start := c.pickIndex(b, c.key); start >= 0 {
		panics := p.LevelPanics(l)
		if h := s.scan(b.hosts[start:], panics); h != nil {
			return h
		}
		if h := s.scan(b.hosts[:start], panics); h != nil {
			return h
		}
	}
	for i := range c.levels {
		if h := s.scan(c.levels[i].hosts, p.LevelPanics(i)); h != nil {
			return h
		}
	}
	switch {
	case s.retryHost != nil:
		s.retryHost.health.ClaimProbe(s.now, c.probeTimeout()) // no effect if it is up
		return s.retryHost
	case len(c.attempts)-c.first >= maxUnhealthyPicks:
		return nil
	case s.panicHost == nil && !s.anyUp && share.AllowsPanic(&c.config.Failover):
		return s.downHost // the health counts will be updated in a moment
	default:
		return s.panicHost
	}
}

// hostSearch is the state of one search.
type hostSearch struct {
	hostPicker
	now       time.Duration
	retryHost *Host // first host of preference 2
	panicHost *Host // first host of preference 3
	downHost  *Host // first host that is down, regardless of panic
	anyUp     bool  // a host is up, tried or not
}

// scan returns the first host of preference 1.
func (s *hostSearch) scan(hosts []*Host, panics bool) *Host {
	for _, h := range hosts {
		s.anyUp = s.anyUp || h.health.Up()
		if h.Config().Weight == 0 || h.health.Has(hosthealth.ReportedDraining) || wasTried(s.attempts[s.first:], h) {
			continue
		}
		usable := h.health.Up() || h.health.ProbeDue(s.now) || panics && !h.health.Has(hosthealth.Unreachable)
		switch {
		case usable && !wasTried(s.attempts[:s.first], h):
			h.health.ClaimProbe(s.now, s.probeTimeout())
			return h
		case usable && s.retryHost == nil:
			s.retryHost = h
		case !usable && panics && s.panicHost == nil:
			s.panicHost = h
		case !usable && s.downHost == nil:
			s.downHost = h
		}
	}
	return nil
}

// hostToProbe returns a host that is due for a recovery probe, at most once per probeInterval.
// Hosts without a share get no other request that could find them recovered.
func (g *hostSet) hostToProbe(attempts []protocol.Attempt) *Host {
	now := g.env.now()
	from := g.nextProbe.Load()
	if from > int64(now) || !g.nextProbe.CompareAndSwap(from, int64(now+probeInterval)) {
		return nil
	}
	for i := range g.levels {
		for _, h := range g.levels[i].hosts {
			if h.health.ProbeDue(now) && !wasTried(attempts, h) && h.health.ClaimProbe(now, g.probeTimeout()) {
				return h
			}
		}
	}
	return nil
}

// probeTimeout returns how long a recovery probe keeps other exchanges from the host: as long as a
// connect can take.
func (d *hostSetBuilder) probeTimeout() time.Duration {
	if t := d.config.ConnectTimeout; t > 0 {
		return t
	}
	return hosthealth.MaxBackoff
}

func wasTried(attempts []protocol.Attempt, h *Host) bool {
	for i := range attempts {
		if attempts[i].Host == protocol.Named(h) {
			return true
		}
	}
	return false
}
