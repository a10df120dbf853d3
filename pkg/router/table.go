package router

import (
	"math"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Table is a compiled route table.
type Table struct {
	// Random returns numbers that are uniform in all their bits. It supplies the samples for routes
	// that match a fraction of the requests; if it is nil, these never match. It must be safe for
	// concurrent use and set before the first Find.
	Random func() uint64

	config                            *config.RouteTable
	domains                           *domains
	derivesAuthority                  bool          // the domains are not compared with the unchanged authority
	requestMutation, responseMutation *mutation     // of the table; nil: no change
	virtualHosts                      []virtualHost // in the order of configuration
	routes                            []*Route      // in the order of configuration, followed by the TLS redirects
}

// virtualHost is a compiled virtual host. Tables compiled from successive configurations share the
// unchanged values that it points to.
type virtualHost struct {
	config                            *config.VirtualHost
	firstRoute                        int       // index of its first route in the table's routes
	requestMutation, responseMutation *mutation // mutations of the virtual host and the table; nil: no change
	index                             routeIndex
	tree                              *matchTree // selects the routes instead of index; nil: index does
	requireTLS                        config.RequireTLS
	tlsRedirect                       *Route // nil: requireTLS is TLSOptional
	tlsRedirectIndex                  int    // index of tlsRedirect in the table's routes
}

// routeIndex finds the routes of one virtual host and identifies them by their indexes in that
// virtual host. Each reachable route is in one chain: a linked list in ascending order.
type routeIndex struct {
	tree           *tree
	pathRoot       int32         // root of the virtual host's tree of exact and prefix paths
	headers        []headerIndex // routes for any path that require the value of a header
	otherPathChain int32         // chain of the routes whose path the tree cannot evaluate
	links          []link        // by index of the route
}

// link is the element of a chain for one route.
type link struct {
	next    int32         // the next route of the chain
	matcher *routeMatcher // nil: the route has no conditions, or only a path
}

// endOfChain ends a chain; it is greater than every index.
const endOfChain = math.MaxInt32

// Name returns the table's name.
func (t *Table) Name() string { return t.config.Name }

// Config returns the configuration of the table. The caller must not change it.
func (t *Table) Config() *config.RouteTable { return t.config }

// Routes returns all routes in the order of configuration, followed by the redirects of the virtual
// hosts that require TLS. The caller must not change the slice.
func (t *Table) Routes() []*Route { return t.routes }

// Match returns the route that Find finds for x, or nil if there is none.
func (t *Table) Match(x *protocol.Exchange) *Route {
	if i := t.Find(x); i >= 0 {
		return t.routes[i]
	}
	return nil
}

// Find returns the index in Routes of the route for x: the first route of x's virtual host whose
// conditions all match. If the virtual host requires TLS and x is plaintext, Find returns the index
// of the redirect to https. It returns a negative number if there is no route. It allocates only
// for conditions on variables that are not text, and on arguments of RPC calls.
func (t *Table) Find(x *protocol.Exchange) int {
	var n int32
	if t.derivesAuthority {
		n, _ = t.findVirtualHost(x)
	} else {
		n = t.domains.find(x.Request.Authority, x.Request.Scheme)
	}
	if n == noVirtualHost {
		return noVirtualHost
	}
	vh := &t.virtualHosts[n]
	if vh.requireTLS != config.TLSOptional && redirectsToTLS(vh.requireTLS, x) {
		return vh.tlsRedirectIndex
	}
	path, _, _ := strings.Cut(x.Request.Path, "?")
	if t.config.IgnorePathParameters {
		path = withoutParameters(path)
	}
	s := search{vh.index.links, x, path, t.Random}
	if vh.tree != nil {
		return t.routeIndex(vh, s.findByTree(vh.tree, t.routesOf(vh)))
	}
	if path == "" && t.config.ConnectRoutesOnly {
		return t.routeIndex(vh, s.firstInChain(vh.index.otherPathChain, endOfChain))
	}

	best := s.findInTree(vh.index.tree, vh.index.pathRoot)
	for i := range vh.index.headers {
		f := &vh.index.headers[i]
		if f.firstRoute < best {
			best = s.findByHeader(f, best)
		}
	}
	best = s.firstInChain(vh.index.otherPathChain, best)
	if best == endOfChain && path == "*" {
		// OPTIONS for the server as a whole (RFC 9112 3.2.4) takes the route of "/".
		s.path = "/"
		best = s.firstInChain(vh.index.otherPathChain, s.findInTree(vh.index.tree, vh.index.pathRoot))
	}
	return t.routeIndex(vh, best)
}

// withoutParameters returns path without the text between a semicolon and the end of its segment.
func withoutParameters(path string) string {
	if strings.IndexByte(path, ';') < 0 {
		return path
	}
	var b strings.Builder
	for rest := path; rest != ""; {
		before, parameters, found := strings.Cut(rest, ";")
		b.WriteString(before)
		end := strings.IndexByte(parameters, '/')
		if !found || end < 0 {
			break
		}
		rest = parameters[end:]
	}
	return b.String()
}

// routeIndex returns the index in Routes of a route of vh, or a negative number for endOfChain.
func (t *Table) routeIndex(vh *virtualHost, index int32) int {
	if index == endOfChain {
		return noVirtualHost
	}
	return vh.firstRoute + int(index)
}

// search holds the inputs of one search in a virtual host.
type search struct {
	links  []link
	x      *protocol.Exchange
	path   string // without its query
	random func() uint64
}

// findInTree returns the first matching route among the exact and prefix paths.
func (s *search) findInTree(t *tree, root int32) int32 {
	best := int32(endOfChain)
	n := &t.nodes[root]
	for rest := s.path; ; {
		best = s.firstInChain(n.prefix, best)
		if rest == "" {
			return s.firstInChain(n.exact, best)
		}
		n = t.child(n, rest)
		if n == nil {
			return best
		}
		rest = rest[len(n.label):]
	}
}

// firstInChain returns the smaller of best and the index of the first matching route of chain.
func (s *search) firstInChain(chain, best int32) int32 {
	for i := chain; i < best; {
		l := &s.links[i]
		if l.matcher == nil || l.matcher.matches(s.x, s.path, s.random) {
			return i
		}
		i = l.next
	}
	return best
}
