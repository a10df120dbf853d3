package metrics

import (
	"hash/maphash"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of the RPC metrics, whose label values clients choose.
const (
	// MaxMethods is the number of (service, method) pairs of a process with series of their own:
	// those that are called first. All others share the pair ("other", "other"). With every code
	// and every reason, a pair takes 4 KB.
	MaxMethods = 1000
	// MaxCodes is the number of codes of a pair with series of their own: those that occur first.
	// All others share the code "other". gRPC has 17 codes, and "none" is one more.
	MaxCodes = 18
	// MaxMethodName is the maximum length in bytes of a service or method name in a label value.
	MaxMethodName = 200
)

// slotCount is the size of the hash table of methods. It is a power of two, and at most half of the
// table is in use, so probe sequences are short.
const slotCount = 2048

// RPC counts requests of RPC protocols by service and method. Registry.RPC returns the only one.
// Safe for concurrent use. Calls take no lock and do not allocate, except the first call of a pair,
// of a pair's code and of a pair's failures, and calls whose names are not UTF-8.
type RPC struct {
	seed     maphash.Seed // immutable; random, so that clients cannot choose names that collide
	overflow *Method      // immutable; also in slots, because a client may call a method "other"

	// slots is a hash table with linear probing. A method in it never moves.
	slots [slotCount]atomic.Pointer[Method]
	count atomic.Int32 // number of methods in slots except overflow; written under mu

	// recent caches recently called methods by recentIndex, which is cheaper than a hash.
	recent [64]atomic.Pointer[Method]

	mu sync.Mutex // held while a method is added
}

// Method counts the calls of one method of one service. It implements Recorder.
type Method struct {
	service, name string // immutable; label values

	codes      [MaxCodes]atomic.Pointer[codeRow] // used entries first
	otherCodes atomic.Pointer[row]               // calls with further codes; allocated on first use
	failures   atomic.Pointer[[maxReasons]atomic.Uint64]

	nanoseconds atomic.Uint64 // sum of the durations
}

// codeRow counts the calls with one code, by duration.
type codeRow struct {
	code  int // immutable; -1: none
	cells row
}

// RPC returns the counters of all RPC requests of the process.
func (r *Registry) RPC() *RPC { return r.rpc }

func newRPC() *RPC {
	r := &RPC{seed: maphash.MakeSeed(), overflow: &Method{service: valueOtherRPC, name: valueOtherRPC}}
	_, index := r.find(valueOtherRPC, valueOtherRPC)
	r.slots[index].Store(r.overflow)
	return r
}

// Method returns the counters of a method, or those shared by all methods beyond MaxMethods. Names
// are as the client sent them; "" counts as "none". They may borrow a buffer: Method copies what it
// retains.
func (r *RPC) Method(service, name string) *Method {
	return r.lookup(truncateName(service), truncateName(name))
}

// Add counts the calls of b.
func (m *Method) Add(b Batch) {
	b.addTo(m.rowFor(max(b.Code, -1)))
	m.nanoseconds.Add(b.nanoseconds)
	if b.Reason != 0 {
		failures := m.failures.Load()
		if failures == nil {
			failures = loadOrNew(&m.failures)
		}
		failures[b.Reason].Add(uint64(b.count))
	}
}

// Name returns the service and the method, joined by a dot.
func (m *Method) Name() string { return m.service + "." + m.name }

// truncateName returns the prefix of a name that becomes a label value, or "none" for "".
func truncateName(name string) string {
	if name == "" {
		return valueNone
	}
	if len(name) <= MaxMethodName {
		return name
	}
	n := MaxMethodName
	for n > MaxMethodName-utf8.UTFMax && !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n]
}

// lookup returns the counters of a method, or overflow if it has no counters of its own.
func (r *RPC) lookup(service, name string) *Method {
	recent := &r.recent[recentIndex(service, name)]
	if m := recent.Load(); m != nil && m.name == name && m.service == service {
		return m
	}
	// Names in slots are valid UTF-8: lookup passes only valid names to add.
	if m, _ := r.find(service, name); m != nil {
		recent.Store(m)
		return m
	}
	if !utf8.ValidString(service) || !utf8.ValidString(name) {
		service, name = truncateName(strings.ToValidUTF8(service, "\uFFFD")), truncateName(strings.ToValidUTF8(name, "\uFFFD"))
		if m, _ := r.find(service, name); m != nil {
			return m
		}
	}
	if r.count.Load() >= MaxMethods {
		return r.overflow
	}
	return r.add(service, name)
}

// recentIndex returns the index of a method in recent. Methods that are called in turns and have
// the same index cost a hash for each call.
func recentIndex(service, name string) int {
	n := 8*len(service) + len(name)
	if name != "" {
		n += int(name[len(name)-1])
	}
	return n % len(RPC{}.recent)
}

// find returns the method of the given names. If there is none, it returns nil and the free slot
// for it.
func (r *RPC) find(service, name string) (m *Method, index uint64) {
	hash := bits.RotateLeft64(maphash.String(r.seed, service), 1) ^ maphash.String(r.seed, name)
	for index = hash % slotCount; ; index = (index + 1) % slotCount {
		m = r.slots[index].Load()
		if m == nil || m.name == name && m.service == service {
			return m, index
		}
	}
}

// add adds the method and returns it. If another goroutine has added the method meanwhile, add
// returns the existing one. If the table has MaxMethods methods, add returns overflow.
func (r *RPC) add(service, name string) *Method {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, index := r.find(service, name)
	if m != nil {
		return m
	}
	if r.count.Load() >= MaxMethods {
		return r.overflow
	}
	m = &Method{service: strings.Clone(service), name: strings.Clone(name)}
	r.slots[index].Store(m)
	r.count.Add(1)
	return m
}

// rowFor returns the counters of calls with the code.
func (m *Method) rowFor(code int) *row {
	for i := range m.codes {
		slot := &m.codes[i]
		c := slot.Load()
		if c == nil {
			added := &codeRow{code: code}
			if slot.CompareAndSwap(nil, added) {
				return &added.cells
			}
			c = slot.Load()
		}
		if c.code == code {
			return &c.cells
		}
	}
	if cells := m.otherCodes.Load(); cells != nil {
		return cells
	}
	return loadOrNew(&m.otherCodes)
}

// rpcMetrics returns the descriptions of the metrics that RPC exports.
func rpcMetrics() []Metric {
	keys := []string{LabelService, LabelMethod}
	return []Metric{
		rpcRequests: {nameRPCRequests, "Completed RPC requests of the method, by the status code of the response in the numbering of the protocol.",
			KindCounter, append(keys[:2:2], LabelCode)},
		rpcFailures: {nameRPCFailures, "RPC requests of the method that Weft ended with a local reply or a reset, by reason (docs/errors.md).",
			KindCounter, append(keys[:2:2], LabelReason)},
		rpcDuration: {nameRPCDuration, "Time from the first byte of an RPC request of the method to the last byte of its response.",
			KindHistogram, keys},
	}
}

// Indexes into rpcMetrics().
const (
	rpcRequests = iota
	rpcFailures
	rpcDuration
)

// rpcCollector exports the RPC metrics of a registry. It implements prometheus.Collector.
type rpcCollector struct {
	r     *Registry
	descs []*desc // in the order of rpcMetrics()
}

func newRPCCollector(r *Registry) *rpcCollector {
	return &rpcCollector{r, newDescs(rpcMetrics())}
}

// Describe sends the descriptions of all series that Collect can send.
func (c *rpcCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d.prometheus
	}
}

// Collect sends the series of all methods that were called.
func (c *rpcCollector) Collect(ch chan<- prometheus.Metric) {
	e := c.r.emitter(ch)
	slots := &c.r.rpc.slots
	for i := range slots {
		if m := slots[i].Load(); m != nil {
			c.collect(e, m)
		}
	}
}

func (c *rpcCollector) collect(e *emitter, m *Method) {
	var cells [bucketCount]uint64
	called := false
	emit := func(counts *row, code string) {
		called = true
		sum := uint64(0)
		for i := range counts {
			n := counts[i].Load()
			cells[i] += n
			sum += n
		}
		e.emitCounter(c.descs[rpcRequests], sum, m.service, m.name, code)
	}
	for i := range m.codes {
		if counts := m.codes[i].Load(); counts != nil {
			emit(&counts.cells, codeName(counts.code))
		}
	}
	if counts := m.otherCodes.Load(); counts != nil {
		emit(counts, valueOtherRPC)
	}
	if !called {
		return
	}
	if failures := m.failures.Load(); failures != nil {
		for reason, name := range e.reasons {
			if n := failures[reason].Load(); n > 0 {
				e.emitCounter(c.descs[rpcFailures], n, m.service, m.name, name)
			}
		}
	}
	e.emitHistogram(c.descs[rpcDuration], &cells, time.Duration(m.nanoseconds.Load()), m.service, m.name)
}

// codeName returns a code as a label value.
func codeName(code int) string {
	if code < 0 {
		return valueNone
	}
	return strconv.Itoa(code)
}
