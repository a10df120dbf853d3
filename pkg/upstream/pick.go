package upstream

import (
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// draws is how often the balancer is asked before all hosts are looked at. It
// answers with a usable host at once unless hosts are down or were tried, and
// asking it again keeps the shares of the others as they should be.
const draws = 6

// desperate is how many hosts that are known to be down one exchange tries when
// there is no other. Each costs a refused connect.
const desperate = 16

// pick returns the host to try next, nil if there is none left. Attempts from
// index first on were made in this call of Serve: their hosts could not be
// reached and are not tried again. From best to last resort it returns
//
//  1. a host that is up, or due for a trial, and was not tried for this exchange;
//  2. one that is up and was tried before: a retry, where there is no other host;
//  3. one that is down: if all are, being wrong about it must not be an outage.
func (s *state) pick(env *env, attempts []protocol.Attempt, first int) *Host {
	key := balance.Key{Hash: env.random()}
	for draw := range draws {
		key.Draw = draw
		i := s.balancer.Pick(key)
		if i < 0 {
			return nil
		}
		h := s.hosts[i]
		if len(attempts) > 0 && tried(attempts, h) {
			continue
		}
		if h.health.up() || h.health.claim(env.now(), s.trial()) {
			return h
		}
	}
	return s.search(env, attempts, first)
}

// search looks at every host, beginning anywhere.
func (s *state) search(env *env, attempts []protocol.Attempt, first int) *Host {
	var again, last *Host
	now := env.now()
	start := int(env.random() % uint64(len(s.hosts)))
	for i := range s.hosts {
		h := s.hosts[(start+i)%len(s.hosts)]
		if h.Config().Weight == 0 || tried(attempts[first:], h) {
			continue
		}
		switch usable := h.health.up() || h.health.due(now); {
		case usable && !tried(attempts[:first], h):
			h.health.claim(now, s.trial()) // does nothing if it is up
			return h
		case usable && again == nil:
			again = h
		case last == nil:
			last = h
		}
	}
	switch {
	case again != nil:
		again.health.claim(now, s.trial())
		return again
	case len(attempts)-first < desperate:
		return last
	default:
		return nil
	}
}

// trial is how long the trial of a host that was down keeps others from it: at
// most as long as a connect can take.
func (s *state) trial() time.Duration {
	if t := s.config.ConnectTimeout; t > 0 {
		return t
	}
	return lastPause
}

func tried(attempts []protocol.Attempt, h *Host) bool {
	for i := range attempts {
		if attempts[i].Host == protocol.Place(h) {
			return true
		}
	}
	return false
}
