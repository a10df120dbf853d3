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

// Bounds on what callers, who choose the names, can make of the RPC metrics.
const (
	// MaxMethods is how many pairs of service and method have series of their own
	// in a process: the first that are called. All others share one pair,
	// "other" and "other". With every code and every reason a pair takes 4 KB.
	MaxMethods = 1000
	// MaxCodes is how many codes of a pair have series of their own: the first
	// that are answered. All others share the code "other". So many are gRPC's, and
	// "none".
	MaxCodes = 18
	// MaxMethodName is how many bytes of a service's or method's name become a
	// label value.
	MaxMethodName = 200
)

// slotCount is the size of the table of methods: a power of two, of which at
// most half is used, so that a search is short.
const slotCount = 2048

// RPC accounts for requests of RPC protocols by service and method. Registry.RPC
// returns the only one. Safe for concurrent use. No call takes a lock or
// allocates but the first of a pair, of a pair's code, and of a pair's failures,
// and those whose names are not UTF-8.
type RPC struct {
	seed maphash.Seed // immutable; secret, so that nobody can choose names that collide
	rest *Method      // immutable; in slots, too: "other" may be somebody's name

	// slots are a hash table with linear probing. A method that is in it stays
	// where it is.
	slots [slotCount]atomic.Pointer[Method]
	count atomic.Int32 // of methods in slots but rest; written under mu

	// recent are methods that were called lately, each where its names lead without
	// a hash: see place.
	recent [64]atomic.Pointer[Method]

	mu sync.Mutex // held while a method is added
}

// Method accounts for the calls of one method of one service. It is an Account.
type Method struct {
	service, name string // immutable; label values

	codes    [MaxCodes]atomic.Pointer[codeRow] // the used ones first
	others   atomic.Pointer[row]               // calls with other codes; made when needed
	failures atomic.Pointer[[maxReasons]atomic.Uint64]

	nanoseconds atomic.Uint64 // sum of the durations
}

// codeRow counts the calls that ended with one code, by duration.
type codeRow struct {
	code  int // immutable; -1: none
	cells row
}

// RPC returns the account of all RPC requests of the process.
func (r *Registry) RPC() *RPC { return r.rpc }

func newRPC() *RPC {
	r := &RPC{seed: maphash.MakeSeed(), rest: &Method{service: valueOthers, name: valueOthers}}
	_, at := r.find(valueOthers, valueOthers)
	r.slots[at].Store(r.rest)
	return r
}

// Method returns the account of a method, that of all others if it has none of its
// own. Names are as the caller sent them; "" counts as "none". They may be views of
// a buffer: what is kept of them is copied.
func (r *RPC) Method(service, name string) *Method { return r.method(begin(service), begin(name)) }

// Add accounts for calls.
func (m *Method) Add(s Sum) {
	s.addTo(m.row(max(s.Code, -1)))
	m.nanoseconds.Add(s.nanoseconds)
	if s.Reason != 0 {
		failures := m.failures.Load()
		if failures == nil {
			failures = made(&m.failures)
		}
		failures[s.Reason].Add(uint64(s.count))
	}
}

// Name returns what the account is called: the service and the method.
func (m *Method) Name() string { return m.service + "." + m.name }

// begin returns as much of a name as may become a label value.
func begin(name string) string {
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

// method returns the account of a method, rest if it has none of its own.
func (r *RPC) method(service, name string) *Method {
	recent := &r.recent[place(service, name)]
	if m := recent.Load(); m != nil && m.name == name && m.service == service {
		return m
	}
	// What is found needs no check: it was checked when it was added.
	if m, _ := r.find(service, name); m != nil {
		recent.Store(m)
		return m
	}
	if !utf8.ValidString(service) || !utf8.ValidString(name) {
		service, name = begin(strings.ToValidUTF8(service, "\uFFFD")), begin(strings.ToValidUTF8(name, "\uFFFD"))
		if m, _ := r.find(service, name); m != nil {
			return m
		}
	}
	if r.count.Load() >= MaxMethods {
		return r.rest
	}
	return r.add(service, name)
}

// place is where a method is among the recent ones. Who chooses names that collide
// gains nothing: they cost a hash.
func place(service, name string) int {
	n := 8*len(service) + len(name)
	if name != "" {
		n += int(name[len(name)-1])
	}
	return n % len(RPC{}.recent)
}

// find returns the method called so; if there is none, nil and the slot where
// it belongs.
func (r *RPC) find(service, name string) (m *Method, at uint64) {
	hash := bits.RotateLeft64(maphash.String(r.seed, service), 1) ^ maphash.String(r.seed, name)
	for at = hash % slotCount; ; at = (at + 1) % slotCount {
		m = r.slots[at].Load()
		if m == nil || m.name == name && m.service == service {
			return m, at
		}
	}
}

// add makes an account for the method, unless somebody else has made it, or the
// last one, meanwhile.
func (r *RPC) add(service, name string) *Method {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, at := r.find(service, name)
	if m != nil {
		return m
	}
	if r.count.Load() >= MaxMethods {
		return r.rest
	}
	m = &Method{service: strings.Clone(service), name: strings.Clone(name)}
	r.slots[at].Store(m)
	r.count.Add(1)
	return m
}

// row returns where calls with the code are counted.
func (m *Method) row(code int) *row {
	for i := range m.codes {
		slot := &m.codes[i]
		c := slot.Load()
		if c == nil {
			fresh := &codeRow{code: code}
			if slot.CompareAndSwap(nil, fresh) {
				return &fresh.cells
			}
			c = slot.Load()
		}
		if c.code == code {
			return &c.cells
		}
	}
	if cells := m.others.Load(); cells != nil {
		return cells
	}
	return made(&m.others)
}

// rpcMetrics describe what RPC exports.
func rpcMetrics() []Metric {
	keys := []string{LabelService, LabelMethod}
	return []Metric{
		rpcRequests: {nameRPCRequests, "RPC requests of the method that have ended, by the answer's status in the protocol's own numbers.",
			KindCounter, append(keys[:2:2], LabelCode)},
		rpcFailures: {nameRPCFailures, "RPC requests of the method that Weft answered or ended by itself, by reason (docs/errors.md).",
			KindCounter, append(keys[:2:2], LabelReason)},
		rpcDuration: {nameRPCDuration, "Time from the first byte of an RPC request of the method to the last byte of its answer.",
			KindHistogram, keys},
	}
}

// Positions in rpcMetrics().
const (
	rpcRequests = iota
	rpcFailures
	rpcDuration
)

// rpcCollector exports the RPC metrics of a registry: prometheus.Collector.
type rpcCollector struct {
	r     *Registry
	descs []*desc // as rpcMetrics()
}

func newRPCCollector(r *Registry) *rpcCollector {
	return &rpcCollector{r, newDescs(rpcMetrics())}
}

// Describe sends the descriptions of all series that Collect can send.
func (c *rpcCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d.prometheus
	}
}

// Collect sends the series of all methods that were called.
func (c *rpcCollector) Collect(to chan<- prometheus.Metric) {
	e := c.r.emitter(to)
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
	emit := func(of *row, code string) {
		called = true
		sum := uint64(0)
		for i := range of {
			n := of[i].Load()
			cells[i] += n
			sum += n
		}
		e.counter(c.descs[rpcRequests], sum, m.service, m.name, code)
	}
	for i := range m.codes {
		if of := m.codes[i].Load(); of != nil {
			emit(&of.cells, codeName(of.code))
		}
	}
	if of := m.others.Load(); of != nil {
		emit(of, valueOthers)
	}
	if !called {
		return
	}
	if failures := m.failures.Load(); failures != nil {
		for reason, name := range e.reasons {
			if n := failures[reason].Load(); n > 0 {
				e.counter(c.descs[rpcFailures], n, m.service, m.name, name)
			}
		}
	}
	e.histogram(c.descs[rpcDuration], &cells, time.Duration(m.nanoseconds.Load()), m.service, m.name)
}

// codeName is a code as a label value.
func codeName(code int) string {
	if code < 0 {
		return valueNone
	}
	return strconv.Itoa(code)
}
