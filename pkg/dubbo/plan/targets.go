package plan

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// routeMatch is a set of conditions on a call of a service, all of which must match, and the labels
// of the hosts that the call goes to; no labels: any host.
type routeMatch struct {
	conditions []config.HeaderMatch
	labels     map[string]string
}

// routeTarget is a routeMatch with the candidates for its calls.
type routeTarget struct {
	routeMatch // its labels are labels of the cluster's hosts

	candidates      *candidates
	candidatesIndex int // index of audience

	// Set by assignClusters.
	cluster   string
	dedicated bool // the cluster contains only the hosts of this target
	settings  settings
}

// computeTargets returns the route targets of the providers, the more specific first. It adds
// groups and versions without a route target to lacks.
func (p *providers) computeTargets(w Reference, routers []registry.URL, n, lacks *warnings) []routeTarget {
	of := map[variant][]int{}
	for i := range p.all {
		if !p.excluded[i] {
			k := variantOf(p.all[i].URL)
			of[k] = append(of[k], i)
		}
	}
	lanes, audiences := p.routeTargets(routeMatches(w.Service, slices.Collect(maps.Keys(of)), lacks), of)
	p.buildChains(w, routers, audiences, n)
	return lanes
}

// routeTargets returns the route targets of matches. of contains the providers of each variant.
func (p *providers) routeTargets(found []routeMatch, of map[variant][]int) (all []routeTarget, audiences []candidates) {
	for i, one := range found {
		to := routeTarget{routeMatch: one, candidatesIndex: len(audiences)}
		if i > 0 && maps.Equal(one.labels, found[i-1].labels) { // two spellings of "no version"
			to.candidatesIndex--
		} else {
			var a candidates
			for k, members := range of {
				if k.has(one.labels) {
					a.members = append(a.members, members...)
				}
			}
			slices.Sort(a.members)
			for _, i := range a.members {
				a.urls = append(a.urls, p.all[i].URL)
			}
			audiences = append(audiences, a)
		}
		all = append(all, to)
	}
	for i := range all {
		all[i].candidates = &audiences[all[i].candidatesIndex]
	}
	return all, audiences
}

// assignClusters sets the cluster and the settings of each route target. with contains the settings
// from all providers that get calls.
func (p *providers) assignClusters(w Reference, lanes []routeTarget, with settings, n *warnings) {
	name := w.Service.String()
	for i := range lanes {
		to := &lanes[i]
		to.cluster, to.settings = name, with
		if len(to.labels) == 0 {
			continue
		}
		called := slices.DeleteFunc(slices.Clone(to.candidates.members), func(i int) bool { return p.all[i].UnusedReason != "" })
		to.settings = readSettings(w, p.byIndexes(called), n)
		if p.needsOwnCluster(to.candidates.members) {
			to.cluster, to.labels, to.dedicated = variantClusterName(name, to.labels), nil, true
		} else { // the cluster determines how a host is chosen
			to.settings.policy, to.settings.hash = with.policy, with.hash
		}
	}
}

// needsOwnCluster reports whether the labels of hosts cannot select the members: at some address a provider
// that is not a member determines the labels of the host.
func (p *providers) needsOwnCluster(members []int) bool {
	for at := 0; at < len(members); {
		host := members[at]
		for i := host - 1; i >= 0 && compareAddresses(p.all[i], p.all[host]) == 0; i-- {
			if !p.excluded[i] {
				return true
			}
		}
		for end := p.addressEnd(host); at < len(members) && members[at] < end; at++ {
		}
	}
	return false
}

// excludesAll reports whether the cluster of a route target has a host with its labels at whose
// address left contains no provider.
func (p *providers) excludesAll(l *routeTarget, left []int) bool {
	members := l.candidates.members
	if len(left) == len(members) {
		return false
	}
	for at := 0; at < len(members); {
		host := members[at]
		end, isHost := p.addressEnd(host), false
		for ; at < len(members) && members[at] < end; at++ {
			isHost = isHost || p.all[members[at]].UnusedReason == ""
		}
		if !l.dedicated { // other providers at the address make it a host, too
			isHost = slices.ContainsFunc(p.all[host:end], func(one Provider) bool { return one.UnusedReason == "" })
		}
		isLeft := false
		for ; len(left) > 0 && left[0] < end; left = left[1:] {
			isLeft = true
		}
		if isHost && !isLeft {
			return true
		}
	}
	return false
}

// variantClusterName returns the name of the cluster for calls of providers with these labels.
func variantClusterName(service string, labels map[string]string) string {
	all := url.Values{}
	for key, value := range labels {
		all.Set(key, value)
	}
	return service + "?" + all.Encode()
}

// routeMatches returns the matches of calls of a service that is provided in these variants, the more
// specific first.
func routeMatches(s registry.Service, kinds []variant, lacks *warnings) (all []routeMatch) {
	for _, group := range groupMatches(s.Group, namesOf(s, kinds, fieldGroup, lacks)) {
		some := slices.DeleteFunc(slices.Clone(kinds), func(k variant) bool { return !k.has(group.labels) })
		in := s
		if name := group.labels[fieldGroup]; name != "" {
			in.Group = name
		}
		for _, version := range versionMatches(s.Version, namesOf(in, some, fieldVersion, lacks)) {
			w := routeMatch{conditions: []config.HeaderMatch{{Name: fieldService, Value: s.Interface}}}
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

// maxNamed bounds the groups, and the versions, that have their own routes.
const maxNamed = 32

// names are the groups, or the versions, of providers.
type names struct {
	all        []string // sorted
	hasUnnamed bool     // some providers have none
}

// namesOf returns the values of a field in the variants, at most maxNamed of them.
func namesOf(s registry.Service, kinds []variant, field string, lacks *warnings) (n names) {
	found := map[string]struct{}{}
	for _, k := range kinds {
		if name := k.get(field); name != "" {
			found[name] = struct{}{}
		} else {
			n.hasUnnamed = true
		}
	}
	n.all = slices.Sorted(maps.Keys(found))
	if len(n.all) > maxNamed {
		addUnrouted(s, field, n.all, lacks)
		n.all = n.all[:maxNamed]
	}
	return n
}

// addUnrouted records that values of a field have no routes of their own, if they would otherwise have
// them.
func addUnrouted(s registry.Service, field string, all []string, lacks *warnings) {
	asked, effect := s.Group, "match no route"
	if field == fieldVersion {
		asked = registry.PlainVersion(s.Version)
	}
	switch asked {
	case "":
	case wildcard:
		effect = "go to any provider"
	default:
		return
	}
	const most = 8 // number of values that the text names
	rest := all[maxNamed:]
	named := strings.Join(rest[:min(most, len(rest))], ", ")
	if more := len(rest) - most; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	lacks.add(fmt.Sprintf("%s has providers in %d %ss, but at most %d can have their own routes: calls for %s %s", s, len(all), field, maxNamed, named, effect))
}

// fieldValue returns the group or the version of a provider.
func fieldValue(u registry.URL, key string) string {
	if key == registry.ParameterVersion {
		return registry.PlainVersion(u.Get(key))
	}
	return u.Get(key)
}

// forUnnamed returns the matches for a consumer that names no value. A call that names one goes to
// providers with it. A call that matches one of the conditions none goes to providers without a
// value, or to all if each has one.
func (n names) forUnnamed(field string, none ...config.HeaderMatch) (all []routeMatch) {
	for _, one := range n.all {
		all = append(all, matchName(field, one))
	}
	var labels map[string]string
	if len(n.all) > 0 && n.hasUnnamed {
		labels = map[string]string{field: ""}
	}
	for _, condition := range none {
		all = append(all, routeMatch{[]config.HeaderMatch{condition}, labels})
	}
	return all
}

// forWildcard returns the matches for a consumer that accepts any value. A call that names one, or matches
// one of the conditions none, goes to providers that have it, if there are any. Every other call
// goes to all providers.
func (n names) forWildcard(field string, none ...config.HeaderMatch) []routeMatch {
	switch {
	case len(n.all) == 0:
		return []routeMatch{{}}
	case !n.hasUnnamed:
		none = nil
	}
	return append(n.forUnnamed(field, none...), routeMatch{})
}

// matchName matches calls that name a group or version, and selects the hosts that have it.
func matchName(field, name string) routeMatch {
	return routeMatch{[]config.HeaderMatch{{Name: field, Value: name}}, map[string]string{field: name}}
}

// groupMatches returns the matches for the group of a consumer. A consumer that accepts several groups
// names one of them, and gets a provider of that group, or names all of them.
func groupMatches(group string, known names) (all []routeMatch) {
	switch {
	case group == "":
		return known.forUnnamed(fieldGroup, matchEmpty(fieldGroup))
	case group == wildcard:
		return known.forWildcard(fieldGroup, matchEmpty(fieldGroup))
	case !strings.Contains(group, ","):
		return []routeMatch{{conditions: []config.HeaderMatch{{Name: fieldGroup, Value: group}}}}
	}
	all = []routeMatch{{conditions: []config.HeaderMatch{{Name: fieldGroup, Value: group}}}}
	for one := range strings.SplitSeq(group, ",") {
		all = append(all, matchName(fieldGroup, one))
	}
	return all
}

func versionMatches(version string, known names) (all []routeMatch) {
	noVersion := config.HeaderMatch{Name: fieldVersion, Value: registry.NoVersion}
	switch version {
	case wildcard:
		return known.forWildcard(fieldVersion, noVersion, matchEmpty(fieldVersion))
	case "", registry.NoVersion:
		return known.forUnnamed(fieldVersion, noVersion, matchEmpty(fieldVersion))
	}
	return []routeMatch{{conditions: []config.HeaderMatch{{Name: fieldVersion, Value: version}}}}
}

// matchEmpty matches calls without the field, or with an empty value.
func matchEmpty(name string) config.HeaderMatch {
	return config.HeaderMatch{Name: name, Matcher: &config.ValueMatch{Kind: config.ValueExact, TreatMissingAsEmpty: true}}
}
