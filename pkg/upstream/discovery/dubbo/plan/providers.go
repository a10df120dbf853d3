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

// The parameters of providers that determine their share of calls.
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

// During the warmup a weight grows in warmSteps steps. Clusters change at whole multiples of pace,
// so that the weights of many providers change together.
const (
	warmSteps = 20
	pace      = 5 * time.Second
)

// mostAhead bounds how far the clock of a provider may be ahead. Weft ignores the timestamp of a
// provider that exceeds it, and treats its warmup as complete.
const mostAhead = time.Minute

// providers contains the providers of a service, sorted by address. Those at one address are sorted
// by rank, so that the best match for the reference comes first.
type providers struct {
	all  []Provider
	out  []bool // parallel to all: the provider cannot be called, whatever rules say
	now  []int  // parallel to all: current weight
	next time.Time

	tagged bool // some have, or had, tags
}

// gather collects the providers of lists.
func gather(w Reference, lists []RegistrySnapshot, n *warnings) *providers {
	p := &providers{}
	for _, list := range lists {
		overrides := rules.ReadConfigurators(list.View.Configurators, n.add)
		p.all = slices.Grow(p.all, len(list.View.Providers)) // most are accepted, and are retained for long
		for _, u := range list.View.Providers {
			if w.Service.Accepts(u) && u.Category() == registry.Providers {
				u, consumer := overrides.Apply(u, w.Consumer, w.Parameters)
				p.all = append(p.all, Provider{URL: u, Registry: list.Registry, Consumer: consumer})
			}
		}
	}
	// Of several URLs with the same address, group and version, Weft keeps a usable one, then one
	// that matches the reference exactly, then the first.
	for i := range p.all {
		p.all[i].Unused = unusable(p.all[i].URL)
	}
	slices.SortStableFunc(p.all, func(a, b Provider) int {
		if order := byAddress(a, b); order != 0 {
			return order // the common case
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

// dropDoubles keeps the first provider of each variant at an address.
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

// appendKinds appends the first provider of each variant.
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

// endOf returns the index after the last provider at the address of provider from.
func (p *providers) endOf(from int) (to int) {
	for to = from + 1; to < len(p.all) && byAddress(p.all[from], p.all[to]) == 0; to++ {
	}
	return to
}

// variant is the group and version of a provider. One address may provide several.
type variant struct{ group, version string }

func kindOf(u registry.URL) variant {
	return variant{nameOf(u, registry.ParameterGroup), nameOf(u, registry.ParameterVersion)}
}

// get returns the group or the version.
func (k variant) get(field string) string {
	if field == fieldVersion {
		return k.version
	}
	return k.group
}

// has reports whether a provider of the variant has all of the labels.
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
		return "its host is not a valid address or name"
	case isNowhere(u.Host):
		return "its address is unspecified or multicast"
	case u.Get(keyDisabled) == "true", u.Get(keyDisabled) == "" && u.Get(keyEnabled) == "false":
		return "it is disabled"
	}
	return ""
}

// speaksDubbo reports whether a provider accepts Dubbo frames. If several protocols share a port,
// ext.protocol lists the others.
func speaksDubbo(u registry.URL) bool {
	const protocol = "dubbo"
	return u.Protocol == protocol || slices.Contains(strings.Split(u.Get(keyProtocols), ","), protocol)
}

// isAddress reports whether host is an IP address. Its zone, which can be any text, must be a valid
// interface name.
func isAddress(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && (a.Zone() == "" || isName(a.Zone()))
}

func isNowhere(host string) bool {
	a, err := netip.ParseAddr(host)
	a = a.Unmap()
	return err == nil && (a.IsUnspecified() || a.IsMulticast())
}

// isName reports whether host can be resolved (RFC 1123 2.1, and underscores, which are in use).
func isName(host string) bool {
	const longest = 253 // RFC 1035 2.3.4
	if host == "" || len(host) > longest {
		return false
	}
	return !strings.ContainsFunc(host, func(c rune) bool {
		return c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

// readWeights reads the weight of each provider after its warmup.
func (p *providers) readWeights(n *warnings) {
	for i := range p.all {
		one := &p.all[i]
		one.Weight = usualWeight
		if text := lookup(nil, one.URL, "", keyWeight); text != "" {
			weight, err := strconv.ParseInt(text, 10, 32) // 32 bits, as in Java
			if err != nil {
				n.add(fmt.Sprintf("weight %q is not a number: using %d", text, usualWeight))
				weight = usualWeight
			}
			one.Weight = max(int(weight), 0)
		}
	}
}

// weigh computes the current weight of each provider that gets calls, and when it changes.
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
		p.now[i] = max(1, one.Weight*part/warmSteps) // weight 0: it shares calls if all have weight 0
	}
}

// warmupSteps returns the share of its weight that a provider gets, in units of 1/warmSteps, based
// on its timestamp, and when the share grows. next is zero if the warmup is complete.
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

// used returns the indexes of the providers that get calls.
func (p *providers) used() (members []int) {
	for i := range p.all {
		if p.all[i].Unused == "" {
			members = append(members, i)
		}
	}
	return members
}

// usableIndexes returns the indexes of the providers that can be called, whatever rules say.
func (p *providers) usableIndexes() (all []int) {
	for i, out := range p.out {
		if !out {
			all = append(all, i)
		}
	}
	return all
}

// usable returns the URLs of the providers of usableIndexes.
func (p *providers) usable() (urls []registry.URL) {
	for _, i := range p.usableIndexes() {
		urls = append(urls, p.all[i].URL)
	}
	return urls
}

// members returns the providers with these indexes.
func (p *providers) members(indexes []int) (all []*Provider) {
	for _, i := range indexes {
		all = append(all, &p.all[i])
	}
	return all
}

// cluster returns a cluster of the members that get calls, with the subsets that routes to it use.
// With rules it contains all members: the rules decide for each call.
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

// hosts returns the members that get calls, or all members, as hosts of a cluster with the labels
// that routes use. The members at one address become one host. It has the labels of the first
// member, even if only others get calls, so that rules do not move a host to another cluster. Its
// weight is that of the first member that gets calls, preferably of one with a nonzero weight.
func (p *providers) hosts(members []int, routes []*config.Route, all bool) []config.Host {
	always := map[string]bool{} // labels that routes use; true: hosts without a value have the empty label
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
			labels = own // else the host shares the labels of the previous host
		}
		hosts = append(hosts, config.Host{
			Address:  p.all[first].URL.Address(),
			Weight:   uint32(max(1, p.now[counts]*mostWeight/largest)),
			Metadata: labels,
		})
	}
	return hosts
}

// labelsOf returns the labels for subsets of hosts. Labels that are true in always exist even if
// they are empty.
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
