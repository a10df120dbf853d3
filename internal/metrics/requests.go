package metrics

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// classCount is the number of status classes, including "none".
const classCount = 6

// maxReasons is the maximum number of reasons.
const maxReasons = 64

// RequestRecorder counts the requests of one scope. It implements Account. The zero value is ready to use
// and occupies one word until the first Add. Add takes no lock and allocates only for the first
// request of a protocol, a status class or failures.
type RequestRecorder struct {
	first atomic.Pointer[protocolCounters]
}

// protocolCounters holds the counters of one scope and one protocol. The accounts of a scope form a linked
// list, newest protocol last. Most lists have one element.
type protocolCounters struct {
	protocol string // immutable
	next     atomic.Pointer[protocolCounters]

	// rows count requests by duration, one row for each status class, allocated on first use. The
	// number of requests is the sum of a row, so the request path increments one counter for both.
	rows     [classCount]atomic.Pointer[row]
	failures atomic.Pointer[[maxReasons]atomic.Uint64] // by reason; allocated on first use

	nanoseconds atomic.Uint64 // sum of the durations
	bytesIn     atomic.Uint64
	bytesOut    atomic.Uint64
}

type row [bucketCount]atomic.Uint64

// Add counts the requests of s.
func (r *RequestRecorder) Add(s Batch) {
	a := r.first.Load()
	if a == nil || a.protocol != s.Protocol {
		a = r.protocolCounters(s.Protocol)
	}
	class := uint(s.Status) / 100
	if class >= classCount {
		class = 0
	}
	cells := a.rows[class].Load()
	if cells == nil {
		cells = loadOrNew(&a.rows[class])
	}
	s.addTo(cells)
	a.nanoseconds.Add(s.nanoseconds)
	if s.bytesIn > 0 {
		a.bytesIn.Add(s.bytesIn)
	}
	if s.bytesOut > 0 {
		a.bytesOut.Add(s.bytesOut)
	}
	if s.Reason != 0 {
		failures := a.failures.Load()
		if failures == nil {
			failures = loadOrNew(&a.failures)
		}
		failures[s.Reason].Add(uint64(s.count))
	}
}

// protocolCounters returns the account of a protocol, adding it if needed.
func (r *RequestRecorder) protocolCounters(protocol string) *protocolCounters {
	at := &r.first
	for {
		a := at.Load()
		if a == nil {
			fresh := &protocolCounters{protocol: protocol}
			if at.CompareAndSwap(nil, fresh) {
				return fresh
			}
			continue // another goroutine was first: look at its account
		}
		if a.protocol == protocol {
			return a
		}
		at = &a.next
	}
}

// loadOrNew returns what p points to, after allocating it if p is nil.
func loadOrNew[T any](p *atomic.Pointer[T]) *T {
	fresh := new(T)
	if p.CompareAndSwap(nil, fresh) {
		return fresh
	}
	return p.Load()
}

// requestNames holds the names of a scope's request metrics.
type requestNames struct{ requests, failures, duration, bytesIn, bytesOut string }

// requestMetrics holds the descriptions of a scope's request metrics.
type requestMetrics struct{ requests, failures, duration, bytesIn, bytesOut Metric }

func newRequestMetrics(place string, keys []string, names requestNames) requestMetrics {
	with := func(more ...string) []string { return slices.Concat(keys, []string{LabelProtocol}, more) }
	return requestMetrics{
		requests: Metric{names.requests, "Completed requests of " + place + ", by the status class of the response.",
			KindCounter, with(LabelStatusClass)},
		failures: Metric{names.failures, "Requests of " + place + " that Weft ended with a local reply or a reset, by reason (docs/errors.md).",
			KindCounter, with(LabelReason)},
		duration: Metric{names.duration, "Time from the first byte of a request of " + place + " to the last byte of its response.",
			KindHistogram, with()},
		bytesIn: Metric{names.bytesIn, "Body bytes of requests of " + place + ".",
			KindCounter, with()},
		bytesOut: Metric{names.bytesOut, "Body bytes of responses of " + place + ".",
			KindCounter, with()},
	}
}

func (m requestMetrics) metrics() []Metric {
	return []Metric{m.requests, m.failures, m.duration, m.bytesIn, m.bytesOut}
}

// requestCollector exports Requests.
type requestCollector struct {
	requests, failures, duration, bytesIn, bytesOut *desc
}

func newRequestCollector(m requestMetrics) requestCollector {
	return requestCollector{newDesc(m.requests), newDesc(m.failures), newDesc(m.duration), newDesc(m.bytesIn), newDesc(m.bytesOut)}
}

func (c *requestCollector) descs() []*desc {
	return []*desc{c.requests, c.failures, c.duration, c.bytesIn, c.bytesOut}
}

// collect emits the series of r, whose scope has the given label values.
func (c *requestCollector) collect(e *emitter, r *RequestRecorder, values ...string) {
	for a := r.first.Load(); a != nil; a = a.next.Load() {
		c.collectProtocol(e, a, append(slices.Clip(values), cmp.Or(a.protocol, valueNone)))
	}
}

func (c *requestCollector) collectProtocol(e *emitter, a *protocolCounters, values []string) {
	values = slices.Clip(values)
	var cells [bucketCount]uint64
	for class := range a.rows {
		cellsOfClass := a.rows[class].Load()
		if cellsOfClass == nil {
			continue
		}
		sum := uint64(0)
		for i := range cellsOfClass {
			n := cellsOfClass[i].Load()
			cells[i] += n
			sum += n
		}
		e.counter(c.requests, sum, append(values, classNames[class])...)
	}
	if failures := a.failures.Load(); failures != nil {
		for reason, name := range e.reasons {
			if n := failures[reason].Load(); n > 0 {
				e.counter(c.failures, n, append(values, name)...)
			}
		}
	}
	e.histogram(c.duration, &cells, time.Duration(a.nanoseconds.Load()), values...)
	e.counter(c.bytesIn, a.bytesIn.Load(), values...)
	e.counter(c.bytesOut, a.bytesOut.Load(), values...)
}

// emitter sends the series that are not excluded to Prometheus. It lives for one scrape.
type emitter struct {
	ch                    chan<- prometheus.Metric
	exclusion             *Exclusion
	reasons, closeReasons []string
}

// desc is a Metric with its Prometheus description.
type desc struct {
	metric     Metric
	prometheus *prometheus.Desc
}

func newDesc(m Metric) *desc {
	return &desc{m, prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)}
}

func (e *emitter) counter(d *desc, n uint64, values ...string) {
	e.value(d, float64(n), values...)
}

func (e *emitter) value(d *desc, v float64, values ...string) {
	if e.exclusion.excludes(d.metric.Name, d.metric.Labels) {
		return
	}
	kind := prometheus.GaugeValue
	if d.metric.Kind == KindCounter {
		kind = prometheus.CounterValue
	}
	e.ch <- prometheus.MustNewConstMetric(d.prometheus, kind, v, values...)
}

func (e *emitter) histogram(d *desc, cells *[bucketCount]uint64, sum time.Duration, values ...string) {
	if e.exclusion.excludes(d.metric.Name, d.metric.Labels) {
		return
	}
	buckets := make(map[float64]uint64, len(bounds))
	n := uint64(0)
	for i, bound := range bounds {
		n += cells[i]
		buckets[bound.Seconds()] = n
	}
	n += cells[len(bounds)]
	e.ch <- prometheus.MustNewConstHistogram(d.prometheus, n, sum.Seconds(), buckets, values...)
}
