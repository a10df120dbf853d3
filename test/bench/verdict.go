package main

import "fmt"

// judge fills the verdicts of all that was measured.
func (r *report) judge() {
	for _, weft := range r.wefts {
		for _, l := range r.Loads {
			for _, t := range l.targets {
				if v, found := l.judge(weft, t); found {
					r.Verdicts = append(r.Verdicts, v)
				}
			}
		}
		for _, i := range r.Idle {
			if i.Proxy == weft {
				r.Verdicts = append(r.Verdicts, i.judge()...)
			}
		}
		for _, i := range r.Inflight {
			if i.Proxy == weft {
				r.Verdicts = append(r.Verdicts, i.judge()...)
			}
		}
		for _, s := range r.Streams {
			if s.Proxy == weft {
				r.Verdicts = append(r.Verdicts, s.judge()...)
			}
		}
		for _, s := range r.Scale {
			if s.Proxy == weft {
				r.Verdicts = append(r.Verdicts, s.judge()...)
			}
		}
	}
}

// judge holds a build of Weft to a target of the row; found is false if what it
// needs was not measured. The value is the median of the rounds' own ratios: in
// one round both were measured within seconds of each other. Rounds that somebody
// disturbed are left out, unless there are no others.
func (r *loadRow) judge(weft string, t target) (v verdict, found bool) {
	mine, theirs, bare := r.samples(weft, t.figure), r.samples(t.against, t.figure), r.samples(direct, t.figure)
	if len(mine) == 0 || len(theirs) == 0 || t.figure == addedP50 && len(bare) == 0 {
		return verdict{}, false
	}
	var all, calm []float64
	for i := range mine {
		a, b := mine[i], theirs[i]
		most := max(a.Others, b.Others)
		var ratio float64
		switch t.figure {
		case cpuPerRequest:
			ratio = cpu(a) / cpu(b)
		case halfP99:
			ratio = p99(a) / p99(b)
		case addedP50:
			floor := bare[i]
			ratio, most = (p50(a)-p50(floor))/(p50(b)-p50(floor)), max(most, floor.Others)
		}
		all = append(all, ratio)
		if most < disturbed {
			calm = append(calm, ratio)
		}
	}
	rounds := fmt.Sprintf("%d calm of %d", len(calm), len(all))
	if len(calm) == 0 {
		calm = all
	}
	value := summarizeValues(calm)
	return verdict{
		Row: r.Name, Proxy: weft, What: fmt.Sprintf("%v / %s's", t.figure, t.against),
		Value: value, Target: t.limit, Unit: "x", Rounds: rounds, OK: value.Median <= t.limit,
	}, true
}

// atMost returns the verdict of an absolute target.
func atMost(row, proxy, what string, value stat, target float64, unit string) verdict {
	return verdict{Row: row, Proxy: proxy, What: what, Value: value, Target: target, Unit: unit, OK: value.Median <= target}
}
