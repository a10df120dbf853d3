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

// routes returns the routes of a service: of each choice and lane those of methods that
// differ, then that of all.
func routes(s registry.Service, lanes []lane, choices []choice, n *notes) (all []*config.Route) {
	room := roomForMethods(lanes, len(choices), n)
	for i, one := range choices {
		for j, to := range lanes {
			add := func(method string, c calls, more []config.HeaderMatch) {
				r := &config.Route{Name: nameOfRoute(s, i, j, method), Forward: &config.Forward{
					Cluster:  to.cluster,
					Upstream: config.Dubbo,
					Timeout:  c.whole(),
					Retry:    c.retry(),
					Hash:     to.settings.hash,
					Metadata: to.labelsOf(i),
				}}
				r.Match.Headers = slices.Concat(to.conditions, one.conditions, more)
				r.Match.Arguments = one.arguments
				all = append(all, r)
			}
			methods := slices.Sorted(maps.Keys(to.settings.forMethods))
			for _, method := range methods[:min(room, len(methods))] {
				if _, can := one.of(method); can {
					add(method, to.settings.forMethods[method], []config.HeaderMatch{{Name: fieldMethod, Value: method}})
				}
			}
			conditions, _ := one.of("")
			add("", to.settings.forService, conditions)
		}
	}
	return all
}

// nameOfRoute returns group/interface:version?choice#method/lane; the first of each is not
// said.
func nameOfRoute(s registry.Service, choice, lane int, method string) string {
	name := s.String()
	if choice > 0 {
		name = fmt.Sprintf("%s?%d", name, choice+1)
	}
	if method != "" {
		name += "#" + method
	}
	if lane > 0 {
		name = fmt.Sprintf("%s/%d", name, lane+1)
	}
	return name
}

// mostRoutes bounds the routes of a service that has several choices.
const mostRoutes = 4096

// roomForMethods returns how many methods of a lane have routes of their own: fewer where
// rules multiply them.
func roomForMethods(lanes []lane, choices int, n *notes) int {
	if choices == 1 {
		return mostMethods
	}
	most := 0
	for _, to := range lanes {
		most = max(most, len(to.settings.forMethods))
	}
	room := max(0, mostRoutes/(choices*len(lanes))-1)
	if most > room {
		n.add(fmt.Sprintf("%d choices by rules leave room for %d methods, not %d, that have settings of their own", choices, room, most))
	}
	return room
}

// labelsOf returns those of the hosts that calls of a choice go to.
func (l *lane) labelsOf(choice int) map[string]string {
	set := l.sets[choice]
	if set == 0 {
		return l.labels
	}
	all := map[string]string{label(set): chosen}
	maps.Copy(all, l.labels)
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
