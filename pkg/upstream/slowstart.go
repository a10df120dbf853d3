package upstream

import (
	"math"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// ready reports whether a host that was drawn is taken: always if it is no longer
// new, else as often as its age says. What is passed over is drawn again, so that
// shares are as if weights were smaller, and no table is built as hosts grow old.
func (d *hostSets) ready(h *Host) bool {
	s := &d.config.SlowStart
	age := d.env.now() - time.Duration(h.since.Load())
	if age >= s.Duration {
		return true
	}
	return float64(pointOf(d.env.random())) < warmth(s, age)*connPool
}

// warmth is the part of its weight that a host of that age has.
func warmth(s *config.SlowStart, age time.Duration) float64 {
	part := float64(max(age, 0)) / float64(s.Duration)
	if s.Aggression > 0 && s.Aggression != 1 {
		part = math.Pow(part, 1/s.Aggression)
	}
	return min(1, max(part, s.MinPercent/100))
}
