// Package cases has the groups of cases that the comparison runs: configurations in Envoy's own
// syntax, and the requests that clients send to them.
//
//	cases.go     types, and how groups and cases are written
//	bootstrap.go merges groups into a bootstrap file
//	match.go …   the groups by subject
package cases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// Area is a part of Envoy's features. The report has a row for each area.
type Area string

// The areas.
const (
	Routing           Area = "routing"
	Actions           Area = "actions"
	ConnectionManager Area = "connection manager"
	ClustersAndTCP    Area = "clusters and TCP"
	HTTP2AndGRPC      Area = "HTTP/2 and gRPC"
	AccessLogs        Area = "access logs"
	Filters           Area = "filters"
	TLS               Area = "TLS"
	ADS               Area = "ADS"
	Admin             Area = "admin"
)

// Areas returns the areas in the order of the report.
func Areas() []Area {
	return []Area{
		Routing, Actions, ConnectionManager, ClustersAndTCP, HTTP2AndGRPC, AccessLogs, Filters, TLS, ADS, Admin,
	}
}

// Group is one listener with its cases. The configuration is YAML in Envoy's syntax. In it, a
// string that consists of "$" and the name of an origin, such as $o1, stands for the origin's port,
// and $certs at the beginning of a string for the directory of the certificates (package certs).
//
// Every group can also use these clusters: o1 to o6, h1 and h2 (HTTP/2), t1 (TCP), many (o1, o2 and
// o3), dead (nothing listens) and none (without hosts).
type Group struct {
	Name    string // feature and number; set by All
	Feature string
	Area    Area // by default the one of the section in All
	Cases   []*Case

	// HCM has fields of the HTTP connection manager, such as "via: me". The connection manager has
	// an access log, and route_config from the fields below.
	HCM          string
	Filters      string // a list of HTTP filters before the router
	Routes       string // the list of routes of the only virtual host; by default all to o1
	VirtualHosts string // a list, instead of Routes
	HostFields   string // fields of the only virtual host
	RouteConfig  string // fields of the route configuration

	// NetworkFilters is a list of network filters instead of the HTTP connection manager.
	NetworkFilters string

	// FilterChains is a list of filter chains instead of one without conditions. Chains without
	// filters have those that the fields above describe.
	FilterChains string

	Listener string // fields of the listener
	Clusters string // a list of clusters
}

// Case is what a client sends on one connection, and how the results are compared.
type Case struct {
	ID    string // the group's name and a number; set by All
	Label string
	client.Script

	// Anonymous means that requests without X-Case belong to this case: of a client that cannot
	// send the field, of a filter, or on a TCP connection. Such cases run one at a time.
	Anonymous bool
	// Alone means that no other group may run at the same time.
	Alone bool
	// Admin means that the client connects to the admin port instead of the listener.
	Admin bool
	// Destination is the origin to which the client of a transparent listener connects.
	Destination string

	ResponseOnly bool          // whether the request reaches an origin is a matter of time
	Distribution bool          // only how many requests reach each origin matters, with a tolerance
	BodyLength   bool          // the contents of response bodies do not matter
	TimeUnit     time.Duration // the elapsed time matters, in this unit; 0: not
	Ignored      []string      // request fields that do not matter
	Sorted       bool          // the order in which requests reach different origins does not matter
	SameHost     bool          // only whether all requests reach one origin matters, and not which one
	AnyHost      bool          // which origins the requests reach does not matter
	Counts       bool          // only the numbers of responses with each status, and of requests at each origin, matter
	Wait         time.Duration // before the case
	Shape        bool          // only status and type of the response and, for JSON, the keys of its body matter
	Statistic    Statistic     // the response is a statistic
}

// Statistic says what of a statistic of the admin port matters.
type Statistic int

// What matters.
const (
	NoStatistic    Statistic = iota // the response is no statistic
	StatisticValue                  // name and value
	StatisticName                   // only the name
)

// option changes a case.
type option func(*Case)

// All returns new groups with names, in a fixed order.
func All() []*Group {
	s := &set{}
	for _, section := range []struct {
		area Area
		add  func()
	}{
		{Routing, s.routing},
		{Routing, s.routeMatchers},
		{Actions, s.actions},
		{Actions, s.routeActions},
		{ConnectionManager, s.hcm},
		{ConnectionManager, s.headers},
		{ConnectionManager, s.replies},
		{ClustersAndTCP, s.clusters},
		{ClustersAndTCP, s.upstreams},
		{ClustersAndTCP, s.network},
		{ClustersAndTCP, s.moreTCP},
		{HTTP2AndGRPC, s.http2},
		{Filters, s.filters},
		{TLS, s.tls},
		{Admin, s.admin},
	} {
		s.area = section.area
		section.add()
	}
	count := map[string]int{}
	for _, g := range s.groups {
		count[g.Feature]++
		g.name(count[g.Feature])
	}
	return s.groups
}

// name sets the names of a group and its cases.
func (g *Group) name(number int) {
	g.Name = fmt.Sprintf("%s.%d", g.Feature, number)
	for i, c := range g.Cases {
		c.ID = fmt.Sprintf("%s-%d", g.Name, i)
	}
}

// set collects groups.
type set struct {
	area   Area // of the groups that add adds
	groups []*Group
}

// add adds a group. Its cases may be added later.
func (s *set) add(g Group) *Group {
	if g.Area == "" {
		g.Area = s.area
	}
	s.groups = append(s.groups, &g)
	return &g
}

// get adds a case with one HTTP/1.1 request: GET to the host a.test, unless options say otherwise.
func (g *Group) get(path string, options ...option) {
	c := &Case{Script: client.Script{Kind: client.HTTP1, Method: "GET", Path: path, Host: "a.test"}}
	g.append(c, options)
	if c.Label == "" {
		c.Label = c.Method + " " + c.Host + path + " " + describe(c.Fields)
	}
}

// h2 adds a case with one HTTP/2 request: GET / to the host a.test, unless options say otherwise.
func (g *Group) h2(options ...option) {
	c := &Case{Script: client.Script{Kind: client.HTTP2, Method: "GET", Scheme: "http", Path: "/", Host: "a.test"}}
	g.append(c, options)
	if c.Label == "" {
		c.Label = "h2 " + c.Method + " " + c.Host + c.Path + " " + describe(c.Fields)
	}
}

// raw adds a case that sends bytes. If they contain a complete head without X-Case, raw adds the
// field to it. Otherwise the case is anonymous.
func (g *Group) raw(data string, options ...option) {
	all := []option{labelf("%.60q", data)}
	data = identify(data)
	if !strings.Contains(data, client.Placeholder) {
		all = append(all, anonymous())
	}
	g.parts([]client.Part{{Data: []byte(data)}}, append(all, options...)...)
}

// parts adds a case that sends pieces of bytes.
func (g *Group) parts(parts []client.Part, options ...option) {
	g.append(&Case{Script: client.Script{Kind: client.Raw, Method: "GET", Parts: parts}}, options)
}

func (g *Group) append(c *Case, options []option) {
	for _, o := range options {
		o(c)
	}
	g.Cases = append(g.Cases, c)
}

// caseLine is a line of a head that identifies the case.
const caseLine = wire.CaseField + ": " + client.Placeholder + "\r\n"

// plainRequest is a complete request.
const plainRequest = "GET / HTTP/1.1\r\nHost: a.test\r\n" + caseLine + "\r\n"

// identify adds caseLine at the end of the first head in data.
func identify(data string) string {
	request := strings.TrimLeft(data, "\r\n")
	end := strings.Index(request, "\r\n\r\n")
	if end < 0 || !strings.Contains(request[:end], " HTTP/") || strings.Contains(data, client.Placeholder) {
		return data
	}
	end += len(data) - len(request) + len("\r\n")
	return data[:end] + caseLine + data[end:]
}

func describe(fields []wire.Field) string {
	var parts []string
	for _, f := range fields {
		parts = append(parts, f.Name+":"+f.Value)
	}
	return strings.Join(parts, " ")
}

// Options of cases.

func label(text string) option { return func(c *Case) { c.Label = text } }

func labelf(format string, args ...any) option { return label(fmt.Sprintf(format, args...)) }

func field(name, value string) option {
	return func(c *Case) { c.Fields = append(c.Fields, wire.Field{Name: name, Value: value}) }
}

func fields(list []wire.Field) option {
	return func(c *Case) { c.Fields = append(c.Fields, list...) }
}

func method(name string) option { return func(c *Case) { c.Method = name } }
func host(name string) option   { return func(c *Case) { c.Host = name } }
func path(p string) option      { return func(c *Case) { c.Path = p } }
func scheme(name string) option { return func(c *Case) { c.Scheme = name } }
func body(text string) option   { return func(c *Case) { c.Body = []byte(text) } }
func repeat(n int) option       { return func(c *Case) { c.Repeat = n } }
func responses(n int) option    { return func(c *Case) { c.Responses = n } }
func preface(b string) option   { return func(c *Case) { c.Preface = []byte(b) } }
func tunnel(text string) option { return func(c *Case) { c.Tunnel = []byte(text) } }
func anonymous() option         { return func(c *Case) { c.Anonymous = true } }
func responseOnly() option      { return func(c *Case) { c.ResponseOnly = true } }
func bodyLength() option        { return func(c *Case) { c.BodyLength = true } }
func ignored(name string) option {
	return func(c *Case) { c.Ignored = append(c.Ignored, strings.ToLower(name)) }
}

// sorted ignores the order in which requests reach different origins.
func sorted() option { return func(c *Case) { c.Sorted = true } }

// sameHost ignores which origin the requests reach, if it is only one.
func sameHost() option { return func(c *Case) { c.SameHost = true } }

// anyHost ignores which origins the requests reach.
func anyHost() option { return func(c *Case) { c.AnyHost = true } }

// counts compares numbers of requests and responses.
func counts() option { return func(c *Case) { c.Counts = true } }

// pauseFirst waits for the first health checks.
func pauseFirst() option { return func(c *Case) { c.Wait = time.Second } }

func timeout(d time.Duration) option   { return func(c *Case) { c.Timeout = d } }
func closeWait(d time.Duration) option { return func(c *Case) { c.CloseWait = d } }

// measured compares elapsed times in a unit. The case runs alone.
func measured(unit time.Duration) option {
	return func(c *Case) { c.TimeUnit, c.Alone = unit, true }
}

// distribution compares how many of 600 requests reach each origin. With so many, a random choice
// exceeds the tolerance of 12 % in less than one of 10,000 runs.
func distribution() option {
	return func(c *Case) { c.Distribution, c.Repeat, c.Timeout = true, 600, 30*time.Second }
}

// pairs returns fields from alternating names and values.
func pairs(namesAndValues ...string) []wire.Field {
	list := []wire.Field{}
	for pair := range slices.Chunk(namesAndValues, 2) {
		list = append(list, wire.Field{Name: pair[0], Value: pair[1]})
	}
	return list
}

// variant is a named piece of configuration.
type variant struct{ name, yaml string }
