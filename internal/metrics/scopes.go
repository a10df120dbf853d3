package metrics

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Counter only increases. The zero value is 0. Safe for concurrent use.
type Counter struct{ n atomic.Uint64 }

// Add adds n.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Value returns the count.
func (c *Counter) Value() uint64 { return c.n.Load() }

// Gauge increases and decreases. The zero value is 0. Safe for concurrent use.
type Gauge struct{ n atomic.Int64 }

// Add adds n, which may be negative.
func (g *Gauge) Add(n int64) { g.n.Add(n) }

// Value returns the current value.
func (g *Gauge) Value() int64 { return g.n.Load() }

// GaugeFunc is a gauge whose value a function returns.
type GaugeFunc struct{ read atomic.Pointer[func() int64] }

// SetFunc sets the function that Value calls; any goroutine may call it.
func (g *GaugeFunc) SetFunc(read func() int64) { g.read.Store(&read) }

// Value returns the result of the function, or 0 before SetFunc.
func (g *GaugeFunc) Value() int64 {
	if read := g.read.Load(); read != nil {
		return (*read)()
	}
	return 0
}

// maxCloseReasons is the maximum number of close reasons.
const maxCloseReasons = 24

// Listener counts the requests and connections of a listener.
type Listener struct {
	RequestRecorder
	Active Gauge // requests in flight

	accepted, refused, errors Counter
	closed                    [maxCloseReasons]Counter // by close reason
}

// Accepted counts a connection that the listener serves.
func (l *Listener) Accepted() { l.accepted.Add(1) }

// Closed counts an accepted connection that has closed. reason is an index into
// Options.CloseReasons.
func (l *Listener) Closed(reason uint8) { l.closed[reason].Add(1) }

// Refused counts a connection that the listener closed instead of serving it.
func (l *Listener) Refused() { l.refused.Add(1) }

// AcceptError counts a failure to accept.
func (l *Listener) AcceptError() { l.errors.Add(1) }

// Cluster counts the requests and the upstream connections of a cluster.
type Cluster struct {
	RequestRecorder
	Active GaugeFunc // requests in flight

	Opened, Closed     Counter // connections
	MaxRequestsReached Counter // connections that reached max_request_per_conn
	ConnectFailures    Counter
	Retries            Counter                                 // attempts beyond the first of a request
	Resent             Counter                                 // requests sent again because the pooled connection was stale
	Overflow           [len(priorityNames)][limitCount]Counter // by priority index and Limit
	LimitUsage         LimitUsage                              // usage of the same limits
	HostDown           Counter
	HostUp             Counter
	CheckFailures      Counter // failed active health checks
	Ejections          Counter // ejections of hosts by outlier detection
	EjectionOverflow   Counter // hosts not ejected because too many are ejected already
	Hedges             Counter // hedged attempts
	HedgesWon          Counter // hedged attempts whose response was sent to the client
	Canceled           Counter // attempts canceled because the client disconnected or another attempt won
}

// Listener returns the counters of the named listener. The caller must call release when the
// listener leaves the configuration; later use of l is harmless. The same applies to the other
// scopes.
func (r *Registry) Listener(name string) (l *Listener, release func()) {
	return r.listeners.acquire(label(name))
}

// Cluster returns the counters of the named cluster.
func (r *Registry) Cluster(name string) (c *Cluster, release func()) {
	return r.clusters.acquire(label(name))
}

// Host returns the counters of a cluster's host.
func (r *Registry) Host(cluster, address string) (h *RequestRecorder, release func()) {
	return r.hosts.acquire(hostKey{label(cluster), label(address)})
}

type hostKey struct{ cluster, host string }

type routeKey struct{ table, virtualHost, route string }

// label returns text as a valid label value: Prometheus rejects values that are not UTF-8. It
// copies text, because a substring would retain the configuration file in memory.
func label(text string) string {
	return strings.Clone(strings.ToValidUTF8(text, "\uFFFD"))
}

// scopeTable contains the reference-counted scopes of one type. The keys are their names.
type scopeTable[K comparable, P any] struct {
	limit       int // immutable
	overflowKey K   // immutable; the name that all scopes beyond the limit share

	mu     sync.Mutex
	scopes map[K]*scopeEntry[P] // guarded by mu
}

type scopeEntry[P any] struct {
	refs  int // guarded by scopeTable.mu
	scope P
}

func newScopeTable[K comparable, P any](limit int, overflowKey K) scopeTable[K, P] {
	return scopeTable[K, P]{limit: limit, overflowKey: overflowKey, scopes: map[K]*scopeEntry[P]{}}
}

// acquire returns the scope of key, creating it if needed, and acquires a reference. release drops
// the reference; repeated calls do nothing.
func (s *scopeTable[K, P]) acquire(key K) (scope *P, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.scopes[key]
	if entry == nil && len(s.scopes) >= s.limit {
		key = s.overflowKey
		entry = s.scopes[key]
	}
	if entry == nil {
		entry = new(scopeEntry[P])
		s.scopes[key] = entry
	}
	entry.refs++
	return &entry.scope, sync.OnceFunc(func() { s.release(key) })
}

func (s *scopeTable[K, P]) release(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.scopes[key]
	entry.refs--
	if entry.refs == 0 {
		delete(s.scopes, key)
	}
}

func (s *scopeTable[K, P]) has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scopes[key] != nil
}

func (s *scopeTable[K, P]) anyKey(matches func(K) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.scopes {
		if matches(key) {
			return true
		}
	}
	return false
}

// forEach calls f with every scope. It does not hold the lock during the calls, because a slow
// scraper must not block a reload.
func (s *scopeTable[K, P]) forEach(f func(key K, scope *P)) {
	type pair struct {
		key   K
		scope *P
	}
	s.mu.Lock()
	pairs := make([]pair, 0, len(s.scopes))
	for key, entry := range s.scopes {
		pairs = append(pairs, pair{key, &entry.scope})
	}
	s.mu.Unlock()
	for _, p := range pairs {
		f(p.key, p.scope)
	}
}

// scopeCollector exports all scopes of a registry. It implements prometheus.Collector.
type scopeCollector struct {
	r                                  *Registry
	listeners, routes, clusters, hosts requestCollector
	listener, cluster                  []*desc // of listenerMetrics().additional and clusterMetrics().additional, in order
}

func newScopeCollector(r *Registry) *scopeCollector {
	listener, cluster := listenerMetrics(), clusterMetrics()
	return &scopeCollector{
		r:         r,
		listeners: newRequestCollector(listener.requests),
		routes:    newRequestCollector(routeMetrics().requests),
		clusters:  newRequestCollector(cluster.requests),
		hosts:     newRequestCollector(hostMetrics().requests),
		listener:  newDescs(listener.additional),
		cluster:   newDescs(cluster.additional),
	}
}

func newDescs(metrics []Metric) []*desc {
	descs := make([]*desc, 0, len(metrics))
	for _, m := range metrics {
		descs = append(descs, newDesc(m))
	}
	return descs
}

// Describe sends the descriptions of all series that Collect can send.
func (c *scopeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, descs := range [][]*desc{
		c.listeners.descs(), c.listener, c.routes.descs(), c.clusters.descs(), c.cluster, c.hosts.descs(),
	} {
		for _, d := range descs {
			ch <- d.prometheus
		}
	}
}

// Collect sends the series of all scopes.
func (c *scopeCollector) Collect(ch chan<- prometheus.Metric) {
	e := c.r.emitter(ch)
	c.r.listeners.forEach(func(name string, l *Listener) {
		c.listeners.collect(e, &l.RequestRecorder, name)
		c.collectListener(e, name, l)
	})
	c.r.routes.forEach(func(k routeKey, r *RequestRecorder) {
		c.routes.collect(e, r, k.table, k.virtualHost, k.route)
	})
	c.r.clusters.forEach(func(name string, cluster *Cluster) {
		c.clusters.collect(e, &cluster.RequestRecorder, name)
		c.collectCluster(e, name, cluster)
	})
	c.r.hosts.forEach(func(k hostKey, h *RequestRecorder) {
		c.hosts.collect(e, h, k.cluster, k.host)
	})
}

func (c *scopeCollector) collectListener(e *emitter, name string, l *Listener) {
	closed := uint64(0)
	for reason := range l.closed {
		n := l.closed[reason].Value()
		closed += n
		if reason < len(e.closeReasons) {
			e.emitCounter(c.listener[listenerClosed], n, name, e.closeReasons[reason])
		}
	}
	accepted := l.accepted.Value() // read after closed, so that closed never exceeds accepted
	e.emitValue(c.listener[listenerActive], float64(l.Active.Value()), name)
	e.emitCounter(c.listener[listenerAccepted], accepted, name)
	e.emitCounter(c.listener[listenerRefused], l.refused.Value(), name)
	e.emitValue(c.listener[listenerConnections], float64(accepted-closed), name)
	e.emitCounter(c.listener[listenerErrors], l.errors.Value(), name)
}

func (c *scopeCollector) collectCluster(e *emitter, name string, cluster *Cluster) {
	closed, opened := cluster.Closed.Value(), cluster.Opened.Value()
	e.emitValue(c.cluster[clusterActive], float64(cluster.Active.Value()), name)
	e.emitCounter(c.cluster[clusterOpened], opened, name)
	e.emitCounter(c.cluster[clusterClosed], closed, name)
	e.emitCounter(c.cluster[clusterMaxRequestsReached], cluster.MaxRequestsReached.Value(), name)
	e.emitValue(c.cluster[clusterConnections], float64(max(opened, closed)-closed), name)
	e.emitCounter(c.cluster[clusterConnectFailures], cluster.ConnectFailures.Value(), name)
	e.emitCounter(c.cluster[clusterRetries], cluster.Retries.Value(), name)
	e.emitCounter(c.cluster[clusterResent], cluster.Resent.Value(), name)
	c.collectBreakers(e, name, cluster)
	e.emitCounter(c.cluster[clusterHostDown], cluster.HostDown.Value(), name)
	e.emitCounter(c.cluster[clusterHostUp], cluster.HostUp.Value(), name)
	e.emitCounter(c.cluster[clusterCheckFailures], cluster.CheckFailures.Value(), name)
	e.emitCounter(c.cluster[clusterEjections], cluster.Ejections.Value(), name)
	e.emitCounter(c.cluster[clusterEjectionOverflow], cluster.EjectionOverflow.Value(), name)
	e.emitCounter(c.cluster[clusterHedges], cluster.Hedges.Value(), name)
	e.emitCounter(c.cluster[clusterHedgesWon], cluster.HedgesWon.Value(), name)
	e.emitCounter(c.cluster[clusterCanceled], cluster.Canceled.Value(), name)
}
