package router

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// Table is a compiled route table.
type Table struct {
	// Random is uniform in all its bits, and safe for concurrent use: it decides which
	// requests routes of a share of them get. nil: none. It is set before Match.
	Random func() uint64

	name       string
	domains    domains
	ignorePort bool
	hosts      []hostIndex // by number of the virtual host
	routes     []Route     // by Route.Index
	listed     []*Route
	tree       tree

	virtualHosts []*config.VirtualHost // for Explain
}

// hostIndex finds the routes of one virtual host. Each of its routes that can be
// reached is in one chain: a list in ascending order, linked by Route.next.
type hostIndex struct {
	paths  int32        // root of its tree of exact and prefix paths
	fields []fieldIndex // routes for any path that ask for the value of a field
	regex  int32        // chain of the routes whose path the tree does not know
}

// end closes a chain; it is above every index.
const end = math.MaxInt32

// Name returns the table's name.
func (t *Table) Name() string { return t.name }

// Routes returns every route, by its Index. It must not be changed.
func (t *Table) Routes() []*Route { return t.listed }

// Match returns the route for x: of the virtual host that x.Request.Authority
// belongs to the first route whose conditions all hold, nil if there is none. It
// allocates nothing, but for conditions on variables that are not text.
func (t *Table) Match(x *protocol.Exchange) *Route {
	authority := x.Request.Authority
	if t.ignorePort {
		authority, _ = splitPort(authority)
	}
	n := t.domains.find(authority, x.Request.Scheme)
	if n == nowhere {
		return nil
	}
	host := &t.hosts[n]
	path, _, _ := strings.Cut(x.Request.Path, "?")

	best := t.matchTree(host.paths, x, path)
	for i := range host.fields {
		f := &host.fields[i]
		if f.least < best {
			best = t.first(f.find(x), best, x, path)
		}
	}
	best = t.first(host.regex, best, x, path)
	if best == end {
		return nil
	}
	return &t.routes[best]
}

// matchTree returns the first route among those that fit the path.
func (t *Table) matchTree(root int32, x *protocol.Exchange, path string) int32 {
	best := int32(end)
	n := &t.tree.nodes[root]
	for rest := path; ; {
		best = t.first(n.prefix, best, x, path)
		if rest == "" {
			return t.first(n.exact, best, x, path)
		}
		n = t.tree.child(n, rest)
		if n == nil {
			return best
		}
		rest = rest[len(n.label):]
	}
}

// first returns the first route of chain that x meets, or best if that comes
// before it.
func (t *Table) first(chain, best int32, x *protocol.Exchange, path string) int32 {
	for i := chain; i < best; i = t.routes[i].next {
		if when := t.routes[i].when; when == nil || when.holds(x, path) {
			return i
		}
	}
	return best
}

// Compile checks a route table and makes it ready. The error joins (errors.Join)
// everything that is wrong with it, each with its virtual host and route; the
// caller adds the table. The table refers to c, which must not change.
func Compile(c *config.RouteTable) (*Table, error) {
	b := newBuilder(c)
	for n, vh := range c.VirtualHosts {
		b.virtualHost(int32(n), vh)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return b.table, nil
}

// builder compiles one table.
type builder struct {
	config      *config.RouteTable
	table       *Table
	expressions expressions
	request     *mutation // of the table
	response    *mutation
	paths       []pathEntry // scratch of one virtual host
	errs        []error
}

func newBuilder(c *config.RouteTable) *builder {
	total := 0
	for _, vh := range c.VirtualHosts {
		total += len(vh.Routes)
	}
	b := &builder{config: c, expressions: make(expressions)}
	b.table = &Table{
		name:       c.Name,
		domains:    newDomains(),
		ignorePort: c.IgnorePort,
		hosts:      make([]hostIndex, len(c.VirtualHosts)),
		routes:     make([]Route, 0, total),
		listed:     make([]*Route, 0, total),

		virtualHosts: c.VirtualHosts,
	}
	var err error
	b.request, b.response, err = compileMutations(&c.Request, &c.Response, nil, nil)
	b.note("", err)
	return b
}

// note keeps an error, if there is one, and where it lies.
func (b *builder) note(where string, err error) {
	switch {
	case err == nil:
	case where == "":
		b.errs = append(b.errs, err)
	default:
		b.errs = append(b.errs, fmt.Errorf("%s: %w", where, err))
	}
}

func (b *builder) virtualHost(n int32, vh *config.VirtualHost) {
	where := fmt.Sprintf("virtual host %q", vh.Name)
	if len(vh.Domains) == 0 {
		b.note(where, errors.New("it has no domains: no request can reach it"))
	}
	for _, d := range vh.Domains {
		other, err := b.table.domains.add(d, n)
		if err == nil && other != nowhere {
			err = fmt.Errorf("domain %q belongs to virtual host %q already", d, b.config.VirtualHosts[other].Name)
		}
		b.note(where, err)
	}
	request, response, err := compileMutations(&vh.Request, &vh.Response, b.request, b.response)
	b.note(where, err)

	first := len(b.table.routes)
	for _, c := range vh.Routes {
		b.table.routes = append(b.table.routes, Route{
			Index:       len(b.table.routes),
			Config:      c,
			VirtualHost: vh,
			next:        end,
			request:     request,
			response:    response,
		})
		r := &b.table.routes[len(b.table.routes)-1] // stays here: the array has its final size
		b.table.listed = append(b.table.listed, r)
		if err := b.route(r); err != nil {
			b.note(fmt.Sprintf("%s: route %q", where, c.Name), err)
		}
	}
	b.index(n, b.table.routes[first:])
}

// route compiles what r asks for and what it does.
func (b *builder) route(r *Route) error {
	var err error
	if r.when, err = b.expressions.condition(b.table, &r.Config.Match); err != nil {
		return err
	}
	c := r.Config
	switch {
	case c.Forward != nil && c.Redirect == nil && c.Direct == nil:
		return b.forward(r, c)
	case c.Redirect != nil && c.Forward == nil && c.Direct == nil:
		return b.redirect(r, c.Redirect)
	case c.Direct != nil && c.Forward == nil && c.Redirect == nil:
		return checkDirect(c.Direct)
	default:
		return errors.New("exactly one of route, redirect and direct_response is needed")
	}
}

func (b *builder) redirect(r *Route, c *config.Redirect) error {
	if err := checkRedirect(c); err != nil {
		return err
	}
	var err error
	r.path, err = b.expressions.pathRewrite(&r.Config.Match, &config.Forward{PrefixRewrite: c.PrefixRewrite, RegexRewrite: c.RegexRewrite})
	if err != nil {
		return fmt.Errorf("redirect: %w", err)
	}
	return nil
}

func (b *builder) forward(r *Route, c *config.Route) error {
	f := c.Forward
	var err error
	if r.request, r.response, err = compileMutations(&f.Request, &f.Response, r.request, r.response); err != nil {
		return err
	}
	if r.path, err = b.expressions.pathRewrite(&c.Match, f); err != nil {
		return err
	}
	if r.host, err = compileHostRewrite(f); err != nil {
		return err
	}
	if r.hash, err = compileHash(f.Hash); err != nil {
		return err
	}
	r.cluster, err = compileCluster(f, r.request, r.response)
	return err
}

// index puts the routes of virtual host n where Match finds them. It goes from
// the last to the first, so that a chain is built by putting before its head.
func (b *builder) index(n int32, routes []Route) {
	h := &b.table.hosts[n]
	h.regex = end
	b.paths = b.paths[:0]
	fields := make(map[fieldKey]int)
	routes = routes[:reachable(routes)]
	for i := range slices.Backward(routes) {
		r := &routes[i]
		m := &r.Config.Match
		switch kind := m.PathKind; {
		case kind == config.PathRegex || r.when != nil && r.when.special != nil:
			link(&h.regex, r)
		case kind == config.PathExact:
			b.paths = append(b.paths, pathEntry{m.Path, true, r})
		case kind == config.PathPrefix:
			b.paths = append(b.paths, pathEntry{m.Path, false, r})
		default:
			f := r.when.key()
			if f == nil {
				b.paths = append(b.paths, pathEntry{"", false, r})
				continue
			}
			at, ok := fields[f.key()]
			if !ok {
				at = len(h.fields)
				fields[f.key()] = at
				h.fields = append(h.fields, fieldIndex{field: f, chains: make(map[string]int32)})
			}
			h.fields[at].add(f.value, r)
		}
	}
	h.paths = b.table.tree.add(b.paths)
}

// reachable returns how many of the routes can ever match: those up to the first
// that takes everything.
func reachable(routes []Route) int {
	for i := range routes {
		r := &routes[i]
		m := &r.Config.Match
		if r.when == nil && (m.PathKind == config.PathAny || m.PathKind == config.PathPrefix && m.Path == "") {
			return i + 1
		}
	}
	return len(routes)
}

// link puts r, which comes before all that is in it, at the head of chain. What
// follows a route without conditions cannot be reached and is let go.
func link(chain *int32, r *Route) {
	if r.when != nil {
		r.next = *chain
	}
	*chain = int32(r.Index)
}
