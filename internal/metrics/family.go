package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// families holds the metrics of Registry.Counter, Registry.Func and Registry.Histogram.
type families struct {
	limit int // maximum number of series of one family; immutable

	mu     sync.Mutex
	byName map[string]*family // guarded by mu
}

type family struct {
	desc   *desc
	series map[string]*series // by joined label values
}

// series is one combination of label values.
type series struct {
	values    []string
	read      func() float64
	counter   *Counter   // read returns its value; set if Registry.Counter created the series
	histogram *Histogram // replaces read; set if Registry.Histogram created the series
}

// Counter returns the counter of m with the given label values, in the order of m.Labels. The same
// values return the same counter. The counter exists until the process exits, so values must come
// from a bounded set and not from requests. Beyond the registry's MaxScopes, new values share one
// series.
func (r *Registry) Counter(m Metric, values ...string) *Counter {
	if m.Kind != KindCounter {
		panic(fmt.Sprintf("metrics: %s is a %s, not a counter", m.Name, m.Kind))
	}
	r.families.mu.Lock()
	defer r.families.mu.Unlock()
	s, found := r.families.findOrAdd(m, values)
	if !found {
		s.counter = new(Counter)
		s.read = func() float64 { return float64(s.counter.Value()) }
	}
	if s.counter == nil {
		panic(fmt.Sprintf("metrics: %s%q is already exported by Func", m.Name, values))
	}
	return s.counter
}

// Func exports the result of read as the series of m with the given label values, until the caller
// calls remove. Several goroutines call read concurrently; it must be fast. A second Func for the
// same values replaces the first.
func (r *Registry) Func(m Metric, read func() float64, values ...string) (remove func()) {
	if m.Kind == KindHistogram {
		panic(fmt.Sprintf("metrics: %s is a histogram, not a single value", m.Name))
	}
	f := &r.families
	f.mu.Lock()
	defer f.mu.Unlock()
	s, _ := f.findOrAdd(m, values)
	added := &series{values: s.values, read: read}
	key := joinKey(added.values)
	f.byName[m.Name].series[key] = added
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if current := f.byName[m.Name].series; current[key] == added {
			delete(current, key)
		}
	}
}

// findOrAdd returns the series of m with the given values, and adds it if needed. found reports
// whether the series existed before. The caller holds f.mu.
func (f *families) findOrAdd(m Metric, values []string) (s *series, found bool) {
	if len(values) != len(m.Labels) {
		panic(fmt.Sprintf("metrics: %s has the labels %q, got the values %q", m.Name, m.Labels, values))
	}
	if f.byName == nil {
		f.byName = map[string]*family{}
	}
	fam := f.byName[m.Name]
	if fam == nil {
		fam = &family{desc: newDesc(m), series: map[string]*series{}}
		f.byName[m.Name] = fam
	}
	if registered := fam.desc.metric; registered.Kind != m.Kind || !slices.Equal(registered.Labels, m.Labels) {
		panic(fmt.Sprintf("metrics: %s is already registered as %s%q, not as %s%q", m.Name, registered.Kind, registered.Labels, m.Kind, m.Labels))
	}
	labels := make([]string, len(values))
	for i, value := range values {
		labels[i] = label(value)
	}
	if s, found = fam.series[joinKey(labels)]; found {
		return s, true
	}
	if len(fam.series) >= f.limit {
		for i := range labels {
			labels[i] = valueOther
		}
		if s, found = fam.series[joinKey(labels)]; found {
			return s, true
		}
	}
	s = &series{values: labels}
	fam.series[joinKey(labels)] = s
	return s, false
}

// joinKey returns a map key for label values. They are UTF-8, which never contains the byte 0xFF.
func joinKey(values []string) string { return strings.Join(values, "\xff") }

// familyCollector exports the families of a registry. It implements prometheus.Collector.
type familyCollector struct{ r *Registry }

// Describe sends nothing, because the metrics of filters are not known in advance.
func (c *familyCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all series.
func (c *familyCollector) Collect(ch chan<- prometheus.Metric) {
	type reading struct {
		desc   *desc
		series *series
	}
	f := &c.r.families
	f.mu.Lock()
	var readings []reading
	for _, fam := range f.byName {
		for _, s := range fam.series {
			readings = append(readings, reading{fam.desc, s})
		}
	}
	f.mu.Unlock()
	e := c.r.emitter(ch)
	for _, r := range readings {
		if h := r.series.histogram; h != nil {
			e.emitSizeHistogram(r.desc, h, r.series.values...)
			continue
		}
		e.emitValue(r.desc, r.series.read(), r.series.values...)
	}
}
