package plan

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// way is how a call of a service may look, all of it, and the labels of the hosts that it
// goes to; none: to any.
type way struct {
	conditions []config.HeaderMatch
	labels     map[string]string
}

// lane is a way, and who gets the calls.
type lane struct {
	way // whose labels are those of hosts of the cluster

	cluster  string
	members  []int // of the providers
	mark     func(set int) string
	settings settings
}

// lanes returns the lanes to the providers that get calls, the narrower before the wider.
// with are the settings of all of them; lacks are noted of what has no lane.
func (p *providers) lanes(w Wish, used []int, with settings, choices int, n, lacks *notes) (all []lane) {
	of := map[kind][]int{}
	for _, i := range used {
		k := kindOf(p.all[i].URL)
		of[k] = append(of[k], i)
	}
	found := ways(w.Service, slices.Collect(maps.Keys(of)), lacks)
	if choices > 1 && choices*len(found) > mostRoutes {
		n.add(fmt.Sprintf("%d choices by rules are too many to tell apart %d groups and versions", choices, len(found)))
		found = ways(w.Service, nil, lacks)
	}
	name, everybody := w.Service.String(), p.crowd(used).mark()
	for _, one := range found {
		to := lane{way: one, cluster: name, members: used, mark: everybody, settings: with}
		if len(one.labels) > 0 {
			to.members = nil
			for k, members := range of {
				if k.has(one.labels) {
					to.members = append(to.members, members...)
				}
			}
			slices.Sort(to.members)
			to.settings = readSettings(w, p.members(to.members), n)
			crowd := p.crowd(to.members)
			to.mark = crowd.mark()
			if crowd.isApart(choices) {
				to.cluster, to.labels = nameApart(name, one.labels), nil
			} else { // by what a host is chosen is of the cluster
				to.settings.policy, to.settings.hash = with.policy, with.hash
			}
		}
		all = append(all, to)
	}
	return all
}

// crowd is who else is at the addresses of members.
type crowd struct {
	nearer  bool // somewhere one who is no member is the host
	others  bool // somewhere there is one who is no member
	several bool // somewhere there are several members
}

// crowd finds out who of those that get calls is at the addresses of members.
func (p *providers) crowd(members []int) (c crowd) {
	for at := 0; at < len(members); {
		host := members[at]
		for i := host - 1; i >= 0 && byAddress(p.all[i], p.all[host]) == 0; i-- {
			c.nearer = c.nearer || p.all[i].Unused == ""
		}
		end, first, all := p.endOf(host), at, 0
		for _, one := range p.all[host:end] {
			if one.Unused == "" {
				all++
			}
		}
		for at < len(members) && members[at] < end {
			at++
		}
		c.several = c.several || at-first > 1
		c.others = c.others || all > at-first
	}
	return c
}

// isApart reports whether labels of hosts cannot tell members from others, where rules make
// choices: a host has those of one, or of all, at its address.
func (c crowd) isApart(choices int) bool {
	return c.nearer || choices > 1 && c.several && c.others
}

// mark returns the label of the hosts that calls of a choice go to.
func (c crowd) mark() func(set int) string {
	if c.several {
		return labelOfAny
	}
	return label
}

// nameApart returns the name of the cluster for calls of those that have labels.
func nameApart(service string, labels map[string]string) string {
	all := url.Values{}
	for key, value := range labels {
		all.Set(key, value)
	}
	return service + "?" + all.Encode()
}

// ways returns how a call of a service may look that is provided in kinds, the narrower
// before the wider.
func ways(s registry.Service, kinds []kind, lacks *notes) (all []way) {
	for _, group := range groups(s.Group, namesOf(s, kinds, fieldGroup, lacks)) {
		some := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return !k.has(group.labels) })
		in := s
		if name := group.labels[fieldGroup]; name != "" {
			in.Group = name
		}
		for _, version := range versions(s.Version, namesOf(in, some, fieldVersion, lacks)) {
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

// names are the groups, or versions, of providers.
type names struct {
	all  []string // in order
	none bool     // some have none
}

// namesOf returns what kinds say of a field: of too many names the first.
func namesOf(s registry.Service, kinds []kind, field string, lacks *notes) (n names) {
	found := map[string]struct{}{}
	for _, k := range kinds {
		if name := k.get(field); name != "" {
			found[name] = struct{}{}
		} else {
			n.none = true
		}
	}
	n.all = slices.Sorted(maps.Keys(found))
	if len(n.all) > mostNamed {
		lack(s, field, n.all, lacks)
		n.all = n.all[:mostNamed]
	}
	return n
}

// lack notes that names of a field have no routes of their own, if they would have any.
func lack(s registry.Service, field string, all []string, lacks *notes) {
	asked, effect := s.Group, "find no route"
	if field == fieldVersion {
		asked = registry.PlainVersion(s.Version)
	}
	switch asked {
	case "":
	case anything:
		effect = "go to any"
	default:
		return
	}
	const most = 8 // that are named
	rest := all[mostNamed:]
	named := strings.Join(rest[:min(most, len(rest))], ", ")
	if more := len(rest) - most; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	lacks.add(fmt.Sprintf("%s is provided in %d %ss, and %d can have routes of their own: calls of %s %s", s, len(all), field, mostNamed, named, effect))
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
