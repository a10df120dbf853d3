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

// providers are the addresses of a service.
type providers struct {
	all  []Provider
	now  []int // of each in all, its weight now
	next time.Time

	tagged bool // some have tags, or had
}

// gather returns what lists name, in the order of the addresses.
func gather(w Wish, lists []List, n *notes) *providers {
	p := &providers{}
	for _, list := range lists {
		overrides := rules.ReadOverrides(list.View.Configurators, n.add)
		p.all = slices.Grow(p.all, len(list.View.Providers)) // most are accepted, and stay for long
		for _, u := range list.View.Providers {
			if w.Service.Accepts(u) && u.Category() == registry.Providers {
				u, consumer := overrides.Apply(u, w.Consumer, w.Parameters)
				p.all = append(p.all, Provider{URL: u, Registry: list.Registry, Consumer: consumer})
			}
		}
	}
	// Of one address that is named twice the URL that can be used counts, then the one
	// that is what was asked for to the letter, then the one that was named first.
	for i := range p.all {
		p.all[i].Unused = unusable(p.all[i].URL)
	}
	slices.SortStableFunc(p.all, func(a, b Provider) int {
		return cmp.Or(cmp.Compare(a.URL.Host, b.URL.Host), cmp.Compare(a.URL.Port, b.URL.Port), cmp.Compare(rank(w.Service, a), rank(w.Service, b)))
	})
	p.all = slices.CompactFunc(p.all, func(a, b Provider) bool { return a.URL.Host == b.URL.Host && a.URL.Port == b.URL.Port })
	return p
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

// weigh finds out what each provider gets now, and when that changes.
func (p *providers) weigh(now time.Time, n *notes) {
	p.now = make([]int, len(p.all))
	nobody := true
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
		if one.Unused != "" {
			continue
		}
		part, next := warmth(one, now)
		if !next.IsZero() && (p.next.IsZero() || next.Before(p.next)) {
			p.next = next
		}
		if one.Weight > 0 {
			nobody = false
			p.now[i] = max(1, one.Weight*part/warmSteps)
		}
	}
	for i := range p.all {
		one := &p.all[i]
		switch {
		case one.Unused != "" || one.Weight > 0:
		case nobody: // as in Dubbo: who all get nothing, share
			p.now[i] = 1
		default:
			one.Unused = "its weight is 0"
		}
	}
}

// warmth returns how much of its weight a provider gets that has been running since its
// timestamp, in parts of warmSteps, and when that becomes more; zero: it gets all.
func warmth(p *Provider, now time.Time) (part int, next time.Time) {
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

// used returns the URLs of the providers that get calls.
func (p *providers) used() []registry.URL {
	var urls []registry.URL
	for i := range p.all {
		if p.all[i].Unused == "" {
			urls = append(urls, p.all[i].URL)
		}
	}
	return urls
}

// hosts returns the providers that get calls as hosts of a cluster, where each has the
// labels that routes ask for.
func (p *providers) hosts(routes []*config.Route) []config.Host {
	var always []string // labels that those without one have, too
	for _, r := range routes {
		for key, value := range r.Forward.Metadata {
			if value == "" && !slices.Contains(always, key) {
				always = append(always, key)
			}
		}
	}
	largest := mostWeight
	for _, weight := range p.now {
		largest = max(largest, weight)
	}
	hosts := make([]config.Host, 0, len(p.all))
	var labels map[string]string
	for i := range p.all {
		one := &p.all[i]
		if one.Unused != "" {
			continue
		}
		if own := labelsOf(one, always); !maps.Equal(own, labels) {
			labels = own // else they are shared with the host before
		}
		hosts = append(hosts, config.Host{
			Address:  one.URL.Address(),
			Weight:   uint32(max(1, p.now[i]*mostWeight/largest)),
			Metadata: labels,
		})
	}
	return hosts
}

// labelsOf returns what subsets of hosts may be made by; always are those that are there
// though they are empty.
func labelsOf(p *Provider, always []string) map[string]string {
	u, labels := p.URL, map[string]string{}
	for _, set := range p.Choices {
		labels[label(set)] = chosen
	}
	for _, key := range [...]string{"application", "environment", "group", "region", "version", "zone"} {
		if value := u.Get(key); value != "" {
			labels[key] = value
		}
	}
	if tag := u.Get("dubbo.tag"); tag != "" {
		labels["tag"] = tag
	}
	for _, key := range always {
		labels[key] = nameOf(u, key)
	}
	return labels
}
