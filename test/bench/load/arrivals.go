package load

import (
	"math/rand/v2"
	"time"
)

// arrivals generates the requests of an open loop. They arrive independently of responses.
type arrivals struct {
	rate         float64              // requests per second
	rng          *rand.Rand           // same sequence in every run
	nextArrival  time.Duration        // time of the next arrival
	pendingTimes queue[time.Duration] // arrival times of requests that were not sent yet
}

// newArrivals returns arrivals of which the first comes after now.
func newArrivals(rate float64, now time.Duration) *arrivals {
	a := &arrivals{rate: rate, rng: rand.New(rand.NewPCG(1, 2))}
	a.nextArrival = now + a.gap()
	return a
}

// gap returns the time between two arrivals of a Poisson process.
func (a *arrivals) gap() time.Duration {
	return time.Duration(a.rng.ExpFloat64() / a.rate * float64(time.Second))
}

// enqueueDue queues the requests that have arrived by now.
func (a *arrivals) enqueueDue(now time.Duration) {
	for ; a.nextArrival <= now; a.nextArrival += a.gap() {
		a.pendingTimes.push(a.nextArrival)
	}
}
