package outlier

import "math"

// sample holds the counts of a host in one interval.
type sample struct {
	stats              *Stats
	requests, failures uint64
}

func (s *sample) successRate() float64 {
	return 100 * float64(s.requests-s.failures) / float64(s.requests)
}

// ejectByRates ends an interval: it ejects hosts by their rates. d.mu is held.
func (d *Detector) ejectByRates(changes []Change) []Change {
	cfg := d.config.OutlierDetection
	responses := make([]sample, 0, len(d.stats))
	var locals []sample
	for _, s := range d.stats {
		requests, failures := s.externalOrigin.takeAndReset()
		responses = append(responses, sample{s, requests, min(failures, requests)})
		if cfg.SplitLocalOriginErrors {
			requests, failures = s.localOrigin.takeAndReset()
			locals = append(locals, sample{s, requests, min(failures, requests)})
		}
	}
	changes = d.ejectBySuccessRate(changes, responses, bySuccessRate, cfg.SuccessRate.Enforce)
	changes = d.ejectBySuccessRate(changes, locals, byLocalSuccessRate, cfg.EnforceLocalSuccessRate)
	changes = d.ejectByFailurePercentage(changes, responses, byFailurePercentage, cfg.FailurePercentage.Enforce)
	changes = d.ejectByFailurePercentage(changes, locals, byLocalFailurePercentage, cfg.EnforceLocalFailurePercentage)
	return d.ejectByFailureMultiple(changes, responses)
}

// ejectBySuccessRate ejects hosts whose success rate is far below the mean.
func (d *Detector) ejectBySuccessRate(changes []Change, all []sample, by Reason, enforce int) []Change {
	cfg := d.config.SuccessRate
	enough := withVolume(all, cfg.RequestVolume)
	if enforce == 0 || len(enough) == 0 || len(enough) < cfg.MinHosts {
		return changes
	}
	threshold := successThreshold(enough, float64(cfg.StdevFactor)/1000)
	for i := range enough {
		if enough[i].successRate() < threshold {
			changes = d.eject(changes, enough[i].stats, by, enforce)
		}
	}
	return changes
}

// successThreshold returns the mean of the success rates minus factor times their standard
// deviation.
func successThreshold(all []sample, factor float64) float64 {
	var sum, squares float64
	for i := range all {
		sum += all[i].successRate()
	}
	mean := sum / float64(len(all))
	for i := range all {
		d := all[i].successRate() - mean
		squares += d * d
	}
	return mean - factor*math.Sqrt(squares/float64(len(all)))
}

// ejectByFailurePercentage ejects hosts whose failure percentage reaches the threshold.
func (d *Detector) ejectByFailurePercentage(changes []Change, all []sample, by Reason, enforce int) []Change {
	cfg := d.config.FailurePercentage
	enough := withVolume(all, cfg.RequestVolume)
	if enforce == 0 || len(enough) < cfg.MinHosts {
		return changes
	}
	for i := range enough {
		if 100-enough[i].successRate() >= float64(cfg.Threshold) {
			changes = d.eject(changes, enough[i].stats, by, enforce)
		}
	}
	return changes
}

// ejectByFailureMultiple ejects hosts whose failure rate is at least the configured multiple of the
// rate of all.
func (d *Detector) ejectByFailureMultiple(changes []Change, all []sample) []Change {
	cfg := d.config.FailureMultiple
	if cfg.Multiple <= 0 {
		return changes
	}
	enough := withVolume(all, cfg.RequestVolume)
	var requests, failures uint64
	for i := range enough {
		requests += enough[i].requests
		failures += enough[i].failures
	}
	if failures == 0 {
		return changes
	}
	mean := float64(failures) / float64(requests)
	for i := range enough {
		s := &enough[i]
		if float64(s.failures)/float64(s.requests) >= cfg.Multiple*mean {
			changes = d.eject(changes, s.stats, byFailureMultiple, 100)
		}
	}
	return changes
}

// withVolume returns the samples with at least volume requests, and at least one, of hosts that are
// not ejected.
func withVolume(all []sample, volume int) []sample {
	var enough []sample
	for i := range all {
		if s := &all[i]; !s.stats.ejected && s.requests > 0 && s.requests >= uint64(max(volume, 0)) { //nolint:gosec // not negative
			enough = append(enough, *s)
		}
	}
	return enough
}
