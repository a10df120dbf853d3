package balance

import (
	"math"
	"sync/atomic"
	"time"
)

// Load is what is known of a host at work. Its owner counts and observes, balancers
// read. The zero value is ready; all methods are safe for concurrent use.
type Load struct {
	inFlight    atomic.Int64
	connections atomic.Int64

	latency  atomic.Uint64 // of PeakEWMA: bits of a float64, ns; 0: nothing is known
	observed atomic.Int64  // when: ns of the owner's clock
}

// Begin counts one exchange more.
func (l *Load) Begin() { l.inFlight.Add(1) }

// End counts one exchange less.
func (l *Load) End() { l.inFlight.Add(-1) }

// InFlight returns the number of exchanges begun and not ended.
func (l *Load) InFlight() int64 { return l.inFlight.Load() }

// Connect counts one connection more.
func (l *Load) Connect() { l.connections.Add(1) }

// Disconnect counts one connection less.
func (l *Load) Disconnect() { l.connections.Add(-1) }

// Connections returns the number of connections that are open.
func (l *Load) Connections() int64 { return l.connections.Load() }

// decayTime is how long an observed latency counts: after so long without another its
// weight is 1/e.
const decayTime = 10 * time.Second

// Observe takes note that an exchange has waited so long for its answer, now by the
// clock that Options.Now reads. What is worse than the average takes its place at
// once, what is better improves it by and by: a host that begins to stall is known
// by the first answer that tells. Of observations at the same time one may be lost.
func (l *Load) Observe(now, waited time.Duration) {
	seen := max(float64(waited), 1)
	old := l.latency.Load()
	average := math.Float64frombits(old)
	if seen < average {
		keep := decay(now - time.Duration(l.observed.Load()))
		seen = average*keep + seen*(1-keep)
	}
	if l.latency.CompareAndSwap(old, math.Float64bits(seen)) {
		l.observed.Store(int64(now))
	}
}

// Latency returns the average of what was observed, peaks first; it falls while
// nothing is observed, so that a host that was slow is asked again. 0: nothing is
// known.
func (l *Load) Latency(now time.Duration) time.Duration { return time.Duration(l.average(now)) }

func (l *Load) average(now time.Duration) float64 {
	average := math.Float64frombits(l.latency.Load())
	if average == 0 {
		return 0
	}
	// Most hosts were observed a moment ago: no need to compute what is hardly less.
	if age := now - time.Duration(l.observed.Load()); age > decayTime/100 {
		average *= decay(age)
	}
	return average
}

// decay is what is left of an observation of that age.
func decay(age time.Duration) float64 {
	return math.Exp(-float64(max(age, 0)) / float64(decayTime))
}
