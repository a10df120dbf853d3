package health

import "github.com/weft-proxy/weft/pkg/config"

// thresholdState is the health of a host according to its checks. The zero value is for a host
// without checks: the first check decides.
type thresholdState struct {
	checked        bool // there was a check
	healthy        bool
	contradictions int // consecutive checks whose result differs from healthy
}

// record records a check and reports whether healthy has changed. The first check always counts as
// a change.
func (s *thresholdState) record(passed bool, cfg *config.HealthCheck) (changed bool) {
	if s.checked && passed == s.healthy {
		s.contradictions = 0
		return false
	}
	s.contradictions++
	threshold := cfg.UnhealthyThreshold
	if passed {
		threshold = cfg.HealthyThreshold
	}
	if s.checked && s.contradictions < threshold {
		return false
	}
	*s = thresholdState{checked: true, healthy: passed}
	return true
}
