// Package balance owns the choice of one host among many: round robin, smooth
// weighted round robin, weighted random and least request.
//
// A balancer is built for one set of hosts and never changes; a new set gets a
// new balancer. What changes under it is a counter per host (Load) and, for the
// round robins, one counter of its own, so that picking takes no lock and
// allocates nothing. Whether a host is down or was tried before is not its
// business: the caller refuses what it cannot use and picks again.
package balance

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// Balancer chooses among the peers that it was built with.
type Balancer interface {
	// Pick returns the index of the peer whose turn it is, -1 if no peer has a
	// weight above 0. Safe for concurrent use.
	Pick() int
}

// New builds a balancer for peers, which it does not keep. The constructors of
// this package are of this type; the registry names them.
type New func(peers []Peer, o Options) Balancer

// Peer is a host as a balancer sees it.
type Peer struct {
	Weight uint32 // share of the work; 0 gets none, whatever the policy
	Load   *Load  // shared with the host's owner; read by LeastRequest only
}

// Options are the parameters of the policies.
type Options struct {
	// ChoiceCount is how many hosts LeastRequest compares; 0 means 2.
	ChoiceCount int
	// ActiveRequestBias is how much work in flight counts against weight when
	// LeastRequest compares hosts of unequal weights: at 1 as it is, above 1
	// more, at 0 not at all.
	ActiveRequestBias float64
	// Random gives 64 random bits; safe for concurrent use. Nil means
	// rand.Uint64.
	Random func() uint64
}

// Load is the number of exchanges that a host has in flight. Its owner counts,
// balancers read. The zero value is ready.
type Load struct{ inFlight atomic.Int64 }

// Begin counts one exchange more.
func (l *Load) Begin() { l.inFlight.Add(1) }

// End counts one exchange less.
func (l *Load) End() { l.inFlight.Add(-1) }

// InFlight returns the number of exchanges begun and not ended.
func (l *Load) InFlight() int64 { return l.inFlight.Load() }

// fixed always picks the same index: the balancer of one host, and with -1 of
// none.
type fixed int

func (f fixed) Pick() int { return int(f) }

// serving returns the indices of the peers with a weight above 0: nil when
// those are all of them, so that the usual case stores nothing.
func serving(peers []Peer) (index []int32, count int) {
	for i := range peers {
		if peers[i].Weight > 0 {
			count++
		}
	}
	if count == len(peers) {
		return nil, count
	}
	index = make([]int32, 0, count)
	for i := range peers {
		if peers[i].Weight > 0 {
			index = append(index, int32(i)) //nolint:gosec // a cluster has far fewer than 2^31 hosts
		}
	}
	return index, count
}

// few returns the balancer of fewer than two serving peers, nil if there are
// more.
func few(index []int32, count int) Balancer {
	switch {
	case count == 0:
		return fixed(-1)
	case count > 1:
		return nil
	case index == nil:
		return fixed(0)
	default:
		return fixed(index[0])
	}
}

// at translates a place among the serving peers into an index of the peers.
func at(index []int32, place uint64) int {
	if index == nil {
		return int(place) //nolint:gosec // below the number of peers
	}
	return int(index[place])
}

func (o *Options) random() func() uint64 {
	if o.Random == nil {
		return rand.Uint64
	}
	return o.Random
}

// below scales 64 random bits to a number below n; rest is random too, and
// independent of it as far as n is small against 2^64.
func below(n, random uint64) (number, rest uint64) { return bits.Mul64(random, n) }
