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
	routeMatch // assignClusters clears the labels of a target with its own cluster

	candidates      *candidates
	candidatesIndex int // index into the candidate sets

	// Set by assignClusters.
	cluster       string
	hasOwnCluster bool // the cluster contains only the hosts of this target
	settings      settings
}

// computeTargets returns the route targets of the providers, the more specific first. It adds
// groups and versions without a route target to unrouted.
func (p *providers) computeTargets(ref Reference, routers []registry.URL, warn, unrouted *warnings) []routeTarget {
	byVariant := map[variant][]int{}
	for i := range p.list {
		if !p.excluded[i] {
			v := variantOf(p.list[i].URL)
			byVariant[v] = append(byVariant[v], i)
		}
	}
	targets, candidateSets := p.routeTargets(routeMatches(ref.Service, slices.Collect(maps.Keys(byVariant)), unrouted), byVariant)
	p.buildChains(ref, routers, candidateSets, warn)
	return targets
}

// routeTargets returns the route targets of matches. byVariant contains the providers of each
// variant.
func (p *providers) routeTargets(matches []routeMatch, byVariant map[variant][]int) (targets []routeTarget, candidateSets []candidates) {
	for i, match := range matches {
		target := routeTarget{routeMatch: match, candidatesIndex: len(candidateSets)}
		if i > 0 && maps.Equal(match.labels, matches[i-1].labels) { // such as "" and "0.0.0" for no version
			target.candidatesIndex--
		} else {
			var a candidates
			for v, members := range byVariant {
				if v.has(match.labels) {
					a.members = append(a.members, members...)
				}
			}
			slices.Sort(a.members)
			for _, i := range a.members {
				a.urls = append(a.urls, p.list[i].URL)
			}
			candidateSets = append(candidateSets, a)
		}
		targets = append(targets, target)
	}
	for i := range targets {
		targets[i].candidates = &candidateSets[targets[i].candidatesIndex]
	}
	return targets, candidateSets
}

// assignClusters sets the cluster and the settings of each route target. defaults contains the
// settings from all providers that get calls.
func (p *providers) assignClusters(ref Reference, targets []routeTarget, defaults settings, warn *warnings) {
	name := ref.Service.String()
	for i := range targets {
		target := &targets[i]
		target.cluster, target.settings = name, defaults
		if len(target.labels) == 0 {
			continue
		}
		called := slices.DeleteFunc(slices.Clone(target.candidates.members), func(i int) bool { return p.list[i].UnusedReason != "" })
		target.settings = readSettings(ref, p.byIndexes(called), warn)
		if p.needsVariantCluster(target.candidates.members) {
			target.cluster, target.labels, target.hasOwnCluster = variantClusterName(name, target.labels), nil, true
		} else { // the targets of a cluster share its load balancing policy
			target.settings.policy, target.settings.hash = defaults.policy, defaults.hash
		}
	}
}

// needsVariantCluster reports whether the labels of hosts cannot select the members: at some
// address a provider that is not a member determines the labels of the host.
func (p *providers) needsVariantCluster(members []int) bool {
	for pos := 0; pos < len(members); {
		first := members[pos]
		for i := first - 1; i >= 0 && compareAddresses(p.list[i], p.list[first]) == 0; i-- {
			if !p.excluded[i] {
				return true
			}
		}
		for end := p.addressEnd(first); pos < len(members) && members[pos] < end; pos++ {
		}
	}
	return false
}

// excludesAll reports whether some host of the route target has no provider in allowed, so that
// calls must not go to that host.
func (p *providers) excludesAll(t *routeTarget, allowed []int) bool {
	members := t.candidates.members
	if len(allowed) == len(members) {
		return false
	}
	for pos := 0; pos < len(members); {
		first := members[pos]
		end, isHost := p.addressEnd(first), false
		for ; pos < len(members) && members[pos] < end; pos++ {
			isHost = isHost || p.list[members[pos]].UnusedReason == ""
		}
		if !t.hasOwnCluster { // any provider at the address makes the address a host of the cluster
			isHost = slices.ContainsFunc(p.list[first:end], func(provider Provider) bool { return provider.UnusedReason == "" })
		}
		hasAllowed := false
		for ; len(allowed) > 0 && allowed[0] < end; allowed = allowed[1:] {
			hasAllowed = true
		}
		if isHost && !hasAllowed {
			return true
		}
	}
	return false
}

// variantClusterName returns the name of the cluster for providers with these labels.
func variantClusterName(service string, labels map[string]string) string {
	values := url.Values{}
	for key, value := range labels {
		values.Set(key, value)
	}
	return service + "?" + values.Encode()
}

// routeMatches returns the matches of calls of a service that is provided in these variants, the
// more specific first.
func routeMatches(s registry.Service, variants []variant, unrouted *warnings) (matches []routeMatch) {
	for _, group := range groupMatches(s.Group, namesOf(s, variants, fieldGroup, unrouted)) {
		inGroup := slices.DeleteFunc(slices.Clone(variants), func(v variant) bool { return !v.has(group.labels) })
		sub := s
		if name := group.labels[fieldGroup]; name != "" {
			sub.Group = name
		}
		for _, version := range versionMatches(s.Version, namesOf(sub, inGroup, fieldVersion, unrouted)) {
			match := routeMatch{conditions: []config.HeaderMatch{{Name: fieldService, Value: s.Interface}}}
			match.conditions = slices.Concat(match.conditions, version.conditions, group.conditions)
			if len(group.labels)+len(version.labels) > 0 {
				match.labels = map[string]string{}
				maps.Copy(match.labels, group.labels)
				maps.Copy(match.labels, version.labels)
			}
			matches = append(matches, match)
		}
	}
	return matches
}

// maxNamed is the maximum number of groups, and of versions, with their own routes, per service.
const maxNamed = 32

// names are the groups, or the versions, of providers.
type names struct {
	values     []string // sorted
	hasUnnamed bool     // some providers have no group, or no version
}

// namesOf returns the values of a field in the variants, at most maxNamed of them.
func namesOf(s registry.Service, variants []variant, field string, unrouted *warnings) (n names) {
	found := map[string]struct{}{}
	for _, v := range variants {
		if name := v.get(field); name != "" {
			found[name] = struct{}{}
		} else {
			n.hasUnnamed = true
		}
	}
	n.values = slices.Sorted(maps.Keys(found))
	if len(n.values) > maxNamed {
		addUnrouted(s, field, n.values, unrouted)
		n.values = n.values[:maxNamed]
	}
	return n
}

// addUnrouted records the values of a field beyond maxNamed, which have no routes of their own.
func addUnrouted(s registry.Service, field string, values []string, unrouted *warnings) {
	requested, effect := s.Group, "match no route"
	if field == fieldVersion {
		requested = registry.PlainVersion(s.Version)
	}
	switch requested {
	case "":
	case wildcard:
		effect = "go to any provider"
	default:
		return
	}
	const maxListed = 8 // number of values in the text
	omitted := values[maxNamed:]
	list := strings.Join(omitted[:min(maxListed, len(omitted))], ", ")
	if unlisted := len(omitted) - maxListed; unlisted > 0 {
		list += fmt.Sprintf(" and %d more", unlisted)
	}
	unrouted.add(fmt.Sprintf("%s has providers in %d %ss, but at most %d can have their own routes: calls for %s %s", s, len(values), field, maxNamed, list, effect))
}

// fieldValue returns the group or the version of a provider.
func fieldValue(u registry.URL, key string) string {
	if key == registry.ParameterVersion {
		return registry.PlainVersion(u.Get(key))
	}
	return u.Get(key)
}

// unnamedMatches returns the matches for a consumer that has no value of the field. A call with a
// value goes to the providers that have it. A call that matches one of emptyMatches goes to the
// providers without a value, or to all providers if each has one.
func (n names) unnamedMatches(field string, emptyMatches ...config.HeaderMatch) (matches []routeMatch) {
	for _, name := range n.values {
		matches = append(matches, matchName(field, name))
	}
	var labels map[string]string
	if len(n.values) > 0 && n.hasUnnamed {
		labels = map[string]string{field: ""}
	}
	for _, condition := range emptyMatches {
		matches = append(matches, routeMatch{[]config.HeaderMatch{condition}, labels})
	}
	return matches
}

// wildcardMatches returns the matches for a consumer that accepts any value. A call with a value
// goes to the providers that have it; a call that matches one of emptyMatches goes to providers
// without a value. Every other call goes to all providers.
func (n names) wildcardMatches(field string, emptyMatches ...config.HeaderMatch) []routeMatch {
	switch {
	case len(n.values) == 0:
		return []routeMatch{{}}
	case !n.hasUnnamed:
		emptyMatches = nil
	}
	return append(n.unnamedMatches(field, emptyMatches...), routeMatch{})
}

// matchName matches calls that name a group or version, and selects the hosts that have it.
func matchName(field, name string) routeMatch {
	return routeMatch{[]config.HeaderMatch{{Name: field, Value: name}}, map[string]string{field: name}}
}

// groupMatches returns the matches for the group of a consumer. A call of a consumer that accepts
// several groups contains either one of them, which selects its providers, or the complete list.
func groupMatches(group string, provided names) (matches []routeMatch) {
	switch {
	case group == "":
		return provided.unnamedMatches(fieldGroup, matchEmpty(fieldGroup))
	case group == wildcard:
		return provided.wildcardMatches(fieldGroup, matchEmpty(fieldGroup))
	case !strings.Contains(group, ","):
		return []routeMatch{{conditions: []config.HeaderMatch{{Name: fieldGroup, Value: group}}}}
	}
	matches = []routeMatch{{conditions: []config.HeaderMatch{{Name: fieldGroup, Value: group}}}}
	for name := range strings.SplitSeq(group, ",") {
		matches = append(matches, matchName(fieldGroup, name))
	}
	return matches
}

func versionMatches(version string, provided names) (matches []routeMatch) {
	noVersion := config.HeaderMatch{Name: fieldVersion, Value: registry.NoVersion}
	switch version {
	case wildcard:
		return provided.wildcardMatches(fieldVersion, noVersion, matchEmpty(fieldVersion))
	case "", registry.NoVersion:
		return provided.unnamedMatches(fieldVersion, noVersion, matchEmpty(fieldVersion))
	}
	return []routeMatch{{conditions: []config.HeaderMatch{{Name: fieldVersion, Value: version}}}}
}

// matchEmpty matches calls without the field, or with an empty value.
func matchEmpty(name string) config.HeaderMatch {
	return config.HeaderMatch{Name: name, Matcher: &config.ValueMatch{Kind: config.ValueExact, TreatMissingAsEmpty: true}}
}
