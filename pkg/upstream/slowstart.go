package upstream

import (
	"math"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// passesSlowStart reports whether to use a host that the balancer returned: always after slow start, else
// with a probability that grows with its age. The balancer then draws again, so that shares are as
// with smaller weights and no table is rebuilt as hosts age.
func (d *hostSetBuilder) passesSlowStart(h *Host) bool {
	s := &d.config.SlowStart
	age := d.env.now() - time.Duration(h.usableSince.Load())
	if age >= s.Duration {
		return true
	}
	return float64(toPoint(d.env.random())) < slowStartFactor(s, age)*randomPoints
}

// slowStartFactor returns the fraction of its weight that a host of that age gets.
func slowStartFactor(s *config.SlowStart, age time.Duration) float64 {
	part := float64(max(age, 0)) / float64(s.Duration)
	if s.Aggression > 0 && s.Aggression != 1 {
		part = math.Pow(part, 1/s.Aggression)
	}
	return min(1, max(part, s.MinWeightPercent/100))
}
