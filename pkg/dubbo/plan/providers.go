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
	"github.com/weft-proxy/weft/pkg/dubbo/rules"
	"github.com/weft-proxy/weft/pkg/registry"
)

// The parameters of providers that determine whether they get calls, and their share.
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
	defaultWeight = 100
	defaultWarmup = 10 * time.Minute
	maxHostWeight = 128
)

// During the warmup a weight grows in warmSteps steps. Clusters change at multiples of
// weightInterval, so that the weights of many providers change together.
const (
	warmSteps      = 20
	weightInterval = 5 * time.Second
)

// maxClockSkew is how far the timestamp of a provider may be in the future. Weft ignores a later
// timestamp, and treats the warmup of the provider as complete.
const maxClockSkew = time.Minute

// providers contains the providers of a service, sorted by address. Those at one address are sorted
// by rank, so that the best match for the reference comes first.
type providers struct {
	list       []Provider
	excluded   []bool    // by index in list: the provider cannot be called, even if rules allow it
	weights    []int     // by index in list: current weight
	nextChange time.Time // when a weight changes next; zero: never

	hasTags bool // providers, rules or the consumer use, or have used, tags
}

// collectProviders collects the providers of snapshots.
func collectProviders(ref Reference, snapshots []RegistrySnapshot, warn *warnings) *providers {
	p := &providers{}
	for _, snapshot := range snapshots {
		overrides := rules.ReadConfigurators(snapshot.Snapshot.Configurators, warn.add)
		p.list = slices.Grow(p.list, len(snapshot.Snapshot.Providers)) // most are accepted
		for _, u := range snapshot.Snapshot.Providers {
			if ref.Service.Accepts(u) && u.Category() == registry.Providers {
				u, consumer := overrides.Apply(u, ref.Consumer, ref.Parameters)
				p.list = append(p.list, Provider{URL: u, Registry: snapshot.Registry, Consumer: consumer})
			}
		}
	}
	// Of several URLs with the same address, group and version, Weft keeps the first usable one, or
	// else the first.
	for i := range p.list {
		p.list[i].UnusedReason = unusableReason(p.list[i].URL)
	}
	slices.SortStableFunc(p.list, func(a, b Provider) int {
		if order := compareAddresses(a, b); order != 0 {
			return order // the common case
		}
		return cmp.Or(cmp.Compare(rank(ref.Service, a), rank(ref.Service, b)), compareVariants(variantOf(a.URL), variantOf(b.URL)))
	})
	p.dropDuplicates()
	p.excluded = make([]bool, len(p.list))
	for i := range p.list {
		p.excluded[i] = p.list[i].UnusedReason != ""
	}
	return p
}

// dropDuplicates keeps the first provider of each variant at an address.
func (p *providers) dropDuplicates() {
	kept := p.list[:0]
	for from := 0; from < len(p.list); {
		to := p.addressEnd(from)
		if to == from+1 {
			kept = append(kept, p.list[from])
		} else {
			kept = appendVariants(kept, p.list[from:to])
		}
		from = to
	}
	clear(p.list[len(kept):])
	p.list = kept
}

// appendVariants appends to dst the first provider in src of each variant.
func appendVariants(dst, src []Provider) []Provider {
	seen := make(map[variant]bool, len(src))
	for _, provider := range src {
		if v := variantOf(provider.URL); !seen[v] {
			seen[v] = true
			dst = append(dst, provider)
		}
	}
	return dst
}

// addressEnd returns the index after the last provider at the address of list[from].
func (p *providers) addressEnd(from int) (to int) {
	for to = from + 1; to < len(p.list) && compareAddresses(p.list[from], p.list[to]) == 0; to++ {
	}
	return to
}

// variant is the group and version of a provider. One address may provide several.
type variant struct{ group, version string }

func variantOf(u registry.URL) variant {
	return variant{fieldValue(u, registry.ParameterGroup), fieldValue(u, registry.ParameterVersion)}
}

// get returns the group or the version.
func (v variant) get(field string) string {
	if field == fieldVersion {
		return v.version
	}
	return v.group
}

// has reports whether a provider of the variant has all of the labels.
func (v variant) has(labels map[string]string) bool {
	for field, want := range labels {
		if v.get(field) != want {
			return false
		}
	}
	return true
}

func compareVariants(a, b variant) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.version, b.version))
}

func compareAddresses(a, b Provider) int {
	return cmp.Or(cmp.Compare(a.URL.Host, b.URL.Host), cmp.Compare(a.URL.Port, b.URL.Port))
}

// rank orders the providers at one address: the lowest rank is the best match for service s.
func rank(s registry.Service, p Provider) (n int) {
	if p.UnusedReason != "" {
		n = 3
	}
	if s.Group == "" && p.URL.Get(registry.ParameterGroup) != "" {
		n++
	}
	if s.Version == "" && fieldValue(p.URL, registry.ParameterVersion) != "" {
		n++
	}
	return n
}

// unusableReason returns why a provider cannot be called; "": it can.
func unusableReason(u registry.URL) string {
	switch {
	case !speaksDubbo(u):
		return fmt.Sprintf("its protocol is %q", u.Protocol)
	case u.Port == 0:
		return "it has no port"
	case !isAddress(u.Host) && !isName(u.Host):
		return "its host is not a valid address or name"
	case isUnroutable(u.Host):
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

// isAddress reports whether host is an IP address. netip accepts any text as its zone; isAddress
// requires a valid interface name.
func isAddress(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && (a.Zone() == "" || isName(a.Zone()))
}

func isUnroutable(host string) bool {
	a, err := netip.ParseAddr(host)
	a = a.Unmap()
	return err == nil && (a.IsUnspecified() || a.IsMulticast())
}

// isName reports whether host has only characters of host names (RFC 1123 2.1, and underscores,
// which are in use).
func isName(host string) bool {
	const maxLen = 253 // RFC 1035 2.3.4
	if host == "" || len(host) > maxLen {
		return false
	}
	return !strings.ContainsFunc(host, func(c rune) bool {
		return c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

// readWeights reads the weight of each provider after its warmup.
func (p *providers) readWeights(warn *warnings) {
	for i := range p.list {
		provider := &p.list[i]
		provider.Weight = defaultWeight
		if text := lookup(nil, provider.URL, "", keyWeight); text != "" {
			weight, err := strconv.ParseInt(text, 10, 32) // 32 bits, as in Java
			if err != nil {
				warn.add(fmt.Sprintf("weight %q is not a number: using %d", text, defaultWeight))
				weight = defaultWeight
			}
			provider.Weight = max(int(weight), 0)
		}
	}
}

// computeWeights computes the current weight of each provider that gets calls, and when it changes.
func (p *providers) computeWeights(now time.Time) {
	p.weights = make([]int, len(p.list))
	for i := range p.list {
		provider := &p.list[i]
		if provider.UnusedReason != "" {
			continue
		}
		steps, next := warmupSteps(provider, now)
		if !next.IsZero() && (p.nextChange.IsZero() || next.Before(p.nextChange)) {
			p.nextChange = next
		}
		p.weights[i] = max(1, provider.Weight*steps/warmSteps) // if all providers have weight 0, they share the calls
	}
}

// warmupSteps returns the share of its weight that a provider gets, in units of 1/warmSteps, based
// on its timestamp, and when the share grows. next is zero if the warmup is complete.
func warmupSteps(p *Provider, now time.Time) (steps int, next time.Time) {
	u := p.URL
	timestamp, err := strconv.ParseInt(u.Get(keyTimestamp), 10, 64)
	if err != nil || timestamp <= 0 {
		return warmSteps, time.Time{}
	}
	warmup := defaultWarmup
	if ms, err := strconv.ParseInt(lookup(p.Consumer, u, "", keyWarmup), 10, 32); err == nil {
		warmup = time.Duration(ms) * time.Millisecond
	}
	step := warmup / warmSteps
	start := time.UnixMilli(timestamp)
	age := now.Sub(start)
	if age >= warmup || age < -maxClockSkew || step <= 0 {
		return warmSteps, time.Time{}
	}
	steps = int(max(age, 0) / step)
	next = start.Add(time.Duration(steps+1) * step)
	if aligned := next.Truncate(weightInterval); !aligned.Equal(next) {
		next = aligned.Add(weightInterval)
	}
	return steps, next
}

// usedIndexes returns the indexes of the providers that get calls.
func (p *providers) usedIndexes() (members []int) {
	for i := range p.list {
		if p.list[i].UnusedReason == "" {
			members = append(members, i)
		}
	}
	return members
}

// usableIndexes returns the indexes of the providers that are not excluded.
func (p *providers) usableIndexes() (indexes []int) {
	for i, excluded := range p.excluded {
		if !excluded {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// usableURLs returns the URLs of the providers of usableIndexes.
func (p *providers) usableURLs() (urls []registry.URL) {
	for _, i := range p.usableIndexes() {
		urls = append(urls, p.list[i].URL)
	}
	return urls
}

// byIndexes returns the providers with these indexes.
func (p *providers) byIndexes(indexes []int) (selected []*Provider) {
	for _, i := range indexes {
		selected = append(selected, &p.list[i])
	}
	return selected
}

// cluster returns a cluster of the members that get calls, with the subsets that its routes use. If
// rules is not nil, the cluster contains all members, because the rules decide for each call.
func (p *providers) cluster(name string, policy config.LBPolicy, members []int, routes []*config.Route, rules config.HostRules) *config.Cluster {
	c := newCluster(name, policy)
	c.HostRules = rules
	if slices.ContainsFunc(members, func(i int) bool {
		return (rules != nil || p.list[i].UnusedReason == "") && !isAddress(p.list[i].URL.Host)
	}) {
		c.Type = config.ClusterStrictDNS
	}
	c.Hosts = p.hosts(members, routes, rules != nil)
	c.Subsets = subsets(routes)
	return c
}

// hosts returns the members that get calls, or all members, as hosts of a cluster with the labels
// that routes use. The members at one address become one host. It has the labels of the first
// member, even if only others get calls, so that rules do not move a host to another cluster. Its
// weight is the weight of the first member that gets calls, preferably one with a nonzero weight.
func (p *providers) hosts(members []int, routes []*config.Route, includeUnused bool) []config.Host {
	keepEmpty := map[string]bool{} // by label of a route; true: a route selects the empty value
	for _, r := range routes {
		for key, value := range r.Forward.Metadata {
			keepEmpty[key] = keepEmpty[key] || value == ""
		}
	}
	largest := maxHostWeight
	for _, i := range members {
		largest = max(largest, p.weights[i])
	}
	hosts := make([]config.Host, 0, len(members))
	var labels map[string]string
	for pos := 0; pos < len(members); {
		first := members[pos]
		end, weighted := p.addressEnd(first), -1
		for ; pos < len(members) && members[pos] < end; pos++ {
			if i := members[pos]; (includeUnused || p.list[i].UnusedReason == "") && (weighted < 0 || p.weights[weighted] == 0 || p.list[weighted].Weight == 0 && p.list[i].Weight > 0) {
				weighted = i
			}
		}
		if weighted < 0 {
			continue
		}
		hostLabels := labelsOf(&p.list[first], keepEmpty)
		if includeUnused {
			hostLabels[labelAddress] = p.list[first].URL.Address()
		}
		if !maps.Equal(hostLabels, labels) {
			labels = hostLabels // equal labels of consecutive hosts share one map
		}
		hosts = append(hosts, config.Host{
			Address:  p.list[first].URL.Address(),
			Weight:   uint32(max(1, p.weights[weighted]*maxHostWeight/largest)),
			Metadata: labels,
		})
	}
	return hosts
}

// labelsOf returns the labels of a host. It omits empty labels, except those that are true in
// keepEmpty.
func labelsOf(p *Provider, keepEmpty map[string]bool) map[string]string {
	u, labels := p.URL, map[string]string{}
	for _, key := range [...]string{"application", "environment", "group", "region", "version", "zone"} {
		if value := u.Get(key); value != "" {
			labels[key] = value
		}
	}
	if tag := u.Get("dubbo.tag"); tag != "" {
		labels["tag"] = tag
	}
	for key, keep := range keepEmpty {
		if keep {
			labels[key] = fieldValue(u, key)
		}
	}
	return labels
}
