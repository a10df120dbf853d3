package metrics

import (
	"sync"
	"sync/atomic"
)

// Routes has the accounts of the routes of one route table.
type Routes struct {
	table string
	shelf *shelf[routeKey, Requests]

	mu       sync.Mutex
	known    bool              // guarded by mu; the table has numbers that routes may go on with
	released bool              // guarded by mu
	releases map[*Route]func() // guarded by mu; of accounts that are open
}

// Route is the account of one route. It is not on the list of those that are exported
// until it is used, so that large tables cost little.
type Route struct {
	of       *Routes
	requests atomic.Pointer[Requests] // nil: it was not used yet
	closed   bool                     // guarded by of.mu
}

// Routes returns the accounts of a table, of which there are none yet.
func (r *Registry) Routes(table string) *Routes {
	t := &Routes{table: label(table), shelf: &r.routes, releases: map[*Route]func(){}}
	t.known = r.routes.any(func(k routeKey) bool { return k.table == t.table })
	return t
}

// Open makes r, which is the zero value, the account of a route of t. It goes on with the
// numbers that the table has under the same names; where an account is closed for it, that
// is to be after.
func (r *Route) Open(t *Routes, virtualHost, route string) {
	r.of = t
	t.mu.Lock()
	known := t.known
	t.mu.Unlock()
	if known && t.shelf.has(t.key(virtualHost, route)) {
		r.use(virtualHost, route)
	}
}

// Close gives the account back when the route has left the configuration. Calls of Add
// that are under way, or late, do no harm.
func (r *Route) Close() {
	t := r.of
	t.mu.Lock()
	r.closed = true
	release := t.releases[r]
	delete(t.releases, r)
	t.mu.Unlock()
	if release != nil {
		release()
	}
}

// Add accounts for requests of the route, which has the names that it was opened with.
func (r *Route) Add(virtualHost, route string, s Sum) {
	requests := r.requests.Load()
	if requests == nil {
		if requests = r.use(virtualHost, route); requests == nil {
			return
		}
	}
	requests.Add(s)
}

// Release closes all accounts, once, when the table has left the configuration.
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

// use puts the account on the list; nil after Close and Release.
func (r *Route) use(virtualHost, route string) *Requests {
	t := r.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if requests := r.requests.Load(); requests != nil || r.closed || t.released {
		return requests
	}
	requests, release := t.shelf.take(t.key(virtualHost, route))
	r.requests.Store(requests)
	t.releases[r] = release
	t.known = true
	return requests
}
