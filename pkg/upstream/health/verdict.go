package health

import "github.com/weft-proxy/weft/pkg/config"

// verdict is whether a host is healthy, by the checks so far. The zero value is of
// a host that was not checked yet: the first check decides.
type verdict struct {
	known   bool // there was a check
	healthy bool
	against int // checks in a row that say otherwise
}

// take takes in a check and reports whether healthy has changed; the first check
// changes it, whatever it says.
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
