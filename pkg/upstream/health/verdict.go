package health

import "github.com/weft-proxy/weft/pkg/config"

// verdict is the health of a host by the checks so far. The zero value is for a host without
// checks: the first check decides.
type verdict struct {
	known   bool // there was a check
	healthy bool
	against int // consecutive checks that contradict healthy
}

// take records a check and reports whether healthy has changed. The first check always counts as a
// change.
func (v *verdict) take(passed bool, cfg *config.HealthCheck) (turned bool) {
	if v.known && passed == v.healthy {
		v.against = 0
		return false
	}
	v.against++
	threshold := cfg.UnhealthyThreshold
	if passed {
		threshold = cfg.HealthyThreshold
	}
	if v.known && v.against < threshold {
		return false
	}
	*v = verdict{known: true, healthy: passed}
	return true
}
