package metrics

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram counts values by size. It takes no lock and does not allocate. Safe for concurrent use.
type Histogram struct {
	bounds []float64       // immutable; increasing
	cells  []atomic.Uint64 // one more than bounds, for values beyond the last
	sum    atomic.Uint64
}

// Add counts v. It scans the bounds linearly, because most values belong to one of the first
// buckets.
func (h *Histogram) Add(v uint64) {
	i := 0
	for i < len(h.bounds) && float64(v) > h.bounds[i] {
		i++
	}
	h.cells[i].Add(1)
	h.sum.Add(v)
}

// Count returns the number of counted values.
func (h *Histogram) Count() (n uint64) {
	for i := range h.cells {
		n += h.cells[i].Load()
	}
	return n
}

// Histogram returns the histogram of m with the given label values, with the rules of Counter.
// bounds are the upper bounds of its buckets; they must increase and be the same for all series of
// m. Histogram retains bounds, and the caller must not change it.
func (r *Registry) Histogram(m Metric, bounds []float64, values ...string) *Histogram {
	if m.Kind != KindHistogram {
		panic(fmt.Sprintf("metrics: %s is a %s, not a histogram", m.Name, m.Kind))
	}
	r.families.mu.Lock()
	defer r.families.mu.Unlock()
	s, found := r.families.findOrAdd(m, values)
	if !found {
		s.histogram = &Histogram{bounds: bounds, cells: make([]atomic.Uint64, len(bounds)+1)}
	}
	if !slices.Equal(s.histogram.bounds, bounds) {
		panic(fmt.Sprintf("metrics: %s has the bounds %v, got %v", m.Name, s.histogram.bounds, bounds))
	}
	return s.histogram
}

func (e *emitter) emitSizeHistogram(d *desc, h *Histogram, values ...string) {
	if e.exclusion.excludes(d.metric.Name, d.metric.Labels) {
		return
	}
	buckets := make(map[float64]uint64, len(h.bounds))
	n := uint64(0)
	for i, bound := range h.bounds {
		n += h.cells[i].Load()
		buckets[bound] = n
	}
	n += h.cells[len(h.bounds)].Load()
	e.ch <- prometheus.MustNewConstHistogram(d.prometheus, n, float64(h.sum.Load()), buckets, values...)
}
