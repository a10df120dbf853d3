package metrics

import (
	"iter"

	dto "github.com/prometheus/client_model/go"
)

// Sample is the value of a counter or a gauge at one time.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Samples returns the exported counters and gauges, sorted by name. If some metrics cannot be
// gathered, it returns the other metrics and an error.
func (r *Registry) Samples() (iter.Seq[Sample], error) {
	families, err := r.Gather()
	return func(yield func(Sample) bool) {
		for _, f := range families {
			for _, m := range f.GetMetric() {
				value, ok := sampleValue(m)
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

// sampleValue returns the value of a counter or a gauge.
func sampleValue(m *dto.Metric) (float64, bool) {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue(), true
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue(), true
	}
	return 0, false
}
