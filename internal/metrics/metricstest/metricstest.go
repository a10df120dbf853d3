// Package metricstest provides helpers for tests of packages with metrics.
package metricstest

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
)

// Value returns the sum of the series of a metric that have the given label values, in any order;
// "" matches any value. It ends the test if the metrics cannot be read.
func Value(t testing.TB, registry *metrics.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, pair := range m.GetLabel() {
				values = append(values, pair.GetValue())
			}
			missing := func(want string) bool { return want != "" && !slices.Contains(values, want) }
			if !slices.ContainsFunc(labels, missing) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
