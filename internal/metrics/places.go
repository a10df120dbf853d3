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

// Level is a gauge whose value a function returns.
type Level struct{ read atomic.Pointer[func() int64] }

// Follow sets the function that Value calls; any goroutine may call it.
func (l *Level) Follow(read func() int64) { l.read.Store(&read) }

// Value returns the result of the function; 0 before Follow.
func (l *Level) Value() int64 {
	if read := l.read.Load(); read != nil {
		return (*read)()
	}
	return 0
}

// maxCauses is the maximum number of close reasons.
const maxCauses = 24

// Listener counts the requests and connections of a listener.
type Listener struct {
	Requests
	Active Gauge // requests in flight

	accepted, refused, errors Counter
	closed                    [maxCauses]Counter // by close reason
}

// Accepted counts a connection that the listener serves.
func (l *Listener) Accepted() { l.accepted.Add(1) }

// Closed counts an accepted connection that has closed. cause is an index into Options.Causes.
func (l *Listener) Closed(cause uint8) { l.closed[cause].Add(1) }

// Refused counts a connection beyond the listener's limit.
func (l *Listener) Refused() { l.refused.Add(1) }

// AcceptError counts a failure to accept.
func (l *Listener) AcceptError() { l.errors.Add(1) }

// Cluster counts the requests and the upstream connections of a cluster.
type Cluster struct {
	Requests
	Active Level // requests in flight

	Opened, Closed  Counter // connections
	Spent           Counter // connections that reached max_request_per_conn
	ConnectFailures Counter
	Retries         Counter                                 // attempts beyond the first of a request
	Resent          Counter                                 // requests sent again because the pooled connection was stale
	Overflow        [len(priorityNames)][limitCount]Counter // by priority index and Limit
	Room            Room                                    // usage of the same limits
	HostDown        Counter
	HostUp          Counter
	CheckFailures   Counter // failed active health checks
	Ejections       Counter // ejections of hosts by outlier detection
	Unejected       Counter // hosts not ejected because too many are ejected already
	Hedges          Counter // hedged attempts
	HedgesWon       Counter // hedged attempts whose response the client got
	Cancelled       Counter // attempts cancelled because the client disconnected or another attempt won
}

// Listener returns the counters of the named listener. The caller must call release when the
// listener leaves the configuration; concurrent use of l is harmless then. The same applies to the
// other scopes.
func (r *Registry) Listener(name string) (l *Listener, release func()) {
	return r.listeners.take(label(name))
}

// Cluster returns the counters of the named cluster.
func (r *Registry) Cluster(name string) (c *Cluster, release func()) {
	return r.clusters.take(label(name))
}

// Host returns the counters of a cluster's host.
func (r *Registry) Host(cluster, address string) (h *Requests, release func()) {
	return r.hosts.take(hostKey{label(cluster), label(address)})
}

type hostKey struct{ cluster, host string }

type routeKey struct{ table, virtualHost, route string }

// label returns text as a valid label value: Prometheus rejects values that are not UTF-8. It
// copies text, because a substring would keep a whole configuration file in memory.
func label(text string) string {
	return strings.Clone(strings.ToValidUTF8(text, "\uFFFD"))
}

// shelf is a cache of reference-counted scopes of one kind, by name.
type shelf[K comparable, P any] struct {
	limit int // immutable
	rest  K   // immutable; the name that all scopes beyond the limit share

	mu     sync.Mutex
	places map[K]*shelved[P] // guarded by mu
}

type shelved[P any] struct {
	references int // guarded by the shelf's mu
	place      P
}

func newShelf[K comparable, P any](limit int, rest K) shelf[K, P] {
	return shelf[K, P]{limit: limit, rest: rest, places: map[K]*shelved[P]{}}
}

// take returns the scope of key, creating it if needed, and acquires a reference. release drops the
// reference; repeated calls do nothing.
func (s *shelf[K, P]) take(key K) (place *P, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.places[key]
	if entry == nil && len(s.places) >= s.limit {
		key = s.rest
		entry = s.places[key]
	}
	if entry == nil {
		entry = new(shelved[P])
		s.places[key] = entry
	}
	entry.references++
	return &entry.place, sync.OnceFunc(func() { s.give(key) })
}

func (s *shelf[K, P]) give(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.places[key]
	entry.references--
	if entry.references == 0 {
		delete(s.places, key)
	}
}

func (s *shelf[K, P]) has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[key] != nil
}

func (s *shelf[K, P]) any(want func(K) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.places {
		if want(key) {
			return true
		}
	}
	return false
}

// each calls f with every scope. It does not hold the lock during the calls, because a slow scraper
// must not block a reload.
func (s *shelf[K, P]) each(f func(key K, place *P)) {
	type pair struct {
		key   K
		place *P
	}
	s.mu.Lock()
	pairs := make([]pair, 0, len(s.places))
	for key, entry := range s.places {
		pairs = append(pairs, pair{key, &entry.place})
	}
	s.mu.Unlock()
	for _, p := range pairs {
		f(p.key, p.place)
	}
}

// placeCollector exports all scopes of a registry. It implements prometheus.Collector.
type placeCollector struct {
	r                                  *Registry
	listeners, routes, clusters, hosts requestCollector
	listener, cluster                  []*desc // in the order of listenerPlaces().more and clusterPlaces().more
}

func newPlaceCollector(r *Registry) *placeCollector {
	listener, cluster := listenerPlaces(), clusterPlaces()
	return &placeCollector{
		r:         r,
		listeners: newRequestCollector(listener.requests),
		routes:    newRequestCollector(routePlaces().requests),
		clusters:  newRequestCollector(cluster.requests),
		hosts:     newRequestCollector(hostPlaces().requests),
		listener:  newDescs(listener.more),
		cluster:   newDescs(cluster.more),
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
func (c *placeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, descs := range [][]*desc{
		c.listeners.descs(), c.listener, c.routes.descs(), c.clusters.descs(), c.cluster, c.hosts.descs(),
	} {
		for _, d := range descs {
			to <- d.prometheus
		}
	}
}

// Collect sends the series of all scopes.
func (c *placeCollector) Collect(to chan<- prometheus.Metric) {
	e := c.r.emitter(to)
	c.r.listeners.each(func(name string, l *Listener) {
		c.listeners.collect(e, &l.Requests, name)
		c.collectListener(e, name, l)
	})
	c.r.routes.each(func(k routeKey, r *Requests) {
		c.routes.collect(e, r, k.table, k.virtualHost, k.route)
	})
	c.r.clusters.each(func(name string, cluster *Cluster) {
		c.clusters.collect(e, &cluster.Requests, name)
		c.collectCluster(e, name, cluster)
	})
	c.r.hosts.each(func(k hostKey, h *Requests) {
		c.hosts.collect(e, h, k.cluster, k.host)
	})
}

func (c *placeCollector) collectListener(e *emitter, name string, l *Listener) {
	closed := uint64(0)
	for cause := range l.closed {
		n := l.closed[cause].Value()
		closed += n
		if cause < len(e.causes) {
			e.counter(c.listener[listenerClosed], n, name, e.causes[cause])
		}
	}
	accepted := l.accepted.Value() // read after closed, so that closed never exceeds accepted
	e.value(c.listener[listenerActive], float64(l.Active.Value()), name)
	e.counter(c.listener[listenerAccepted], accepted, name)
	e.counter(c.listener[listenerRefused], l.refused.Value(), name)
	e.value(c.listener[listenerConnections], float64(accepted-closed), name)
	e.counter(c.listener[listenerErrors], l.errors.Value(), name)
}

func (c *placeCollector) collectCluster(e *emitter, name string, cluster *Cluster) {
	closed, opened := cluster.Closed.Value(), cluster.Opened.Value()
	e.value(c.cluster[clusterActive], float64(cluster.Active.Value()), name)
	e.counter(c.cluster[clusterOpened], opened, name)
	e.counter(c.cluster[clusterClosed], closed, name)
	e.counter(c.cluster[clusterSpent], cluster.Spent.Value(), name)
	e.value(c.cluster[clusterConnections], float64(max(opened, closed)-closed), name)
	e.counter(c.cluster[clusterUnconnected], cluster.ConnectFailures.Value(), name)
	e.counter(c.cluster[clusterRetries], cluster.Retries.Value(), name)
	e.counter(c.cluster[clusterResent], cluster.Resent.Value(), name)
	c.collectBreakers(e, name, cluster)
	e.counter(c.cluster[clusterHostDown], cluster.HostDown.Value(), name)
	e.counter(c.cluster[clusterHostUp], cluster.HostUp.Value(), name)
	e.counter(c.cluster[clusterChecks], cluster.CheckFailures.Value(), name)
	e.counter(c.cluster[clusterEjections], cluster.Ejections.Value(), name)
	e.counter(c.cluster[clusterUnejected], cluster.Unejected.Value(), name)
	e.counter(c.cluster[clusterHedges], cluster.Hedges.Value(), name)
	e.counter(c.cluster[clusterHedgesWon], cluster.HedgesWon.Value(), name)
	e.counter(c.cluster[clusterCancelled], cluster.Cancelled.Value(), name)
}
