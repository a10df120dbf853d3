package istiostats

import (
	"strings"
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
)

// mostSeries is how many series a metric has beside the one of all others.
const mostSeries = 4096

// mostKeys is how many keys a listener remembers: those of several listeners may lead
// to one series, and those of one to several.
const mostKeys = 2 * mostSeries

// bounds are the upper bounds of the buckets of all histograms: what Envoy has.
//
//nolint:gochecknoglobals // a constant table
var bounds = []float64{0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 600000, 1800000, 3600000}

// ledger knows which series there are, of all listeners and configurations: they stay
// until the process ends. The zero value has none. Safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	known [metricCount]map[string]struct{} // by joined values; guarded by mu
}

// admit reports whether a metric has, or may have, the series of the given values.
func (l *ledger) admit(metric int, values []string) bool {
	name := strings.Join(values, "\xff") // which no UTF-8 has
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[metric][name]; ok {
		return true
	}
	if len(l.known[metric]) >= mostSeries {
		return false
	}
	if l.known[metric] == nil {
		l.known[metric] = make(map[string]struct{})
	}
	l.known[metric][name] = struct{}{}
	return true
}

// entry is what exchanges, or sessions, are counted by that have a key in common: by the
// position of the metric; nil: not at all.
type entry struct {
	by       [metricCount]adder
	overflow bool // it is that of others
}

// adder is a counter, or a histogram.
type adder interface{ Add(n uint64) }

// add counts n, or a histogram's one of the size n, at the position of a metric.
func (e *entry) add(metric int, n int64) {
	if to := e.by[metric]; to != nil {
		to.Add(uint64(max(n, 0)))
	}
}

// entryOf returns what one more exchange, or session, of k is counted by.
func (s *stats) entryOf(k *key) *entry {
	e := s.table.find(k)
	if e == nil {
		e = s.table.keep(k.kept(), s.entry)
	}
	if e.overflow {
		s.overflow.Add(1)
	}
	return e
}

// entry makes what exchanges, or sessions, of k are counted by.
func (s *stats) entry(k *key) *entry {
	e := &entry{}
	values := s.labels(k)
	for i, m := range s.metrics {
		if s.dropped[i] {
			continue
		}
		named := values[:len(m.Labels)]
		for at := range named {
			if s.removed[i][at] {
				named = without(named, at)
			}
		}
		if !s.shared.admit(i, named) {
			e.overflow = true
			named = others(len(named))
		}
		if m.Kind == metrics.KindCounter {
			e.by[i] = s.env.Metrics.Counter(m, named...)
		} else {
			e.by[i] = s.env.Metrics.Histogram(m, bounds, named...)
		}
	}
	return e
}

// without returns values with the one at a position empty, which to Prometheus is none.
func without(values []string, at int) []string {
	out := append([]string(nil), values...)
	out[at] = ""
	return out
}

func others(labels int) []string {
	out := make([]string, labels)
	for i := range out {
		out[i] = other
	}
	return out
}

// table finds entries by key. The zero value is empty. Safe for concurrent use.
type table struct {
	mu    sync.RWMutex
	byKey map[key]*entry // guarded by mu
}

// find returns the entry of k, nil if there is none yet.
func (t *table) find(k *key) *entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[*k]
}

// keep returns the entry of k, which made makes if need be. k has no views.
func (t *table) keep(k key, made func(*key) *entry) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byKey[k]; e != nil {
		return e
	}
	e := made(&k)
	if t.byKey == nil || len(t.byKey) >= mostKeys {
		t.byKey = make(map[key]*entry) // what is in use comes again at once; no series is lost
	}
	t.byKey[k] = e
	return e
}
