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

// RequestRecorder counts the requests of one scope. It implements Recorder. The zero value is ready
// to use and occupies one word until the first Add. Add takes no lock and allocates only for the
// first request of a protocol, a status class or failures.
type RequestRecorder struct {
	firstProtocol atomic.Pointer[protocolCounters]
}

// protocolCounters holds the counters of one scope and one protocol. Those of a scope form a linked
// list, newest protocol last. Most lists have one element.
type protocolCounters struct {
	protocol string // immutable
	next     atomic.Pointer[protocolCounters]

	// rows counts requests by duration, one row for each status class, allocated on first use. The
	// number of requests is the sum of a row, so it needs no counter of its own.
	rows     [classCount]atomic.Pointer[row]
	failures atomic.Pointer[[maxReasons]atomic.Uint64] // by reason; allocated on first use

	nanoseconds atomic.Uint64 // sum of the durations
	bytesIn     atomic.Uint64
	bytesOut    atomic.Uint64
}

type row [bucketCount]atomic.Uint64

// Add counts the requests of b.
func (r *RequestRecorder) Add(b Batch) {
	counters := r.firstProtocol.Load()
	if counters == nil || counters.protocol != b.Protocol {
		counters = r.protocolCounters(b.Protocol)
	}
	class := uint(b.Status) / 100
	if class >= classCount {
		class = 0
	}
	cells := counters.rows[class].Load()
	if cells == nil {
		cells = loadOrNew(&counters.rows[class])
	}
	b.addTo(cells)
	counters.nanoseconds.Add(b.nanoseconds)
	if b.bytesIn > 0 {
		counters.bytesIn.Add(b.bytesIn)
	}
	if b.bytesOut > 0 {
		counters.bytesOut.Add(b.bytesOut)
	}
	if b.Reason != 0 {
		failures := counters.failures.Load()
		if failures == nil {
			failures = loadOrNew(&counters.failures)
		}
		failures[b.Reason].Add(uint64(b.count))
	}
}

// protocolCounters returns the counters of a protocol, and adds them if needed.
func (r *RequestRecorder) protocolCounters(protocol string) *protocolCounters {
	link := &r.firstProtocol
	for {
		counters := link.Load()
		if counters == nil {
			added := &protocolCounters{protocol: protocol}
			if link.CompareAndSwap(nil, added) {
				return added
			}
			continue // another goroutine was faster: check its counters
		}
		if counters.protocol == protocol {
			return counters
		}
		link = &counters.next
	}
}

// loadOrNew returns the pointer that p holds. If p holds nil, loadOrNew first stores a pointer to a
// new value.
func loadOrNew[T any](p *atomic.Pointer[T]) *T {
	value := new(T)
	if p.CompareAndSwap(nil, value) {
		return value
	}
	return p.Load()
}

// requestNames holds the names of a scope's request metrics.
type requestNames struct{ requests, failures, duration, bytesIn, bytesOut string }

// requestMetrics holds the descriptions of a scope's request metrics.
type requestMetrics struct{ requests, failures, duration, bytesIn, bytesOut Metric }

func newRequestMetrics(scope string, keys []string, names requestNames) requestMetrics {
	labels := func(extra ...string) []string { return slices.Concat(keys, []string{LabelProtocol}, extra) }
	return requestMetrics{
		requests: Metric{names.requests, "Completed requests of " + scope + ", by the status class of the response.",
			KindCounter, labels(LabelStatusClass)},
		failures: Metric{names.failures, "Requests of " + scope + " that Weft ended with a local reply or a reset, by reason (docs/errors.md).",
			KindCounter, labels(LabelReason)},
		duration: Metric{names.duration, "Time from the first byte of a request of " + scope + " to the last byte of its response.",
			KindHistogram, labels()},
		bytesIn: Metric{names.bytesIn, "Body bytes of requests of " + scope + ".",
			KindCounter, labels()},
		bytesOut: Metric{names.bytesOut, "Body bytes of responses of " + scope + ".",
			KindCounter, labels()},
	}
}

func (m requestMetrics) metrics() []Metric {
	return []Metric{m.requests, m.failures, m.duration, m.bytesIn, m.bytesOut}
}

// requestCollector exports a RequestRecorder.
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
	for counters := r.firstProtocol.Load(); counters != nil; counters = counters.next.Load() {
		c.collectProtocol(e, counters, append(slices.Clip(values), cmp.Or(counters.protocol, valueNone)))
	}
}

func (c *requestCollector) collectProtocol(e *emitter, counters *protocolCounters, values []string) {
	values = slices.Clip(values)
	var cells [bucketCount]uint64
	for class := range counters.rows {
		cellsOfClass := counters.rows[class].Load()
		if cellsOfClass == nil {
			continue
		}
		sum := uint64(0)
		for i := range cellsOfClass {
			n := cellsOfClass[i].Load()
			cells[i] += n
			sum += n
		}
		e.emitCounter(c.requests, sum, append(values, classNames[class])...)
	}
	if failures := counters.failures.Load(); failures != nil {
		for reason, name := range e.reasons {
			if n := failures[reason].Load(); n > 0 {
				e.emitCounter(c.failures, n, append(values, name)...)
			}
		}
	}
	e.emitHistogram(c.duration, &cells, time.Duration(counters.nanoseconds.Load()), values...)
	e.emitCounter(c.bytesIn, counters.bytesIn.Load(), values...)
	e.emitCounter(c.bytesOut, counters.bytesOut.Load(), values...)
}

// emitter sends the series that are not excluded to Prometheus. Each scrape creates an emitter.
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

func (e *emitter) emitCounter(d *desc, n uint64, values ...string) {
	e.emitValue(d, float64(n), values...)
}

func (e *emitter) emitValue(d *desc, v float64, values ...string) {
	if e.exclusion.excludes(d.metric.Name, d.metric.Labels) {
		return
	}
	kind := prometheus.GaugeValue
	if d.metric.Kind == KindCounter {
		kind = prometheus.CounterValue
	}
	e.ch <- prometheus.MustNewConstMetric(d.prometheus, kind, v, values...)
}

func (e *emitter) emitHistogram(d *desc, cells *[bucketCount]uint64, sum time.Duration, values ...string) {
	if e.exclusion.excludes(d.metric.Name, d.metric.Labels) {
		return
	}
	buckets := make(map[float64]uint64, len(durationBounds))
	n := uint64(0)
	for i, bound := range durationBounds {
		n += cells[i]
		buckets[bound.Seconds()] = n
	}
	n += cells[len(durationBounds)]
	e.ch <- prometheus.MustNewConstHistogram(d.prometheus, n, sum.Seconds(), buckets, values...)
}
