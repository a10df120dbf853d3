// Package balance owns the choice of one host among many:
//
//	in turn       RoundRobin · WeightedRoundRobin   roundrobin.go, weighted.go
//	by chance     Random                            random.go
//	by load       LeastRequest · LeastConnection    leastrequest.go
//	by latency    PeakEWMA                          peakewma.go
//	by a key      RingHash · Maglev                 ring.go, maglev.go
//	in order      RequestRoundRobin                 requestroundrobin.go
//
// A balancer is built for one set of hosts and never changes; a new set gets a
// new balancer. What changes under it is what is known of each host (Load) and, for
// the round robins, one counter of its own, so that picking takes no lock and
// allocates nothing. Whether a host is down, still new or was tried before is not
// its business: the caller refuses what it cannot use and picks again. So a host that
// goes down costs no table, and hashes that it had go to many others.
package balance

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// Balancer chooses among the peers that it was built with.
type Balancer interface {
	// Pick returns the index of the peer whose turn it is, -1 if no peer has a
	// weight above 0. Safe for concurrent use.
	Pick(k Key) int
}

// Key is what an exchange brings to the choice. Most policies look at nothing of it.
type Key struct {
	// Hash is the same for exchanges that belong together, and random for one that
	// belongs to none.
	Hash uint64
	// Draw counts the picks for one exchange from 0: another draw is another choice.
	Draw int
}

// New builds a balancer for peers, which it does not keep. The constructors of
// this package are of this type; the registry names them.
type New func(peers []Peer, o Options) Balancer

// Peer is a host as a balancer sees it.
type Peer struct {
	// Name is the host's identity: RingHash and Maglev give a name the same hashes
	// whatever else is in the set, in any order. Others do not read it.
	Name   string
	Weight uint32 // share of the work; 0 gets none, whatever the policy
	Load   *Load  // shared with the host's owner; read by the policies that compare
}

// Options are the parameters of the policies.
type Options struct {
	// ChoiceCount is how many hosts LeastRequest, LeastConnection and PeakEWMA
	// compare; 0 means 2.
	ChoiceCount int
	// ActiveRequestBias is how much work in flight counts against weight when
	// LeastRequest compares hosts of unequal weights: at 1 as it is, above 1
	// more, at 0 not at all.
	ActiveRequestBias float64
	// MinRingSize and MaxRingSize bound the points of RingHash, which are 256 for each
	// of few hosts and 16 for each of many; 0 means no minimum, and 8,388,608.
	MinRingSize, MaxRingSize int
	// TableSize is the number of places of Maglev, a prime; 0 means 65,537, or
	// 655,373 for more peers than that serves well.
	TableSize int
	// Random gives 64 random bits; safe for concurrent use. Nil means
	// rand.Uint64.
	Random func() uint64
	// Now is the clock that latencies are observed by, for PeakEWMA, which asks it at
	// each pick: it may be late by parts of a second. Nil means that no time passes.
	Now func() time.Duration
}

// fixed always picks the same index: the balancer of one host, and with -1 of
// none.
type fixed int

func (f fixed) Pick(Key) int { return int(f) }

// weightedPeers returns the indices of the peers with a weight above 0: nil when
// those are all of them, so that the usual case stores nothing.
func weightedPeers(peers []Peer) (index []int32, count int) {
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
