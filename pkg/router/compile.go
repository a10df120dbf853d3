package router

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-proxy/weft/internal/align"
	"github.com/weft-proxy/weft/pkg/config"
)

// Compile checks and compiles a route table. The error joins (errors.Join) all problems, but only
// the first of each route. A problem of a virtual host or route names it; the caller adds the name
// of the table. The table refers to c, which must not change.
func Compile(c *config.RouteTable) (*Table, error) { return compile(nil, c) }

// Recompile compiles c, the successor of the table's configuration. It reuses the *Route of t for a
// route that is the same pointer in c, unless its inherited mutations or the name of its virtual
// host changed. The new table keeps Random. t does not change, and may be in use.
func (t *Table) Recompile(c *config.RouteTable) (*Table, error) { return compile(t, c) }

func compile(previous *Table, c *config.RouteTable) (*Table, error) {
	if previous != nil && previous.config.ConnectRoutesOnly != c.ConnectRoutesOnly {
		t, err := compile(nil, c) // all conditions differ
		if err == nil {
			t.Random = previous.Random
		}
		return t, err
	}
	b := newBuilder(previous, c)
	for n, vh := range c.VirtualHosts {
		b.compileVirtualHost(n, vh)
	}
	b.appendTLSRedirects()
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b.table, nil
}

// builder compiles one table.
type builder struct {
	config          *config.RouteTable
	previous        *Table  // nil: Compile
	previousIndexes []int32 // by index of a virtual host: its index in previous; -1: a new virtual host
	table           *Table
	order           mutationOrder
	rebuildsDomains bool // the domains of previous cannot be reused
	expressions     expressions
	tree            *tree       // of newly indexed virtual hosts
	paths           []pathEntry // scratch space for one virtual host
	routePool       []Route     // preallocated routes
	linkPool        []link      // preallocated links
	errs            []error
}

func newBuilder(previous *Table, c *config.RouteTable) *builder {
	total := 0
	for _, vh := range c.VirtualHosts {
		total += len(vh.Routes)
	}
	b := &builder{config: c, previous: previous, order: orderOf(c), expressions: make(expressions), tree: &tree{}}
	b.table = &Table{
		config: c,

		derivesAuthority: c.IgnorePort || c.VirtualHostHeader != "",

		virtualHosts: make([]virtualHost, len(c.VirtualHosts)),
		routes:       make([]*Route, 0, total),
	}
	b.rebuildsDomains = previous == nil || !sameDomains(previous.config, c)
	if b.rebuildsDomains {
		b.table.domains = newDomains(c.LiteralDomains)
	} else {
		b.table.domains = previous.domains
	}
	if previous == nil {
		// A first compile allocates all routes, and all links, at once.
		b.routePool, b.linkPool = make([]Route, 0, total), make([]link, total)
	} else {
		b.table.Random = previous.Random
		b.previousIndexes = align.Indexes(virtualHostNames(previous.config), virtualHostNames(c))
	}
	if previous != nil && orderOf(previous.config) == b.order && sameMutations(&previous.config.Request, &previous.config.Response, &c.Request, &c.Response) {
		b.table.requestMutation, b.table.responseMutation = previous.requestMutation, previous.responseMutation
		return b
	}
	var err error
	b.table.requestMutation, b.table.responseMutation, err = compileMutations(&c.Request, &c.Response, inherited{}, b.order)
	b.addError("", err)
	return b
}

func virtualHostNames(c *config.RouteTable) []string {
	list := make([]string, len(c.VirtualHosts))
	for i, vh := range c.VirtualHosts {
		list[i] = vh.Name
	}
	return list
}

// sameDomains reports whether each domain belongs to the virtual host of the same index in a and b.
func sameDomains(a, b *config.RouteTable) bool {
	return a.LiteralDomains == b.LiteralDomains && slices.EqualFunc(a.VirtualHosts, b.VirtualHosts, func(a, b *config.VirtualHost) bool {
		return a == b || slices.Equal(a.Domains, b.Domains)
	})
}

func sameMutations(request, response, nextRequest, nextResponse *config.HeaderMutation) bool {
	return reflect.DeepEqual(request, nextRequest) && reflect.DeepEqual(response, nextResponse)
}

// addError records err, if it is not nil, with its location.
func (b *builder) addError(location string, err error) {
	switch {
	case err == nil:
	case location == "":
		b.errs = append(b.errs, err)
	default:
		b.errs = append(b.errs, fmt.Errorf("%s: %w", location, err))
	}
}

// previousVirtualHost returns the previous version of virtual host n, nil if there was none.
func (b *builder) previousVirtualHost(n int) *virtualHost {
	if b.previous == nil || b.previousIndexes[n] < 0 {
		return nil
	}
	return &b.previous.virtualHosts[b.previousIndexes[n]]
}

func (b *builder) compileVirtualHost(n int, cfg *config.VirtualHost) {
	if b.rebuildsDomains {
		b.compileDomains(n, cfg)
	}
	vh, old := &b.table.virtualHosts[n], b.previousVirtualHost(n)
	firstRoute := len(b.table.routes)
	// newBuilder reuses equal mutations of the previous table, so comparing pointers is enough.
	sameTableMutations := old != nil && orderOf(b.previous.config) == b.order && b.table.requestMutation == b.previous.requestMutation && b.table.responseMutation == b.previous.responseMutation
	if sameTableMutations && old.config == cfg {
		*vh = *old
		vh.firstRoute = firstRoute
		b.table.routes = append(b.table.routes, b.previous.routesOf(old)...)
		return
	}
	vh.config, vh.firstRoute = cfg, firstRoute
	vh.compileTLSRedirect(old)
	if sameTableMutations && sameMutations(&old.config.Request, &old.config.Response, &cfg.Request, &cfg.Response) {
		vh.requestMutation, vh.responseMutation = old.requestMutation, old.responseMutation
	} else {
		var err error
		vh.requestMutation, vh.responseMutation, err = compileMutations(&cfg.Request, &cfg.Response, inherited{b.table.requestMutation, b.table.responseMutation}, b.order)
		b.addError(virtualHostLabel(cfg), err)
	}
	b.compileRoutes(vh, old)
	var err error
	vh.tree, err = b.expressions.compileMatchTree(cfg.Matcher, len(cfg.Routes))
	b.addError(virtualHostLabel(cfg), err)
	routes := b.table.routesOf(vh)
	if old != nil && sameMatches(b.previous.routesOf(old), routes) {
		vh.index = old.index
		return
	}
	vh.index = b.buildIndex(routes)
}

// virtualHostLabel names a virtual host in errors.
func virtualHostLabel(vh *config.VirtualHost) string { return fmt.Sprintf("virtual host %q", vh.Name) }

// routesOf returns the routes of vh, a virtual host of the table.
func (t *Table) routesOf(vh *virtualHost) []*Route {
	return t.routes[vh.firstRoute : vh.firstRoute+len(vh.config.Routes)]
}

// compileDomains adds the domains of virtual host n.
func (b *builder) compileDomains(n int, vh *config.VirtualHost) {
	if len(vh.Domains) == 0 {
		b.addError(virtualHostLabel(vh), errors.New("it has no domains: no request can reach it"))
	}
	for _, d := range vh.Domains {
		owner, err := b.table.domains.add(d, int32(n)) //nolint:gosec // far below 2^31
		if err == nil && owner != noVirtualHost {
			err = fmt.Errorf("domain %q already belongs to virtual host %q", d, b.config.VirtualHosts[owner].Name)
		}
		if err != nil {
			b.addError(virtualHostLabel(vh), err)
		}
	}
}

// compileRoutes adds the routes of vh to the table. It reuses unchanged routes of old, the previous
// version of vh, and compiles the others.
func (b *builder) compileRoutes(vh, old *virtualHost) {
	var oldIndexes []int32
	if old != nil {
		oldIndexes = align.Indexes(old.config.Routes, vh.config.Routes)
	}
	for i, c := range vh.config.Routes {
		if old != nil && oldIndexes[i] >= 0 {
			if r := b.previous.routes[old.firstRoute+int(oldIndexes[i])]; r.compiledWithin(vh) {
				b.table.routes = append(b.table.routes, r)
				continue
			}
		}
		r := b.newRoute()
		*r = Route{Config: c, VirtualHost: vh.config.Name, inherited: inherited{vh.requestMutation, vh.responseMutation}, request: vh.requestMutation, response: vh.responseMutation}
		b.table.routes = append(b.table.routes, r)
		if err := b.compileRoute(r); err != nil {
			b.addError(fmt.Sprintf("%s: route %q", virtualHostLabel(vh.config), c.Name), err)
		}
	}
}

// compiledWithin reports whether compiling the configuration of r within vh would give r.
func (r *Route) compiledWithin(vh *virtualHost) bool {
	return r.inherited == inherited{vh.requestMutation, vh.responseMutation} && r.VirtualHost == vh.config.Name
}

// newRoute returns a zero Route.
func (b *builder) newRoute() *Route {
	if len(b.routePool) == cap(b.routePool) {
		return new(Route)
	}
	b.routePool = b.routePool[:len(b.routePool)+1]
	return &b.routePool[len(b.routePool)-1]
}

// sameMatches reports whether both lists have the same conditions, so that the index of previous
// also finds the routes of current.
func sameMatches(previous, current []*Route) bool {
	return slices.EqualFunc(previous, current, func(a, b *Route) bool {
		return a == b || reflect.DeepEqual(&a.Config.Match, &b.Config.Match)
	})
}

// compileRoute compiles the conditions and the action of r.
func (b *builder) compileRoute(r *Route) error {
	var err error
	if r.matcher, err = b.expressions.compileMatch(&r.Config.Match, b.config.ConnectRoutesOnly); err != nil {
		return err
	}
	c := r.Config
	switch {
	case c.Forward != nil && c.Redirect == nil && c.DirectResponse == nil:
		return b.compileForward(r, c)
	case c.Redirect != nil && c.Forward == nil && c.DirectResponse == nil:
		if err := b.compileRedirect(r, c.Redirect); err != nil {
			return err
		}
	case c.DirectResponse != nil && c.Forward == nil && c.Redirect == nil:
		if err := checkDirectResponse(c.DirectResponse); err != nil {
			return err
		}
	default:
		return errors.New("exactly one of route, redirect and direct_response is required")
	}
	_, r.response, err = compileMutations(&config.HeaderMutation{}, &c.Response, inherited{response: r.response}, b.order)
	return err
}

func (b *builder) compileRedirect(r *Route, c *config.Redirect) error {
	if err := checkRedirect(c); err != nil {
		return err
	}
	var err error
	r.path, err = b.expressions.compilePathRewrite(&r.Config.Match, &config.Forward{PrefixRewrite: c.PrefixRewrite, RegexRewrite: c.RegexRewrite})
	if err != nil {
		return fmt.Errorf("redirect: %w", err)
	}
	return nil
}

func (b *builder) compileForward(r *Route, c *config.Route) error {
	f := c.Forward
	var err error
	if r.request, r.response, err = compileMutations(&f.Request, &f.Response, inherited{r.request, r.response}, b.order); err != nil {
		return err
	}
	if r.path, err = b.expressions.compilePathRewrite(&c.Match, f); err != nil {
		return err
	}
	if r.host, err = b.expressions.compileHostRewrite(f); err != nil {
		return err
	}
	if r.hash, err = b.expressions.compileHash(f.HashPolicies); err != nil {
		return err
	}
	if r.retry, err = b.expressions.compileRetryConditions(f.Retry); err != nil {
		return err
	}
	r.cluster, err = compileCluster(f, r.request, r.response)
	return err
}

// buildIndex builds the index of a virtual host for Find. It goes from the last route to the first
// because prepend adds to the start of a chain.
func (b *builder) buildIndex(routes []*Route) routeIndex {
	ri := routeIndex{tree: b.tree, otherPathChain: endOfChain}
	if b.previous == nil {
		ri.links, b.linkPool = b.linkPool[:len(routes):len(routes)], b.linkPool[len(routes):]
	} else {
		ri.links = make([]link, len(routes))
	}
	for i, r := range routes {
		ri.links[i] = link{next: endOfChain, matcher: r.matcher}
	}
	b.paths = b.paths[:0]
	headers := make(map[headerKey]int)
	reachable := len(routes)
	if !b.config.ConnectRoutesOnly { // then a route for all paths does not match CONNECT
		reachable = reachableCount(routes)
	}
	for i, r := range slices.Backward(routes[:reachable]) {
		index := int32(i) //nolint:gosec // far below 2^31
		m := &r.Config.Match
		switch kind := m.PathKind; {
		case kind == config.PathRegex || kind == config.PathConnect || r.matcher != nil && r.matcher.pathMatcher != nil:
			ri.prepend(&ri.otherPathChain, index)
		case kind == config.PathExact:
			b.paths = append(b.paths, pathEntry{m.Path, true, index})
		case kind == config.PathPrefix:
			b.paths = append(b.paths, pathEntry{m.Path, false, index})
		default:
			header := r.matcher.indexHeader()
			if header == nil {
				b.paths = append(b.paths, pathEntry{"", false, index})
				continue
			}
			n, ok := headers[header.key()]
			if !ok {
				n = len(ri.headers)
				headers[header.key()] = n
				ri.headers = append(ri.headers, headerIndex{matcher: header, chains: make(map[string]int32)})
			}
			ri.headers[n].add(header.matcher.Text, index, &ri)
		}
	}
	ri.pathRoot = b.tree.add(b.paths, &ri)
	return ri
}

// reachableCount returns the number of routes that can ever match: the routes up to the first one
// that matches every request.
func reachableCount(routes []*Route) int {
	for i, r := range routes {
		m := &r.Config.Match
		if r.matcher == nil && (m.PathKind == config.PathAny || m.PathKind == config.PathPrefix && m.Path == "") {
			return i + 1
		}
	}
	return len(routes)
}

// prepend adds the route with that index to the start of the chain; all routes of the chain have
// higher indexes. If the route has no conditions besides its path, prepend drops the rest of the
// chain, because no request reaches it.
func (ri *routeIndex) prepend(chain *int32, index int32) {
	if l := &ri.links[index]; l.matcher != nil {
		l.next = *chain
	}
	*chain = index
}
