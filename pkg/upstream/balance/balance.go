// Package balance implements the policies that choose one host of a cluster:
//
//	round robin          RoundRobin · WeightedRoundRobin   roundrobin.go, weighted.go
//	random               Random                            random.go
//	least load           LeastRequest · LeastConnection    leastrequest.go
//	least latency        PeakEWMA                          peakewma.go
//	consistent hashing   RingHash · Maglev                 ring.go, maglev.go
//	in order             RequestRoundRobin                 requestroundrobin.go
//
// A balancer is built for one set of hosts and never changes; a new set gets a new balancer. Only
// each host's Load and the counter of a round robin change, so a pick takes no lock and allocates
// nothing. A balancer ignores host health, slow start and previous attempts: the caller rejects a
// host that it cannot use and picks again. So no table is rebuilt when a host goes down, and the
// hashes of that host spread over many other hosts.
package balance

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// Balancer chooses one of the hosts that it was built with.
type Balancer interface {
	// Pick returns the index of the chosen host, or -1 if no host has a weight above 0. It is safe
	// for concurrent use.
	Pick(k Key) int
}

// Key holds the inputs of one pick. Most policies ignore Hash.
type Key struct {
	// Hash is equal for exchanges that belong together, and random for other exchanges.
	Hash uint64
	// Draw counts the picks for one exchange from 0. A new draw gives a new choice.
	Draw int
}

// NewFunc builds a balancer for hosts and does not retain the slice. RoundRobin and the
// constructors of the other policies have this type.
type NewFunc func(hosts []Host, o Options) Balancer

// Host is a host as balancers see it.
type Host struct {
	// Name is the host's identity. RingHash and Maglev derive a host's hashes from it, independent
	// of the order and the other hosts. Other policies ignore it.
	Name   string
	Weight uint32 // relative share of the load; no policy picks a host of weight 0
	Load   *Load  // shared with the host's owner; read by the policies that compare load
}

// Options are the parameters of the policies.
type Options struct {
	// ChoiceCount is how many hosts LeastRequest, LeastConnection and PeakEWMA compare; 0 means 2.
	ChoiceCount int
	// ActiveRequestBias is the exponent of in-flight requests when LeastRequest compares hosts of
	// unequal weights: at 1 they count linearly, above 1 more, at 0 not at all.
	ActiveRequestBias float64
	// MinRingSize and MaxRingSize bound the number of RingHash points. A few hosts get 256 points
	// each, many hosts 16. 0 means no minimum, and a maximum of 8,388,608.
	MinRingSize, MaxRingSize int
	// TableSize is the number of Maglev table entries, a prime. 0 means 65,537, or 655,373 if there
	// are too many hosts for that.
	TableSize int
	// Random returns 64 random bits. It must be safe for concurrent use. Nil means rand.Uint64.
	Random func() uint64
	// Now returns the time of the clock of observed latencies. PeakEWMA calls Now at each pick; the
	// clock may lag. Nil means that no time passes.
	Now func() time.Duration
}

// fixed always picks the same index: for a single host, or -1 for none.
type fixed int

func (f fixed) Pick(Key) int { return int(f) }

// servingHosts returns the indices and the number of hosts with a weight above 0, called serving
// hosts. index is nil if all hosts serve, so the usual case stores nothing.
func servingHosts(hosts []Host) (index []int32, count int) {
	for i := range hosts {
		if hosts[i].Weight > 0 {
			count++
		}
	}
	if count == len(hosts) {
		return nil, count
	}
	index = make([]int32, 0, count)
	for i := range hosts {
		if hosts[i].Weight > 0 {
			index = append(index, int32(i)) //nolint:gosec // a cluster has far fewer than 2^31 hosts
		}
	}
	return index, count
}

// fixedBalancer returns a balancer for fewer than two serving hosts, or nil if there are more.
func fixedBalancer(index []int32, count int) Balancer {
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

// originalIndex translates an index of the serving hosts into an index of all hosts.
func originalIndex(index []int32, i uint64) int {
	if index == nil {
		return int(i) //nolint:gosec // below the number of hosts
	}
	return int(index[i])
}

func (o *Options) random() func() uint64 {
	if o.Random == nil {
		return rand.Uint64
	}
	return o.Random
}

// scaleRandom scales 64 random bits to a number below n. rest is random too, and independent of
// number if n is small compared with 2^64.
func scaleRandom(n, random uint64) (number, rest uint64) { return bits.Mul64(random, n) }
