package share

import (
	"math"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// PassesSlowStart reports whether a host of that age takes an exchange for which a balancer picked
// it: always after slow start, else with a probability that grows with its age. The caller then
// draws again, so that shares are as with smaller weights and no table is rebuilt as hosts age.
func PassesSlowStart(c *config.SlowStart, age time.Duration, random uint64) bool {
	return age >= c.Duration || float64(toPoint(random)) < slowStartFactor(c, age)*randomPoints
}

// slowStartFactor returns the fraction of its weight that a host of that age gets.
func slowStartFactor(c *config.SlowStart, age time.Duration) float64 {
	part := float64(max(age, 0)) / float64(c.Duration)
	if c.Aggression > 0 && c.Aggression != 1 {
		part = math.Pow(part, 1/c.Aggression)
	}
	return min(1, max(part, c.MinWeightPercent/100))
}
