package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/rules"
)

// The parameters of providers that decide what they get.
const (
	keyWeight    = "weight"
	keyWarmup    = "warmup"
	keyTimestamp = "timestamp"
	keyEnabled   = "enabled"
	keyDisabled  = "disabled"
	keyProtocols = "ext.protocol"
)

// Dubbo's defaults, and the largest weight of a host.
const (
	usualWeight = 100
	usualWarmup = 10 * time.Minute
	mostWeight  = 128
)

// A weight grows in steps, and clusters change at whole multiples of pace, so that many
// that grow change together.
const (
	warmSteps = 20
	pace      = 5 * time.Second
)

// mostAhead is how far ahead the clock of a provider may be: one that began later than
// that has a clock that is wrong, and counts as one that has run for long.
const mostAhead = time.Minute

// providers are who provides a service, by address; of one address those first that are
// nearest to what was asked for.
type providers struct {
	all  []Provider
	out  []bool // of each in all, that it cannot be called whatever rules say
	now  []int  // of each in all, its weight now
	next time.Time

	tagged bool // some have tags, or had
}

// gather returns what lists name.
func gather(w Reference, lists []RegistrySnapshot, n *warnings) *providers {
	p := &providers{}
	for _, list := range lists {
		overrides := rules.ReadConfigurators(list.View.Configurators, n.add)
		p.all = slices.Grow(p.all, len(list.View.Providers)) // most are accepted, and stay for long
		for _, u := range list.View.Providers {
			if w.Service.Accepts(u) && u.Category() == registry.Providers {
				u, consumer := overrides.Apply(u, w.Consumer, w.Parameters)
				p.all = append(p.all, Provider{URL: u, Registry: list.Registry, Consumer: consumer})
			}
		}
	}
	// Of what is named twice the URL that can be used counts, then the one that is what was
	// asked for to the letter, then the one that was named first.
	for i := range p.all {
		p.all[i].Unused = unusable(p.all[i].URL)
	}
	slices.SortStableFunc(p.all, func(a, b Provider) int {
		if order := byAddress(a, b); order != 0 {
			return order // almost always
		}
		return cmp.Or(cmp.Compare(rank(w.Service, a), rank(w.Service, b)), compareKinds(kindOf(a.URL), kindOf(b.URL)))
	})
	p.dropDoubles()
	p.out = make([]bool, len(p.all))
	for i := range p.all {
		p.out[i] = p.all[i].Unused != ""
	}
	return p
}

// dropDoubles leaves the first of each kind at an address.
func (p *providers) dropDoubles() {
	left := p.all[:0]
	for from := 0; from < len(p.all); {
		to := p.endOf(from)
		if to == from+1 {
			left = append(left, p.all[from])
		} else {
			left = appendKinds(left, p.all[from:to])
		}
		from = to
	}
	clear(p.all[len(left):])
	p.all = left
}

// appendKinds appends the first of each kind.
func appendKinds(to, all []Provider) []Provider {
	seen := make(map[variant]bool, len(all))
	for _, one := range all {
		if k := kindOf(one.URL); !seen[k] {
			seen[k] = true
			to = append(to, one)
		}
	}
	return to
}

// endOf returns where those end that are at the address of the one at from.
func (p *providers) endOf(from int) (to int) {
	for to = from + 1; to < len(p.all) && byAddress(p.all[from], p.all[to]) == 0; to++ {
	}
	return to
}

// variant is the group and the version of a provider: at one address there may be several.
type variant struct{ group, version string }

func kindOf(u registry.URL) variant {
	return variant{nameOf(u, registry.ParameterGroup), nameOf(u, registry.ParameterVersion)}
}

// get returns the group, or the version.
func (k variant) get(field string) string {
	if field == fieldVersion {
		return k.version
	}
	return k.group
}

// has reports whether a provider of the kind has all of the labels.
func (k variant) has(labels map[string]string) bool {
	for field, value := range labels {
		if k.get(field) != value {
			return false
		}
	}
	return true
}

func compareKinds(a, b variant) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.version, b.version))
}

func byAddress(a, b Provider) int {
	return cmp.Or(cmp.Compare(a.URL.Host, b.URL.Host), cmp.Compare(a.URL.Port, b.URL.Port))
}

func rank(s registry.Service, p Provider) (n int) {
	if p.Unused != "" {
		n = 3
	}
	if s.Group == "" && p.URL.Get(registry.ParameterGroup) != "" {
		n++
	}
	if s.Version == "" && nameOf(p.URL, registry.ParameterVersion) != "" {
		n++
	}
	return n
}

// unusable returns why a provider cannot be called; "": it can.
func unusable(u registry.URL) string {
	switch {
	case !speaksDubbo(u):
		return fmt.Sprintf("its protocol is %q", u.Protocol)
	case u.Port == 0:
		return "it has no port"
	case !isAddress(u.Host) && !isName(u.Host):
		return "its host is none"
	case isNowhere(u.Host):
		return "its address is that of no machine"
	case u.Get(keyDisabled) == "true", u.Get(keyDisabled) == "" && u.Get(keyEnabled) == "false":
		return "it is disabled"
	}
	return ""
}

// speaksDubbo reports whether frames of Dubbo are understood: at a port that several
// protocols share ext.protocol has the others.
func speaksDubbo(u registry.URL) bool {
	const protocol = "dubbo"
	return u.Protocol == protocol || slices.Contains(strings.Split(u.Get(keyProtocols), ","), protocol)
}

// isAddress reports whether host is an address. Its zone, which could be any text, is that
// of an interface.
func isAddress(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && (a.Zone() == "" || isName(a.Zone()))
}

func isNowhere(host string) bool {
	a, err := netip.ParseAddr(host)
	a = a.Unmap()
	return err == nil && (a.IsUnspecified() || a.IsMulticast())
}

// isName reports whether host can be looked up (RFC 1123 2.1, and the underscores that
// are in use).
func isName(host string) bool {
	const longest = 253 // RFC 1035 2.3.4
	if host == "" || len(host) > longest {
		return false
	}
	return !strings.ContainsFunc(host, func(c rune) bool {
		return c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

// readWeights finds out what each provider gets that has run for long.
func (p *providers) readWeights(n *warnings) {
	for i := range p.all {
		one := &p.all[i]
		one.Weight = usualWeight
		if text := lookup(nil, one.URL, "", keyWeight); text != "" {
			weight, err := strconv.ParseInt(text, 10, 32) // as in Java: no product of it overflows
			if err != nil {
				n.add(fmt.Sprintf("weight %q is no number: %d counts", text, usualWeight))
				weight = usualWeight
			}
			one.Weight = max(int(weight), 0)
		}
	}
}

// weigh finds out what each provider that gets calls gets now, and when that changes.
func (p *providers) weigh(now time.Time) {
	p.now = make([]int, len(p.all))
	for i := range p.all {
		one := &p.all[i]
		if one.Unused != "" {
			continue
		}
		part, next := warmupSteps(one, now)
		if !next.IsZero() && (p.next.IsZero() || next.Before(p.next)) {
			p.next = next
		}
		p.now[i] = max(1, one.Weight*part/warmSteps) // without weight: its part of what nobody else gets
	}
}

// warmupSteps returns how much of its weight a provider gets that has been running since its
// timestamp, in parts of warmSteps, and when that becomes more; zero: it gets all.
func warmupSteps(p *Provider, now time.Time) (part int, next time.Time) {
	u := p.URL
	began, err := strconv.ParseInt(u.Get(keyTimestamp), 10, 64)
	if err != nil || began <= 0 {
		return warmSteps, time.Time{}
	}
	warmup := usualWarmup
	if ms, err := strconv.ParseInt(lookup(p.Consumer, u, "", keyWarmup), 10, 32); err == nil {
		warmup = time.Duration(ms) * time.Millisecond
	}
	step := warmup / warmSteps
	start := time.UnixMilli(began)
	age := now.Sub(start)
	if age >= warmup || age < -mostAhead || step <= 0 {
		return warmSteps, time.Time{}
	}
	part = int(max(age, 0) / step)
	next = start.Add(time.Duration(part+1) * step)
	if late := next.Truncate(pace); !late.Equal(next) {
		next = late.Add(pace)
	}
	return part, next
}

// used returns who gets calls, as indexes of all.
func (p *providers) used() (members []int) {
	for i := range p.all {
		if p.all[i].Unused == "" {
			members = append(members, i)
		}
	}
	return members
}

// usableIndexes returns who can be called, whatever rules say.
func (p *providers) usableIndexes() (all []int) {
	for i, out := range p.out {
		if !out {
			all = append(all, i)
		}
	}
	return all
}

// usable returns the URLs of those.
func (p *providers) usable() (urls []registry.URL) {
	for _, i := range p.usableIndexes() {
		urls = append(urls, p.all[i].URL)
	}
	return urls
}

// members returns providers by their indexes.
func (p *providers) members(indexes []int) (all []*Provider) {
	for _, i := range indexes {
		all = append(all, &p.all[i])
	}
	return all
}

// cluster returns a cluster of those members that get calls, which has the subsets that routes
// to it ask for. With rules it has the others, too: the rules decide for each call.
func (p *providers) cluster(name string, policy config.Policy, members []int, routes []*config.Route, rules config.HostRules) *config.Cluster {
	c := newCluster(name, policy)
	c.Rules = rules
	if slices.ContainsFunc(members, func(i int) bool { return (rules != nil || p.all[i].Unused == "") && !isAddress(p.all[i].URL.Host) }) {
		c.Type = config.ClusterStrictDNS
	}
	c.Hosts = p.hosts(members, routes, rules != nil)
	c.Subsets = subsets(routes)
	return c
}

// hosts returns those members that get calls, or all, as hosts of a cluster, where each has the
// labels that routes ask for. Of those at one address the first is the host, whether it gets
// calls or only others do: so rules move none to another cluster. The weight is that of the
// first that gets calls.
func (p *providers) hosts(members []int, routes []*config.Route, all bool) []config.Host {
	always := map[string]bool{} // labels that routes ask for; true: those without one have it, too
	for _, r := range routes {
		for key, value := range r.Forward.Metadata {
			always[key] = always[key] || value == ""
		}
	}
	largest := mostWeight
	for _, i := range members {
		largest = max(largest, p.now[i])
	}
	hosts := make([]config.Host, 0, len(members))
	var labels map[string]string
	for at := 0; at < len(members); {
		first := members[at]
		end, counts := p.endOf(first), -1
		for ; at < len(members) && members[at] < end; at++ {
			if i := members[at]; (all || p.all[i].Unused == "") && (counts < 0 || p.now[counts] == 0 || p.all[counts].Weight == 0 && p.all[i].Weight > 0) {
				counts = i
			}
		}
		if counts < 0 {
			continue
		}
		own := labelsOf(&p.all[first], always)
		if all {
			own[labelAddress] = p.all[first].URL.Address()
		}
		if !maps.Equal(own, labels) {
			labels = own // else they are shared with the host before
		}
		hosts = append(hosts, config.Host{
			Address:  p.all[first].URL.Address(),
			Weight:   uint32(max(1, p.now[counts]*mostWeight/largest)),
			Metadata: labels,
		})
	}
	return hosts
}

// labelsOf returns what subsets of hosts may be made by; those of always that are true are
// there though they are empty.
func labelsOf(p *Provider, always map[string]bool) map[string]string {
	u, labels := p.URL, map[string]string{}
	for _, key := range [...]string{"application", "environment", "group", "region", "version", "zone"} {
		if value := u.Get(key); value != "" {
			labels[key] = value
		}
	}
	if tag := u.Get("dubbo.tag"); tag != "" {
		labels["tag"] = tag
	}
	for key, are := range always {
		if are {
			labels[key] = nameOf(u, key)
		}
	}
	return labels
}
