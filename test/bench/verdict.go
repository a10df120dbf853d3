package main

import (
	"fmt"
	"slices"
)

// outcome is the result of a comparison.
type outcome string

const (
	met        outcome = "ok"
	missed     outcome = "**MISS**"
	unmeasured outcome = "not measured" // on at least one side
	unbounded  outcome = ""             // there is no target
)

// fillVerdicts fills the verdicts of all measurements.
func (r *report) fillVerdicts() {
	for _, weft := range r.wefts {
		for _, l := range r.Loads {
			if len(l.samples(weft+xdsSuffix, cpuPerRequest)) > 0 {
				r.Verdicts = append(r.Verdicts, l.compare(weft+xdsSuffix, target{cpuPerRequest, weft, 1.02}))
				continue
			}
			for _, t := range l.comparisons(weft, r.wefts) {
				r.Verdicts = append(r.Verdicts, l.compare(weft, t))
			}
		}
		for _, i := range r.Idle {
			if i.Proxy == weft {
				r.Verdicts = append(r.Verdicts, i.verdicts()...)
			}
		}
		for _, i := range r.Inflight {
			if i.Proxy == weft {
				r.Verdicts = append(r.Verdicts, i.verdicts()...)
			}
		}
		for _, s := range r.Streams {
			if s.Proxy == weft {
				r.Verdicts = append(r.Verdicts, s.verdicts()...)
			}
		}
		for _, s := range r.Scale {
			if s.Proxy == weft {
				r.Verdicts = append(r.Verdicts, s.verdicts()...)
			}
		}
		r.Verdicts = append(r.Verdicts, bootstrapScaleVerdicts(weft, r.BootstrapScale)...)
	}
}

// comparisons returns the row's targets. It adds targets without a limit: cpuPerRequest and halfP99
// compared with each other proxy, if they were measured for both and the row has no such target.
func (r *loadRow) comparisons(weft string, wefts []string) []target {
	out := slices.Clone(r.targets)
	addUnlessPresent := func(f metric, baseline string) {
		same := func(t target) bool { return t.metric == f && t.baseline == baseline }
		if !slices.ContainsFunc(out, same) {
			out = append(out, target{metric: f, baseline: baseline})
		}
	}
	for _, c := range r.Cells {
		if c.Proxy == direct || slices.Contains(wefts, c.Proxy) {
			continue
		}
		for _, f := range []metric{cpuPerRequest, halfP99} {
			if len(r.samples(weft, f)) > 0 && len(r.samples(c.Proxy, f)) > 0 {
				addUnlessPresent(f, c.Proxy)
			}
		}
	}
	return out
}

// compare compares a build of Weft with a target of the row. The value is the median of the ratios
// of the rounds: in one round both programs are measured within seconds. It leaves out disturbed
// rounds unless all are disturbed.
func (r *loadRow) compare(weft string, t target) verdict {
	v := verdict{Row: r.Name, Proxy: weft, What: fmt.Sprintf("%v / %s's", t.metric, t.baseline), Target: t.limit, Unit: "x", Outcome: unmeasured}
	weftRounds, otherRounds, directRounds := r.samples(weft, t.metric), r.samples(t.baseline, t.metric), r.samples(direct, t.metric)
	if len(weftRounds) == 0 || len(otherRounds) == 0 || t.metric == addedP50 && len(directRounds) == 0 {
		return v
	}
	var all, undisturbed []float64
	for i := range weftRounds {
		weftSample, otherSample := weftRounds[i], otherRounds[i]
		otherCPUs := max(weftSample.Others, otherSample.Others)
		var ratio float64
		switch t.metric {
		case cpuPerRequest:
			ratio = cpu(weftSample) / cpu(otherSample)
		case halfP99:
			ratio = p99(weftSample) / p99(otherSample)
		case addedP50:
			directSample := directRounds[i]
			ratio, otherCPUs = (p50(weftSample)-p50(directSample))/(p50(otherSample)-p50(directSample)), max(otherCPUs, directSample.Others)
		}
		all = append(all, ratio)
		if otherCPUs < disturbanceThreshold {
			undisturbed = append(undisturbed, ratio)
		}
	}
	v.Rounds = fmt.Sprintf("%d of %d undisturbed", len(undisturbed), len(all))
	if len(undisturbed) == 0 {
		undisturbed = all
	}
	v.Value = summarizeValues(undisturbed)
	switch {
	case t.limit == 0:
		v.Outcome = unbounded
	case v.Value.Median <= t.limit:
		v.Outcome = met
	default:
		v.Outcome = missed
	}
	return v
}

// upperBoundVerdict returns the verdict of an absolute target.
func upperBoundVerdict(row, proxy, label string, value stat, target float64, unit string) verdict {
	v := verdict{Row: row, Proxy: proxy, What: label, Value: value, Target: target, Unit: unit, Outcome: met}
	if value.Median > target {
		v.Outcome = missed
	}
	return v
}

// markUnmeasured marks the verdicts as unmeasured.
func markUnmeasured(verdicts []verdict) []verdict {
	for i := range verdicts {
		verdicts[i].Value, verdicts[i].Outcome = stat{}, unmeasured
	}
	return verdicts
}
