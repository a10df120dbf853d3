package istiostats

import (
	"strings"
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
)

// maxSeries is the maximum number of series of one metric in the process, without the one with
// overflowLabel.
const maxSeries = 4096

// maxKeys is the maximum number of keys in an entryCache. It exceeds maxSeries because several keys
// can map to one series.
const maxKeys = 2 * maxSeries

// histogramBounds are the upper bounds of the buckets of all histograms, as in Envoy.
//
//nolint:gochecknoglobals // a constant table
var histogramBounds = []float64{0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 600000, 1800000, 3600000}

// seriesLimiter limits the number of series of all listeners and configurations. Series exist until
// the process ends. The zero value has no series. It is safe for concurrent use.
type seriesLimiter struct {
	mu       sync.Mutex
	admitted [metricCount]map[string]struct{} // by metric, then by joined label values; guarded by mu
}

// admit reports whether a metric may have a series with these label values. If so, it counts the
// series.
func (l *seriesLimiter) admit(metric int, values []string) bool {
	name := strings.Join(values, "\xff") // 0xff never occurs in UTF-8
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.admitted[metric][name]; ok {
		return true
	}
	if len(l.admitted[metric]) >= maxSeries {
		return false
	}
	if l.admitted[metric] == nil {
		l.admitted[metric] = make(map[string]struct{})
	}
	l.admitted[metric][name] = struct{}{}
	return true
}

// entry holds the series that count the exchanges or sessions with one key.
type entry struct {
	adders   [metricCount]adder // by metric index; nil: dropped by an override
	overflow bool               // a series in adders has overflowLabel
}

// adder is a counter or a histogram.
type adder interface{ Add(n uint64) }

// add adds n to a counter, or observes n in a histogram.
func (e *entry) add(metric int, n int64) {
	if a := e.adders[metric]; a != nil {
		a.Add(uint64(max(n, 0)))
	}
}

// entryOf returns the entry of k. If the entry has overflowLabel, entryOf also counts an overflow,
// so callers call it once per exchange or session.
func (s *stats) entryOf(k *key) *entry {
	e := s.entries.get(k)
	if e == nil {
		e = s.entries.getOrCreate(k.clone(), s.newEntry)
	}
	if e.overflow {
		s.overflow.Add(1)
	}
	return e
}

// newEntry creates the entry of k.
func (s *stats) newEntry(k *key) *entry {
	e := &entry{}
	values := s.labelValues(k)
	for i, m := range s.metrics {
		if s.droppedMetrics[i] {
			continue
		}
		labels := values[:len(m.Labels)]
		for j := range labels {
			if s.removedLabels[i][j] {
				labels = withEmptyLabel(labels, j)
			}
		}
		if !s.seriesLimiter.admit(i, labels) {
			e.overflow = true
			labels = overflowLabels(len(labels))
		}
		if m.Kind == metrics.KindCounter {
			e.adders[i] = s.env.Metrics.Counter(m, labels...)
		} else {
			e.adders[i] = s.env.Metrics.Histogram(m, histogramBounds, labels...)
		}
	}
	return e
}

// withEmptyLabel returns a copy of values in which the value at index is empty. Prometheus treats
// an empty label like a missing one.
func withEmptyLabel(values []string, index int) []string {
	copied := append([]string(nil), values...)
	copied[index] = ""
	return copied
}

func overflowLabels(count int) []string {
	labels := make([]string, count)
	for i := range labels {
		labels[i] = overflowLabel
	}
	return labels
}

// entryCache finds entries by key. The zero value is empty. It is safe for concurrent use.
type entryCache struct {
	mu    sync.RWMutex
	byKey map[key]*entry // guarded by mu
}

// get returns the entry of k, or nil if there is none.
func (c *entryCache) get(k *key) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byKey[*k]
}

// getOrCreate returns the entry of k and creates it with create if there is none. k must own its
// strings.
func (c *entryCache) getOrCreate(k key, create func(*key) *entry) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[k]; e != nil {
		return e
	}
	e := create(&k)
	if c.byKey == nil || len(c.byKey) >= maxKeys {
		c.byKey = make(map[key]*entry) // keys in use are added again soon; no series is lost
	}
	c.byKey[k] = e
	return e
}
