package istiostats

import (
	"strings"
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
)

// mostSeries is the maximum number of series of a metric, not counting the one with labels other.
const mostSeries = 4096

// mostKeys is the maximum number of keys in a table. It exceeds mostSeries because several keys can
// map to one series.
const mostKeys = 2 * mostSeries

// bounds are the upper bounds of the buckets of all histograms. They are Envoy's.
//
//nolint:gochecknoglobals // a constant table
var bounds = []float64{0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 600000, 1800000, 3600000}

// ledger limits the number of series of all listeners and configurations. Series exist until the
// process ends. The zero value has none. It is safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	known [metricCount]map[string]struct{} // by metric, then by joined label values; guarded by mu
}

// admit reports whether a metric has a series with these label values, or may still get it.
func (l *ledger) admit(metric int, values []string) bool {
	name := strings.Join(values, "\xff") // 0xff never occurs in UTF-8
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

// entry holds the series that count the exchanges or sessions with one key.
type entry struct {
	by       [metricCount]adder // by metric index; nil: dropped by an override
	overflow bool               // a series in by has labels other
}

// adder is a counter or a histogram.
type adder interface{ Add(n uint64) }

// add adds n to a counter, or observes n in a histogram.
func (e *entry) add(metric int, n int64) {
	if to := e.by[metric]; to != nil {
		to.Add(uint64(max(n, 0)))
	}
}

// entryOf returns the entry of k and counts an overflow if it is beyond the limit. It is called
// once per exchange or session.
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

// entry creates the entry of k.
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

// without returns a copy of values in which the one at index at is empty. To Prometheus, an empty
// label is no label.
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

// table finds entries by key. The zero value is empty. It is safe for concurrent use.
type table struct {
	mu    sync.RWMutex
	byKey map[key]*entry // guarded by mu
}

// find returns the entry of k, or nil if there is none.
func (t *table) find(k *key) *entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[*k]
}

// keep returns the entry of k and creates it with made if there is none. k has no views.
func (t *table) keep(k key, made func(*key) *entry) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byKey[k]; e != nil {
		return e
	}
	e := made(&k)
	if t.byKey == nil || len(t.byKey) >= mostKeys {
		t.byKey = make(map[key]*entry) // keys in use are added again soon; no series is lost
	}
	t.byKey[k] = e
	return e
}
