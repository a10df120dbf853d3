package upstream

import "math"

// sample holds the counts of a host in one interval.
type sample struct {
	stats              *outlierStats
	requests, failures uint64
}

func (s *sample) successRate() float64 {
	return 100 * float64(s.requests-s.failures) / float64(s.requests)
}

// ejectByRates ends an interval: it ejects hosts by their rates. o.mu is held.
func (o *outlierDetector) ejectByRates(changes []ejection) []ejection {
	cfg := o.config
	answers := make([]sample, 0, len(o.stats))
	var locals []sample
	for _, r := range o.stats {
		requests, failures := r.externalOrigin.takeAndReset()
		answers = append(answers, sample{r, requests, min(failures, requests)})
		if cfg.SplitLocalOriginErrors {
			requests, failures = r.localOrigin.takeAndReset()
			locals = append(locals, sample{r, requests, min(failures, requests)})
		}
	}
	changes = o.ejectBySuccessRate(changes, answers, bySuccessRate, cfg.SuccessRate.Enforce)
	changes = o.ejectBySuccessRate(changes, locals, byLocalSuccessRate, cfg.EnforceLocalSuccessRate)
	changes = o.ejectByFailurePercentage(changes, answers, byFailurePercentage, cfg.FailurePercentage.Enforce)
	changes = o.ejectByFailurePercentage(changes, locals, byLocalFailurePercentage, cfg.EnforceLocalFailurePercentage)
	return o.ejectByFailureMultiple(changes, answers)
}

// ejectBySuccessRate ejects hosts whose success rate is far below the mean.
func (o *outlierDetector) ejectBySuccessRate(changes []ejection, all []sample, by detector, enforce int) []ejection {
	cfg := o.config.SuccessRate
	judged := withVolume(all, cfg.RequestVolume)
	if enforce == 0 || len(judged) == 0 || len(judged) < cfg.MinHosts {
		return changes
	}
	threshold := successThreshold(judged, float64(cfg.StdevFactor)/1000)
	for i := range judged {
		if judged[i].successRate() < threshold {
			changes = o.eject(changes, judged[i].stats, by, enforce)
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
func (o *outlierDetector) ejectByFailurePercentage(changes []ejection, all []sample, by detector, enforce int) []ejection {
	cfg := o.config.FailurePercentage
	judged := withVolume(all, cfg.RequestVolume)
	if enforce == 0 || len(judged) < cfg.MinHosts {
		return changes
	}
	for i := range judged {
		if 100-judged[i].successRate() >= float64(cfg.Threshold) {
			changes = o.eject(changes, judged[i].stats, by, enforce)
		}
	}
	return changes
}

// ejectByFailureMultiple ejects hosts whose failure rate is at least the configured multiple of the rate of
// all.
func (o *outlierDetector) ejectByFailureMultiple(changes []ejection, all []sample) []ejection {
	cfg := o.config.FailureMultiple
	if cfg.Multiple <= 0 {
		return changes
	}
	judged := withVolume(all, cfg.RequestVolume)
	var requests, failures uint64
	for i := range judged {
		requests += judged[i].requests
		failures += judged[i].failures
	}
	if failures == 0 {
		return changes
	}
	mean := float64(failures) / float64(requests)
	for i := range judged {
		s := &judged[i]
		if float64(s.failures)/float64(s.requests) >= cfg.Multiple*mean {
			changes = o.eject(changes, s.stats, byFailureMultiple, 100)
		}
	}
	return changes
}

// withVolume returns the samples with at least volume requests, and at least one, of hosts that are not
// ejected.
func withVolume(all []sample, volume int) []sample {
	var judged []sample
	for i := range all {
		if s := &all[i]; !s.stats.ejected && s.requests > 0 && s.requests >= uint64(max(volume, 0)) { //nolint:gosec // not negative
			judged = append(judged, *s)
		}
	}
	return judged
}
