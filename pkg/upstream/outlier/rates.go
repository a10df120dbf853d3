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

// ejectByRates ejects hosts by their rates in the interval that has ended. The caller holds d.mu.
func (d *Detector) ejectByRates(changes []Change) []Change {
	cfg := d.config.OutlierDetection
	samples := make([]sample, 0, len(d.stats))
	var localSamples []sample
	for _, s := range d.stats {
		requests, failures := s.externalOrigin.takeAndReset()
		samples = append(samples, sample{s, requests, min(failures, requests)})
		if cfg.SplitLocalOriginErrors {
			requests, failures = s.localOrigin.takeAndReset()
			localSamples = append(localSamples, sample{s, requests, min(failures, requests)})
		}
	}
	changes = d.ejectBySuccessRate(changes, samples, bySuccessRate, cfg.SuccessRate.Enforce)
	changes = d.ejectBySuccessRate(changes, localSamples, byLocalSuccessRate, cfg.EnforceLocalSuccessRate)
	changes = d.ejectByFailurePercentage(changes, samples, byFailurePercentage, cfg.FailurePercentage.Enforce)
	changes = d.ejectByFailurePercentage(changes, localSamples, byLocalFailurePercentage, cfg.EnforceLocalFailurePercentage)
	return d.ejectByFailureMultiple(changes, samples)
}

// ejectBySuccessRate ejects hosts whose success rate is far below the mean.
func (d *Detector) ejectBySuccessRate(changes []Change, samples []sample, reason Reason, enforce int) []Change {
	cfg := d.config.SuccessRate
	eligible := withVolume(samples, cfg.RequestVolume)
	if enforce == 0 || len(eligible) == 0 || len(eligible) < cfg.MinHosts {
		return changes
	}
	threshold := successThreshold(eligible, float64(cfg.StdevFactor)/1000)
	for i := range eligible {
		if eligible[i].successRate() < threshold {
			changes = d.eject(changes, eligible[i].stats, reason, enforce)
		}
	}
	return changes
}

// successThreshold returns the mean of the success rates minus factor times their standard
// deviation.
func successThreshold(samples []sample, factor float64) float64 {
	var sum, squares float64
	for i := range samples {
		sum += samples[i].successRate()
	}
	mean := sum / float64(len(samples))
	for i := range samples {
		deviation := samples[i].successRate() - mean
		squares += deviation * deviation
	}
	return mean - factor*math.Sqrt(squares/float64(len(samples)))
}

// ejectByFailurePercentage ejects hosts whose failure percentage reaches the threshold.
func (d *Detector) ejectByFailurePercentage(changes []Change, samples []sample, reason Reason, enforce int) []Change {
	cfg := d.config.FailurePercentage
	eligible := withVolume(samples, cfg.RequestVolume)
	if enforce == 0 || len(eligible) < cfg.MinHosts {
		return changes
	}
	for i := range eligible {
		if 100-eligible[i].successRate() >= float64(cfg.Threshold) {
			changes = d.eject(changes, eligible[i].stats, reason, enforce)
		}
	}
	return changes
}

// ejectByFailureMultiple ejects hosts whose failure rate is at least the configured multiple of the
// failure rate of all hosts with enough requests.
func (d *Detector) ejectByFailureMultiple(changes []Change, samples []sample) []Change {
	cfg := d.config.FailureMultiple
	if cfg.Multiple <= 0 {
		return changes
	}
	eligible := withVolume(samples, cfg.RequestVolume)
	var requests, failures uint64
	for i := range eligible {
		requests += eligible[i].requests
		failures += eligible[i].failures
	}
	if failures == 0 {
		return changes
	}
	mean := float64(failures) / float64(requests)
	for i := range eligible {
		s := &eligible[i]
		if float64(s.failures)/float64(s.requests) >= cfg.Multiple*mean {
			changes = d.eject(changes, s.stats, byFailureMultiple, 100)
		}
	}
	return changes
}

// withVolume returns the samples of hosts that are not ejected and had at least volume requests,
// and at least one.
func withVolume(samples []sample, volume int) []sample {
	var eligible []sample
	for i := range samples {
		if s := &samples[i]; !s.stats.ejected && s.requests > 0 && s.requests >= uint64(max(volume, 0)) { //nolint:gosec // not negative
			eligible = append(eligible, *s)
		}
	}
	return eligible
}
