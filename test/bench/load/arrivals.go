package load

import (
	"math/rand/v2"
	"time"
)

// arrivals are the requests of an open loop: they come when they come.
type arrivals struct {
	rate    float64              // a second
	chance  *rand.Rand           // the same in every run
	next    time.Duration        // the one that is to come
	waiting queue[time.Duration] // those that have come and were not sent
}

// newArrivals returns arrivals of which the first comes after now.
func newArrivals(rate float64, now time.Duration) *arrivals {
	a := &arrivals{rate: rate, chance: rand.New(rand.NewPCG(1, 2))}
	a.next = now + a.gap()
	return a
}

// gap returns the time between two arrivals, of a Poisson process.
func (a *arrivals) gap() time.Duration {
	return time.Duration(a.chance.ExpFloat64() / a.rate * float64(time.Second))
}

// come makes those wait that have come by now.
func (a *arrivals) come(now time.Duration) {
	for ; a.next <= now; a.next += a.gap() {
		a.waiting.push(a.next)
	}
}
