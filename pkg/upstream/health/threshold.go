package health

import "github.com/weft-proxy/weft/pkg/config"

// thresholdState is the health of a host by the checks so far. The zero value is for a host without
// checks: the first check decides.
type thresholdState struct {
	checked       bool // there was a check
	healthy       bool
	contradicting int // consecutive checks that contradict healthy
}

// record records a check and reports whether healthy has changed. The first check always counts as
// a change.
func (v *thresholdState) record(passed bool, cfg *config.HealthCheck) (turned bool) {
	if v.checked && passed == v.healthy {
		v.contradicting = 0
		return false
	}
	v.contradicting++
	threshold := cfg.UnhealthyThreshold
	if passed {
		threshold = cfg.HealthyThreshold
	}
	if v.checked && v.contradicting < threshold {
		return false
	}
	*v = thresholdState{checked: true, healthy: passed}
	return true
}
