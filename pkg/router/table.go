package router

import (
	"math"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Table is a compiled route table.
type Table struct {
	// Random is uniform in all its bits, and safe for concurrent use: it decides which
	// requests routes of a share of them get. nil: none. It is set before Find.
	Random func() uint64

	config            *config.RouteTable
	domains           *domains
	request, response *mutation     // of the table; nil: nothing
	hosts             []virtualHost // by number of the virtual host
	routes            []*Route      // in the order of configuration
}

// virtualHost is a virtual host. What it points to is shared by all tables that have been
// compiled of what the virtual host was, and is.
type virtualHost struct {
	config            *config.VirtualHost
	first             int       // place of its first route in the table's
	request, response *mutation // its own, followed by the table's; nil: nothing
	index             hostIndex
}

// hostIndex finds the routes of one virtual host, which it knows by their places in it.
// Each of its routes that can be reached is in one chain: a list in ascending order.
type hostIndex struct {
	tree   *tree
	paths  int32        // root of its tree of exact and prefix paths
	fields []fieldIndex // routes for any path that ask for the value of a field
	regex  int32        // chain of the routes whose path the tree does not know
	links  []link       // by place
}

// link is a route as a part of its chain.
type link struct {
	next int32         // the next route of the chain
	when *routeMatcher // nil: the path, or nothing, is all that it asks for
}

// endOfChain closes a chain; it is above every index.
const endOfChain = math.MaxInt32

// Name returns the table's name.
func (t *Table) Name() string { return t.config.Name }

// Config returns what the table was compiled from. It must not be changed.
func (t *Table) Config() *config.RouteTable { return t.config }

// Routes returns every route in the order of configuration. It must not be changed.
func (t *Table) Routes() []*Route { return t.routes }

// Match returns the route for x, nil if there is none: that of Find.
func (t *Table) Match(x *protocol.Exchange) *Route {
	if at := t.Find(x); at >= 0 {
		return t.routes[at]
	}
	return nil
}

// Find returns the place in Routes of the route for x: of the virtual host that
// x.Request.Authority belongs to the first whose conditions all hold, below 0 if there
// is none. It allocates nothing, but for conditions on variables that are not text.
func (t *Table) Find(x *protocol.Exchange) int {
	authority := x.Request.Authority
	if t.config.IgnorePort {
		authority, _ = splitPort(authority)
	}
	n := t.domains.find(authority, x.Request.Scheme)
	if n == noVirtualHost {
		return noVirtualHost
	}
	host := &t.hosts[n]
	path, _, _ := strings.Cut(x.Request.Path, "?")
	s := search{host.index.links, x, path, t.Random}

	best := s.tree(host.index.tree, host.index.paths)
	for i := range host.index.fields {
		f := &host.index.fields[i]
		if f.least < best {
			best = s.field(f, best)
		}
	}
	best = s.first(host.index.regex, best)
	if best == endOfChain && path == "*" {
		// OPTIONS for a server as a whole (RFC 9112 3.2.4) goes where its root goes.
		s.path = "/"
		best = s.first(host.index.regex, s.tree(host.index.tree, host.index.paths))
	}
	if best == endOfChain {
		return noVirtualHost
	}
	return host.first + int(best)
}

// search is what is looked for in a virtual host.
type search struct {
	links  []link
	x      *protocol.Exchange
	path   string // without its query
	random func() uint64
}

// tree returns the first route among those that fit the path.
func (s *search) tree(t *tree, root int32) int32 {
	best := int32(endOfChain)
	n := &t.nodes[root]
	for rest := s.path; ; {
		best = s.first(n.prefix, best)
		if rest == "" {
			return s.first(n.exact, best)
		}
		n = t.child(n, rest)
		if n == nil {
			return best
		}
		rest = rest[len(n.label):]
	}
}

// first returns the first route of chain that is met, or best if that comes before it.
func (s *search) first(chain, best int32) int32 {
	for i := chain; i < best; {
		l := &s.links[i]
		if l.when == nil || l.when.holds(s.x, s.path, s.random) {
			return i
		}
		i = l.next
	}
	return best
}
