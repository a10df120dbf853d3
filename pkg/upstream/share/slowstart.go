package share

import (
	"math"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// PassesSlowStart reports whether a host of the given age gets an exchange for which a balancer
// picked it. After slow start it always returns true, before with a probability that grows with the
// age. If it returns false, the caller picks again. The host gets the same share as with a lower
// weight, but no balancer is rebuilt while the host ages.
func PassesSlowStart(c *config.SlowStart, age time.Duration, random uint64) bool {
	return age >= c.Duration || float64(toPoint(random)) < slowStartFactor(c, age)*randomPoints
}

// slowStartFactor returns the fraction of its weight that a host of the given age gets.
func slowStartFactor(c *config.SlowStart, age time.Duration) float64 {
	fraction := float64(max(age, 0)) / float64(c.Duration)
	if c.Aggression > 0 && c.Aggression != 1 {
		fraction = math.Pow(fraction, 1/c.Aggression)
	}
	return min(1, max(fraction, c.MinWeightPercent/100))
}
