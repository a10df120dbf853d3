package metrics

import (
	"iter"

	dto "github.com/prometheus/client_model/go"
)

// Sample is a counter or a gauge at a moment.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Samples returns the counters and gauges that are exported, in the order of their names.
// An error is one of what could not be read; the rest is there.
func (r *Registry) Samples() (iter.Seq[Sample], error) {
	families, err := r.Gather()
	return func(yield func(Sample) bool) {
		for _, f := range families {
			for _, m := range f.GetMetric() {
				value, ok := numberOf(m)
				if !ok {
					break
				}
				labels := make(map[string]string, len(m.GetLabel()))
				for _, pair := range m.GetLabel() {
					labels[pair.GetName()] = pair.GetValue()
				}
				if !yield(Sample{f.GetName(), labels, value}) {
					return
				}
			}
		}
	}, err
}

// numberOf returns what m counts, if that is one number.
func numberOf(m *dto.Metric) (float64, bool) {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue(), true
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue(), true
	}
	return 0, false
}
