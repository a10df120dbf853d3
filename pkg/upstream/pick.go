package upstream

import (
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/share"
)

// maxPicks bounds how often pick calls the balancer before it searches all hosts. The search gives
// the first usable host after a run of unusable ones more than its share, while further picks of
// the balancer keep the shares correct. The balancer returns a usable host immediately unless hosts
// are down, new or tried. Least-load policies need the most picks, because hosts that are down have
// no load. maxPicksPerHost bounds the picks of small groups.
const (
	maxPicks        = 32
	maxPicksPerHost = 6 // for each host
)

// maxUnhealthyPicks bounds the attempts of an exchange while no host is usable: after this many
// attempts since the last retry, pick returns no host of preference 3. Each attempt at such a host
// may cost a refused connect.
const maxUnhealthyPicks = 16

// probeInterval is the minimum time between two searches for hosts without a share that are due for
// a recovery probe.
const probeInterval = hosthealth.MinBackoff

// pick returns the next host to try, or nil if there is none. hash is the hash of the exchange, 0
// for none. The hosts of attempts[first:] could not be reached, and pick does not return them
// again. attempts[:first] are earlier attempts, before a retry. pick prefers, in this order:
//
//  1. a usable host, or one due for a recovery probe, that was not tried for this exchange: of the
//     locality that the plan selects, then of the others by priority;
//  2. a usable host of an earlier attempt, for a retry when there is no other host;
//  3. a host that is down, of a level in panic, or of any level if no host is up and panic is
//     allowed: wrong health states of most hosts must not cause an outage.
//
// In a level in panic, a host is usable unless it is unreachable, which Weft observed itself. pick
// never returns a draining host.
//
// If the plan is Starved, pick first searches all levels for a host that is due for a recovery
// probe, at most once per probeInterval.
func (hs *hostSet) pick(hash uint64, attempts []protocol.Attempt, first int) *Host {
	p := hs.plan.Load()
	if p == nil {
		return nil
	}
	if p.Starved {
		if h := hs.hostToProbe(attempts); h != nil {
			return h
		}
	}
	hash = hs.pickHash(p, hash)
	level, lg := hs.selectLocality(p, hash)
	return hs.pickIn(p, level, lg, hash, attempts, first)
}

// pickAt is pick for a level. It returns a host of another level only if the level has none to try.
func (hs *hostSet) pickAt(level int, hash uint64, attempts []protocol.Attempt, first int) *Host {
	p := hs.plan.Load()
	if p == nil || level >= p.Levels() {
		return nil
	}
	hash = hs.pickHash(p, hash)
	return hs.pickIn(p, level, hs.selectLocalityOf(p, level, hash), hash, attempts, first)
}

// pickHash returns the hash or the random bits of a pick for an exchange with the given hash; 0 if
// neither the balancer nor the plan uses it.
func (hs *hostSet) pickHash(p *share.Plan, hash uint64) uint64 {
	switch {
	case !hs.usesHash && !p.Split:
		return 0
	case hash == 0 || !hs.usesHash:
		return hs.env.random()
	}
	return hash
}

// pickIn is pick after the choice of a level and of a locality.
func (hs *hostSet) pickIn(p *share.Plan, level int, lg *localityGroup, hash uint64, attempts []protocol.Attempt, first int) *Host {
	hp := hostPicker{hostSet: hs, attempts: attempts, first: first, key: balance.Key{Hash: hash}}
	if h := hp.drawHost(lg, p.LevelPanics(level)); h != nil {
		return h
	}
	return hp.search(p, level, lg)
}

// selectLocality returns the level and the locality that a hash, or random bits, select.
func (hs *hostSet) selectLocality(p *share.Plan, bits uint64) (int, *localityGroup) {
	level := 0
	if p.Levels() > 1 {
		level = p.LevelAt(hash.Nth(bits, 1<<32))
	}
	return level, hs.selectLocalityOf(p, level, bits)
}

// selectLocalityOf returns the locality of a level that a hash, or random bits, select.
func (hs *hostSet) selectLocalityOf(p *share.Plan, level int, bits uint64) *localityGroup {
	if p.OneLocality(level) {
		return &hs.levels[level].localities[0]
	}
	return &hs.levels[level].localities[p.LocalityAt(level, hash.Nth(bits, 1<<33))]
}

// hostPicker is the state of one pick.
type hostPicker struct {
	*hostSet
	attempts []protocol.Attempt
	first    int
	key      balance.Key
}

// drawHost calls the balancer until it returns a host that no attempt used, and that is usable and
// passes slow start, or is due for a recovery probe. At the limit of calls, drawHost returns the
// last host that did not pass slow start, or nil if there was none.
func (hp *hostPicker) drawHost(lg *localityGroup, inPanic bool) *Host {
	limit, slowStart := min(maxPicks, maxPicksPerHost*len(lg.hosts)), hp.slowStart && len(lg.hosts) > 1
	var inSlowStart *Host
	for ; hp.key.Draw < limit; hp.key.Draw++ {
		i := hp.pickIndex(lg, hp.key)
		if i < 0 {
			return nil
		}
		h := lg.hosts[i]
		if len(hp.attempts) > 0 && wasTried(hp.attempts, h) {
			continue
		}
		if h.health.Up() || inPanic && !h.health.Has(hosthealth.Unreachable|hosthealth.ReportedDraining) {
			if slowStart && !hp.passesSlowStart(h) {
				inSlowStart = h
				continue
			}
			return h
		}
		if h.health.ClaimProbe(hp.env.now(), hp.probeTimeout()) {
			return h
		}
	}
	return inSlowStart
}

// passesSlowStart reports whether to use a host that the balancer returned. After slow start it
// always returns true.
func (b *hostSetBuilder) passesSlowStart(h *Host) bool {
	cfg := &b.config.SlowStart
	age := b.env.now() - time.Duration(h.usableSince.Load())
	return age >= cfg.Duration || share.PassesSlowStart(cfg, age, b.env.random())
}

// search searches all hosts: first those of the locality, starting at the balancer's next pick,
// then all by priority.
func (hp *hostPicker) search(p *share.Plan, level int, lg *localityGroup) *Host {
	s := hostSearch{hostPicker: *hp, now: hp.env.now()}
	if start := hp.pickIndex(lg, hp.key); start >= 0 {
		inPanic := p.LevelPanics(level)
		if h := s.scan(lg.hosts[start:], inPanic); h != nil {
			return h
		}
		if h := s.scan(lg.hosts[:start], inPanic); h != nil {
			return h
		}
	}
	for i := range hp.levels {
		if h := s.scan(hp.levels[i].hosts, p.LevelPanics(i)); h != nil {
			return h
		}
	}
	switch {
	case s.retryHost != nil:
		s.retryHost.health.ClaimProbe(s.now, hp.probeTimeout()) // no effect if it is up
		return s.retryHost
	case len(hp.attempts)-hp.first >= maxUnhealthyPicks:
		return nil
	case s.panicHost == nil && !s.anyUp && share.AllowsPanic(&hp.config.Failover):
		return s.downHost // every host is down, but the plan does not show it yet
	default:
		return s.panicHost
	}
}

// hostSearch is the state of one search. The numbers of preferences are those of hostSet.pick.
type hostSearch struct {
	hostPicker
	now       time.Duration
	retryHost *Host // first host of preference 2
	panicHost *Host // first host of preference 3
	downHost  *Host // first other host that is down
	anyUp     bool  // a host is up, tried or not
}

// scan returns the first host of preference 1, or nil. It records the first host of each other
// preference.
func (s *hostSearch) scan(hosts []*Host, inPanic bool) *Host {
	for _, h := range hosts {
		s.anyUp = s.anyUp || h.health.Up()
		if h.Config().Weight == 0 || h.health.Has(hosthealth.ReportedDraining) || wasTried(s.attempts[s.first:], h) {
			continue
		}
		usable := h.health.Up() || h.health.ProbeDue(s.now) || inPanic && !h.health.Has(hosthealth.Unreachable)
		switch {
		case usable && !wasTried(s.attempts[:s.first], h):
			h.health.ClaimProbe(s.now, s.probeTimeout())
			return h
		case usable && s.retryHost == nil:
			s.retryHost = h
		case !usable && inPanic && s.panicHost == nil:
			s.panicHost = h
		case !usable && s.downHost == nil:
			s.downHost = h
		}
	}
	return nil
}

// hostToProbe returns a host that is due for a recovery probe, at most once per probeInterval.
// Hosts without a share get no other request that could find them recovered.
func (hs *hostSet) hostToProbe(attempts []protocol.Attempt) *Host {
	now := hs.env.now()
	due := hs.nextProbe.Load()
	if due > int64(now) || !hs.nextProbe.CompareAndSwap(due, int64(now+probeInterval)) {
		return nil
	}
	for i := range hs.levels {
		for _, h := range hs.levels[i].hosts {
			if h.health.ProbeDue(now) && !wasTried(attempts, h) && h.health.ClaimProbe(now, hs.probeTimeout()) {
				return h
			}
		}
	}
	return nil
}

// probeTimeout returns how long a recovery probe keeps other exchanges from the host: as long as a
// connect can take.
func (b *hostSetBuilder) probeTimeout() time.Duration {
	if t := b.config.ConnectTimeout; t > 0 {
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
