package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// The fields of a call that routes match; see pkg/protocol/xprotocol.
const (
	fieldService = "service"
	fieldGroup   = "group"
	fieldVersion = "version"
	fieldMethod  = "method"
)

// wildcard matches every group or version.
const wildcard = "*"

// Compare orders services as their routes are ordered: by interface, then the more specific service
// first.
func Compare(a, b registry.Service) int {
	return cmp.Or(
		cmp.Compare(a.Interface, b.Interface),
		cmp.Compare(breadth(a), breadth(b)),
		cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Version, b.Version),
	)
}

// breadth returns how broad a service is: 0 for one group and one version. The group has
// precedence.
func breadth(s registry.Service) (n int) {
	const versions = 3 // number of results of the switch on the version
	switch {
	case s.Group == wildcard:
		n += 3 * versions
	case s.Group == "":
		n += 2 * versions
	case strings.Contains(s.Group, ","):
		n += versions
	}
	switch s.Version {
	case wildcard:
		n += 2
	case "", registry.NoVersion:
		n++
	}
	return n
}

// RouteTable returns the route table of services. routesByService contains the routes of each
// service, in the order of Compare.
func RouteTable(routesByService [][]*config.Route) *config.RouteTable {
	host := &config.VirtualHost{Name: config.DubboRouteTable, Domains: []string{"*"}}
	total := 0
	for _, routes := range routesByService {
		total += len(routes)
	}
	host.Routes = make([]*config.Route, 0, total)
	for _, routes := range routesByService {
		host.Routes = append(host.Routes, routes...)
	}
	return &config.RouteTable{Name: config.DubboRouteTable, VirtualHosts: []*config.VirtualHost{host}}
}

// routes returns the routes of a service: for each route target one per method with different
// settings, then one for all methods.
func routes(s registry.Service, targets []routeTarget) (list []*config.Route) {
	for i, t := range targets {
		add := func(method string, c callSettings, extra ...config.HeaderMatch) {
			r := &config.Route{Name: routeName(s, i, method), Forward: &config.Forward{
				Cluster:      t.cluster,
				Upstream:     config.Dubbo,
				Timeout:      c.totalTimeout(),
				Retry:        c.retryPolicy(),
				HashPolicies: t.settings.hash,
				Metadata:     t.labels,
			}}
			r.Match.Headers = slices.Concat(t.conditions, extra)
			list = append(list, r)
		}
		for _, method := range slices.Sorted(maps.Keys(t.settings.forMethods)) {
			add(method, t.settings.forMethods[method], config.HeaderMatch{Name: fieldMethod, Value: method})
		}
		add("", t.settings.forService)
	}
	return list
}

// routeName returns group/interface:version#method/number, without a number for the first route
// target.
func routeName(s registry.Service, index int, method string) string {
	name := s.String()
	if method != "" {
		name += "#" + method
	}
	if index > 0 {
		name = fmt.Sprintf("%s/%d", name, index+1)
	}
	return name
}

// subsets returns the host subsets that routes select.
func subsets(routes []*config.Route) (s config.Subsets) {
	for _, r := range routes {
		if len(r.Forward.Metadata) == 0 {
			s.Fallback = config.AnyEndpoint // for routes without labels
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
