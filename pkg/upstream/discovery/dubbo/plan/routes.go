package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// The fields of a call that routes go by; see pkg/protocol/xprotocol.
const (
	fieldService = "service"
	fieldGroup   = "group"
	fieldVersion = "version"
	fieldMethod  = "method"
)

// anything stands for every group, or version.
const anything = "*"

// Compare orders services as their routes are: by interface, then those first that ask
// for most.
func Compare(a, b registry.Service) int {
	return cmp.Or(
		cmp.Compare(a.Interface, b.Interface),
		cmp.Compare(breadth(a), breadth(b)),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Version, b.Version),
	)
}

// breadth says how much else than one group and one version a service is: the group
// counts for more.
func breadth(s registry.Service) (n int) {
	const versions = 3 // kinds of them
	switch {
	case s.Group == anything:
		n += 3 * versions
	case s.Group == "":
		n += 2 * versions
	case strings.Contains(s.Group, ","):
		n += versions
	}
	switch s.Version {
	case anything:
		n += 2
	case "", registry.NoVersion:
		n++
	}
	return n
}

// Table returns the route table of services, whose routes are given in the order of
// Compare.
func Table(services [][]*config.Route) *config.RouteTable {
	host := &config.VirtualHost{Name: config.DubboRouteTable, Domains: []string{"*"}}
	total := 0
	for _, routes := range services {
		total += len(routes)
	}
	host.Routes = make([]*config.Route, 0, total)
	for _, routes := range services {
		host.Routes = append(host.Routes, routes...)
	}
	return &config.RouteTable{Name: config.DubboRouteTable, VirtualHosts: []*config.VirtualHost{host}}
}

// routes returns the routes of a service: of each choice those of methods that differ, then
// that of all.
func routes(s registry.Service, with settings, used []registry.URL, choices []choice, n *notes) (all []*config.Route) {
	ways, methods := shapes(s, with, used, len(choices), n)
	add := func(name string, c calls, one choice, more []config.HeaderMatch) {
		for i, way := range ways {
			r := &config.Route{Name: name, Forward: &config.Forward{
				Cluster:  s.String(),
				Upstream: config.Dubbo,
				Timeout:  c.whole(),
				Retry:    c.retry(),
				Hash:     with.hash,
				Metadata: one.labels(way.labels),
			}}
			if i > 0 {
				r.Name = fmt.Sprintf("%s/%d", name, i+1)
			}
			r.Match.Headers = slices.Concat(way.conditions, one.conditions, more)
			r.Match.Arguments = one.arguments
			all = append(all, r)
		}
	}
	for i, one := range choices {
		name := s.String()
		if i > 0 {
			name = fmt.Sprintf("%s?%d", name, i+1)
		}
		for _, method := range methods {
			if _, can := one.of(method); can {
				add(name+"#"+method, with.forMethods[method], one, []config.HeaderMatch{{Name: fieldMethod, Value: method}})
			}
		}
		conditions, _ := one.of("")
		add(name, with.forService, one, conditions)
	}
	return all
}

// mostRoutes bounds the routes of a service that has several choices.
const mostRoutes = 4096

// shapes returns the ways in which a service is called, and the methods that have routes of
// their own: fewer where rules multiply them.
func shapes(s registry.Service, with settings, used []registry.URL, choices int, n *notes) (all []way, methods []string) {
	all, methods = ways(s, used), slices.Sorted(maps.Keys(with.forMethods))
	if choices == 1 {
		return all, methods
	}
	if choices*len(all) > mostRoutes {
		n.add(fmt.Sprintf("%d choices by rules are too many to tell apart %d groups and versions", choices, len(all)))
		all = ways(s, nil)
	}
	if room := max(0, mostRoutes/(choices*len(all))-1); len(methods) > room {
		n.add(fmt.Sprintf("%d choices by rules leave room for %d methods, not %d, that have settings of their own", choices, room, len(methods)))
		methods = methods[:room]
	}
	return all, methods
}

// labels returns those of the hosts that calls go to, in a way that has some already.
func (c *choice) labels(way map[string]string) map[string]string {
	if c.set == 0 {
		return way
	}
	all := map[string]string{label(c.set): chosen}
	maps.Copy(all, way)
	return all
}

// subsets returns the subsets of hosts that routes go to.
func subsets(routes []*config.Route) (s config.Subsets) {
	for _, r := range routes {
		if len(r.Forward.Metadata) == 0 {
			s.Fallback = config.AnyEndpoint // for the routes without labels
			continue
		}
		labels := slices.Sorted(maps.Keys(r.Forward.Metadata))
		if !slices.ContainsFunc(s.Selectors, func(other []string) bool { return slices.Equal(labels, other) }) {
			s.Selectors = append(s.Selectors, labels)
		}
	}
	if s.Selectors == nil {
		return config.Subsets{}
	}
	return s
}

// way is how a call of a service may look, all of it, and the labels of the hosts that it
// goes to; none: to any.
type way struct {
	conditions []config.HeaderMatch
	labels     map[string]string
}

// ways returns how a call of the service may look, the narrower before the wider.
func ways(s registry.Service, used []registry.URL) (all []way) {
	for _, group := range groups(s.Group, namesOf(used, registry.ParameterGroup)) {
		for _, version := range versions(s.Version, namesOf(having(used, group.labels), registry.ParameterVersion)) {
			w := way{conditions: []config.HeaderMatch{{Name: fieldService, Value: s.Interface}}}
			w.conditions = slices.Concat(w.conditions, version.conditions, group.conditions)
			if len(group.labels)+len(version.labels) > 0 {
				w.labels = map[string]string{}
				maps.Copy(w.labels, group.labels)
				maps.Copy(w.labels, version.labels)
			}
			all = append(all, w)
		}
	}
	return all
}

// mostNamed bounds the groups, and versions, that have routes of their own.
const mostNamed = 32

// names are what providers say of a key.
type names struct {
	all  []string // in order
	none bool     // some say nothing
}

func namesOf(used []registry.URL, key string) (n names) {
	found := map[string]struct{}{}
	for _, u := range used {
		if name := nameOf(u, key); name != "" {
			found[name] = struct{}{}
		} else {
			n.none = true
		}
	}
	n.all = slices.Sorted(maps.Keys(found))
	n.all = n.all[:min(len(n.all), mostNamed)]
	return n
}

// having returns those that have all of the labels.
func having(used []registry.URL, labels map[string]string) []registry.URL {
	if len(labels) == 0 {
		return used
	}
	var all []registry.URL
	for _, u := range used {
		if isLabelled(u, labels) {
			all = append(all, u)
		}
	}
	return all
}

func isLabelled(u registry.URL, labels map[string]string) bool {
	for key, value := range labels {
		if nameOf(u, key) != value {
			return false
		}
	}
	return true
}

// nameOf returns the group of a provider, or its version.
func nameOf(u registry.URL, key string) string {
	if key == registry.ParameterVersion {
		return registry.PlainVersion(u.Get(key))
	}
	return u.Get(key)
}

// unnamed returns the ways of a caller that has not said which one he means: a call that
// names one goes to who has it, any other to who has none, or to all if everybody has one.
func (n names) unnamed(field string, none ...config.HeaderMatch) (all []way) {
	for _, one := range n.all {
		all = append(all, to(field, one))
	}
	var labels map[string]string
	if len(n.all) > 0 && n.none {
		labels = map[string]string{field: ""}
	}
	for _, condition := range none {
		all = append(all, way{[]config.HeaderMatch{condition}, labels})
	}
	return all
}

// to is a call that names a group, or version, and goes to the hosts that have it.
func to(field, name string) way {
	return way{[]config.HeaderMatch{{Name: field, Value: name}}, map[string]string{field: name}}
}

// groups returns the ways of which one must be. A caller that takes several groups names
// one of them, and gets a provider of that, or all of them.
func groups(group string, known names) (all []way) {
	switch {
	case group == "":
		return known.unnamed(fieldGroup, empty(fieldGroup))
	case group == anything:
		for _, one := range known.all {
			all = append(all, to(fieldGroup, one))
		}
		return append(all, way{})
	case !strings.Contains(group, ","):
		return []way{{conditions: []config.HeaderMatch{{Name: fieldGroup, Value: group}}}}
	}
	all = []way{{conditions: []config.HeaderMatch{{Name: fieldGroup, Value: group}}}}
	for one := range strings.SplitSeq(group, ",") {
		all = append(all, to(fieldGroup, one))
	}
	return all
}

func versions(version string, known names) (all []way) {
	switch version {
	case anything:
		for _, one := range known.all {
			all = append(all, to(fieldVersion, one))
		}
		return append(all, way{})
	case "", registry.NoVersion:
		return known.unnamed(fieldVersion, config.HeaderMatch{Name: fieldVersion, Value: registry.NoVersion}, empty(fieldVersion))
	}
	return []way{{conditions: []config.HeaderMatch{{Name: fieldVersion, Value: version}}}}
}

// empty is met by a call that does not have the field, or an empty one.
func empty(name string) config.HeaderMatch {
	return config.HeaderMatch{Name: name, Is: &config.ValueMatch{Kind: config.ValueExact, MissingIsEmpty: true}}
}
