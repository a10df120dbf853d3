package explain

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
)

// Upstream is the current state of a cluster.
type Upstream struct {
	Config *config.Cluster
	// Panic means that too few hosts are up, so the cluster ignores their health.
	Panic bool
	Hosts []UpstreamHost
}

// UpstreamHost is the current state of a host.
type UpstreamHost struct {
	Address    string
	DownReason string // the reason; "": it is up
	Weight     uint32
	Priority   uint32
	Locality   string
	Metadata   map[string]string
}

// FromConfig returns the state of a cluster that does not run: all hosts come from the
// configuration. A host is down only if its configured health says so.
func FromConfig(c *config.Cluster) *Upstream {
	u := &Upstream{Config: c}
	for i := range c.Hosts {
		h := &c.Hosts[i]
		one := UpstreamHost{Address: h.Address, Weight: h.Weight, Priority: h.Priority, Metadata: h.Metadata}
		if l := h.Locality; l != (config.Locality{}) {
			one.Locality = l.Region + "/" + l.Zone + "/" + l.SubZone
		}
		if h.Health != config.HostHealthy {
			one.DownReason = h.Health.String()
		}
		u.Hosts = append(u.Hosts, one)
	}
	return u
}

// cluster returns which hosts of the named cluster may receive x with these labels; x is nil for a
// connection. The policy chooses among the candidates. The distribution among priorities and
// localities is ignored: only the first priority with a usable host counts.
func cluster(up Upstreams, name string, percent float64, labels map[string]string, x *exchange) Cluster {
	c := Cluster{Name: name, Percent: percent}
	u := up(name)
	if u == nil {
		c.Missing = true
		return c
	}
	c.Policy = string(u.Config.LBPolicy)
	fits := func(*UpstreamHost) string { return "" }
	if len(u.Config.Subsets.Selectors) > 0 {
		c.Labels = labels
		fits = u.subsetFilter(labels)
	}
	if u.Config.HostRules != nil {
		fits = u.withRules(fits, labels, x)
	}
	used := u.selectPriority(fits)
	for i := range u.Hosts {
		h := &u.Hosts[i]
		one := Host{Address: h.Address, Weight: h.Weight, Priority: h.Priority, Locality: h.Locality}
		if why := fits(h); why != "" {
			one.Why = append(one.Why, why)
		}
		if h.DownReason != "" && !u.Panic {
			one.Why = append(one.Why, "it is down: "+h.DownReason)
		}
		if h.Priority > used {
			one.Why = append(one.Why, fmt.Sprintf("priority %d is used only when the hosts of earlier priorities fail", h.Priority))
		}
		one.Candidate = len(one.Why) == 0
		c.Hosts = append(c.Hosts, one)
	}
	return c
}

// selectPriority returns the first priority with a host that is up and fits, or the last one if
// none has.
func (u *Upstream) selectPriority(fits func(*UpstreamHost) string) uint32 {
	found, best, last := false, uint32(0), uint32(0)
	for i := range u.Hosts {
		h := &u.Hosts[i]
		last = max(last, h.Priority)
		if (h.DownReason == "" || u.Panic) && fits(h) == "" && (!found || h.Priority < best) {
			found, best = true, h.Priority
		}
	}
	if !found {
		return last
	}
	return best
}

// subsetFilter returns a function that says why a host is not in the subset for labels, or "".
func (u *Upstream) subsetFilter(labels map[string]string) func(*UpstreamHost) string {
	names := slices.Sorted(maps.Keys(labels))
	there := len(names) > 0 && slices.ContainsFunc(u.Config.Subsets.Selectors, func(s []string) bool {
		return slices.Equal(slices.Compact(slices.Sorted(slices.Values(s))), names)
	}) && slices.ContainsFunc(u.Hosts, func(h UpstreamHost) bool { return missingLabel(&h, labels) == "" })
	switch {
	case there:
		return func(h *UpstreamHost) string { return missingLabel(h, labels) }
	case u.Config.Subsets.Fallback == config.AnyEndpoint:
		return func(*UpstreamHost) string { return "" }
	case u.Config.Subsets.Fallback == config.DefaultSubset:
		return func(h *UpstreamHost) string { return missingLabel(h, u.Config.Subsets.Default) }
	}
	return func(*UpstreamHost) string { return "no subset has the labels of the request, and there is no fallback" }
}

// missingLabel returns which label a host does not have, or "" if it has all.
func missingLabel(h *UpstreamHost, labels map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if value, ok := h.Metadata[name]; !ok || value != labels[name] {
			return fmt.Sprintf("it does not have the label %s=%s", name, labels[name])
		}
	}
	return ""
}

// withRules extends fits with the rules of the cluster that exclude a host for x.
func (u *Upstream) withRules(fits func(*UpstreamHost) string, labels map[string]string, x *exchange) func(*UpstreamHost) string {
	chain := u.Config.HostRules.Chain(labels)
	left := config.NewHostSet(chain.Len())
	if x != nil {
		chain.Select(x, left)
	}
	return func(h *UpstreamHost) string {
		if why := fits(h); why != "" || chain.Allows(left, &config.Host{Address: h.Address, Metadata: h.Metadata}) {
			return why
		}
		return "the rules of the cluster exclude it for the request"
	}
}
