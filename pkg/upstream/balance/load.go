package balance

import (
	"math"
	"sync/atomic"
	"time"
)

// Load is the measured load of a host. Its owner updates it and balancers read it. The zero value
// is ready; all methods are safe for concurrent use.
type Load struct {
	inFlight    atomic.Int64
	connections atomic.Int64

	latency  atomic.Uint64 // for PeakEWMA: bits of a float64, ns; 0: no observation yet
	observed atomic.Int64  // time of the last observation, ns of the owner's clock
}

// Begin adds one in-flight exchange.
func (l *Load) Begin() { l.inFlight.Add(1) }

// End removes one in-flight exchange.
func (l *Load) End() { l.inFlight.Add(-1) }

// InFlight returns the number of in-flight exchanges.
func (l *Load) InFlight() int64 { return l.inFlight.Load() }

// Connect adds one open connection.
func (l *Load) Connect() { l.connections.Add(1) }

// Disconnect removes one open connection.
func (l *Load) Disconnect() { l.connections.Add(-1) }

// Connections returns the number of open connections.
func (l *Load) Connections() int64 { return l.connections.Load() }

// decayTime is the time after which the weight of an observed latency has fallen to 1/e.
const decayTime = 10 * time.Second

// Observe records the latency of a response. now is a time of the clock that Options.Now returns. A
// latency above the average replaces it immediately; a lower one decreases it gradually, so the
// first slow response reveals a host that stalls. Concurrent observations may be lost.
func (l *Load) Observe(now, latency time.Duration) {
	updated := max(float64(latency), 1)
	old := l.latency.Load()
	average := math.Float64frombits(old)
	if updated < average {
		keep := decay(now - time.Duration(l.observed.Load()))
		updated = average*keep + updated*(1-keep)
	}
	if l.latency.CompareAndSwap(old, math.Float64bits(updated)) {
		l.observed.Store(int64(now))
	}
}

// Latency returns the peak-sensitive average of the observations. It decays between observations,
// so that a slow host gets requests again. 0 means that there is no observation yet.
func (l *Load) Latency(now time.Duration) time.Duration { return time.Duration(l.average(now)) }

func (l *Load) average(now time.Duration) float64 {
	average := math.Float64frombits(l.latency.Load())
	if average == 0 {
		return 0
	}
	// Skip the exponential for recent observations: it is close to 1.
	if age := now - time.Duration(l.observed.Load()); age > decayTime/100 {
		average *= decay(age)
	}
	return average
}

// decay returns the remaining weight of an observation of this age.
func decay(age time.Duration) float64 {
	return math.Exp(-float64(max(age, 0)) / float64(decayTime))
}
