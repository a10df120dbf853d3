package metrics

import (
	"sync"
	"sync/atomic"
)

// Routes holds the counters of the routes of one route table.
type Routes struct {
	table  string
	scopes *scopeTable[routeKey, RequestRecorder]

	mu          sync.Mutex
	hasCounters bool              // guarded by mu; the table has counters that routes may continue
	released    bool              // guarded by mu
	releases    map[*Route]func() // guarded by mu; release functions of the active routes
}

// Route counts the requests of one route. It is exported only after its first use, so that large
// tables cost little.
type Route struct {
	routes   *Routes
	requests atomic.Pointer[RequestRecorder] // nil: not used yet
	closed   bool                            // guarded by routes.mu
}

// Routes returns a Routes for the named table. Route.Open associates a Route with it.
func (r *Registry) Routes(table string) *Routes {
	t := &Routes{table: label(table), scopes: &r.routes, releases: map[*Route]func(){}}
	t.hasCounters = r.routes.anyKey(func(k routeKey) bool { return k.table == t.table })
	return t
}

// Open initializes r, which must be the zero value, as the counters of a route of t. If the table
// has counters under the same names, r continues them. A caller that replaces a Route must close
// the old one after this call.
func (r *Route) Open(t *Routes, virtualHost, route string) {
	r.routes = t
	t.mu.Lock()
	hasCounters := t.hasCounters
	t.mu.Unlock()
	if hasCounters && t.scopes.has(t.key(virtualHost, route)) {
		r.activate(virtualHost, route)
	}
}

// Close releases the counters when the route leaves the configuration. Concurrent and later calls
// of Add are harmless.
func (r *Route) Close() {
	t := r.routes
	t.mu.Lock()
	r.closed = true
	release := t.releases[r]
	delete(t.releases, r)
	t.mu.Unlock()
	if release != nil {
		release()
	}
}

// Add counts requests of the route. The names must be those of Open.
func (r *Route) Add(virtualHost, route string, b Batch) {
	requests := r.requests.Load()
	if requests == nil {
		if requests = r.activate(virtualHost, route); requests == nil {
			return
		}
	}
	requests.Add(b)
}

// Release closes all routes when the table leaves the configuration.
func (t *Routes) Release() {
	t.mu.Lock()
	t.released = true
	releases := t.releases
	t.releases = nil
	t.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

func (t *Routes) key(virtualHost, route string) routeKey {
	return routeKey{t.table, label(virtualHost), label(route)}
}

// activate acquires the scope of the route. It returns nil if Close or Release was called before
// the first use.
func (r *Route) activate(virtualHost, route string) *RequestRecorder {
	t := r.routes
	t.mu.Lock()
	defer t.mu.Unlock()
	if requests := r.requests.Load(); requests != nil || r.closed || t.released {
		return requests
	}
	requests, release := t.scopes.acquire(t.key(virtualHost, route))
	r.requests.Store(requests)
	t.releases[r] = release
	t.hasCounters = true
	return requests
}
