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
	DownReason string // "": the host is up
	Weight     uint32
	Priority   uint32
	Locality   string
	Metadata   map[string]string
}

// FromConfig returns the state of a cluster from its configuration alone. A host is down only if
// its configured health is not HostHealthy.
func FromConfig(c *config.Cluster) *Upstream {
	u := &Upstream{Config: c}
	for i := range c.Hosts {
		h := &c.Hosts[i]
		host := UpstreamHost{Address: h.Address, Weight: h.Weight, Priority: h.Priority, Metadata: h.Metadata}
		if l := h.Locality; l != (config.Locality{}) {
			host.Locality = l.Region + "/" + l.Zone + "/" + l.SubZone
		}
		if h.Health != config.HostHealthy {
			host.DownReason = h.Health.String()
		}
		u.Hosts = append(u.Hosts, host)
	}
	return u
}

// describeCluster describes the named cluster and which of its hosts may receive x with these
// labels; x is nil for a connection. The load balancing policy chooses among these candidates.
// describeCluster ignores how requests are distributed among priorities and localities: only the
// first priority with a usable host has candidates.
func describeCluster(upstreams Upstreams, name string, percent float64, labels map[string]string, x *exchange) Cluster {
	c := Cluster{Name: name, Percent: percent}
	u := upstreams(name)
	if u == nil {
		c.Missing = true
		return c
	}
	c.Policy = string(u.Config.LBPolicy)
	mismatch := func(*UpstreamHost) string { return "" }
	if len(u.Config.Subsets.Selectors) > 0 {
		c.Labels = labels
		mismatch = u.subsetFilter(labels)
	}
	if u.Config.HostRules != nil {
		mismatch = u.withRules(mismatch, labels, x)
	}
	priority := u.selectPriority(mismatch)
	for i := range u.Hosts {
		h := &u.Hosts[i]
		host := Host{Address: h.Address, Weight: h.Weight, Priority: h.Priority, Locality: h.Locality}
		if reason := mismatch(h); reason != "" {
			host.Reasons = append(host.Reasons, reason)
		}
		if h.DownReason != "" && !u.Panic {
			host.Reasons = append(host.Reasons, "it is down: "+h.DownReason)
		}
		if h.Priority > priority {
			host.Reasons = append(host.Reasons, fmt.Sprintf("priority %d is used only when the hosts of earlier priorities fail", h.Priority))
		}
		host.Candidate = len(host.Reasons) == 0
		c.Hosts = append(c.Hosts, host)
	}
	return c
}

// selectPriority returns the first priority with a usable host, or the last priority if no host is
// usable. A usable host is up, and mismatch returns "" for it.
func (u *Upstream) selectPriority(mismatch func(*UpstreamHost) string) uint32 {
	found, best, last := false, uint32(0), uint32(0)
	for i := range u.Hosts {
		h := &u.Hosts[i]
		last = max(last, h.Priority)
		if (h.DownReason == "" || u.Panic) && mismatch(h) == "" && (!found || h.Priority < best) {
			found, best = true, h.Priority
		}
	}
	if !found {
		return last
	}
	return best
}

// subsetFilter returns a function that returns why a host is not in the subset for labels, or "" if
// the host is in the subset.
func (u *Upstream) subsetFilter(labels map[string]string) func(*UpstreamHost) string {
	names := slices.Sorted(maps.Keys(labels))
	exists := len(names) > 0 && slices.ContainsFunc(u.Config.Subsets.Selectors, func(s []string) bool {
		return slices.Equal(slices.Compact(slices.Sorted(slices.Values(s))), names)
	}) && slices.ContainsFunc(u.Hosts, func(h UpstreamHost) bool { return missingLabel(&h, labels) == "" })
	switch {
	case exists:
		return func(h *UpstreamHost) string { return missingLabel(h, labels) }
	case u.Config.Subsets.Fallback == config.AnyEndpoint:
		return func(*UpstreamHost) string { return "" }
	case u.Config.Subsets.Fallback == config.DefaultSubset:
		return func(h *UpstreamHost) string { return missingLabel(h, u.Config.Subsets.Default) }
	}
	return func(*UpstreamHost) string { return "no subset has the labels of the request, and there is no fallback" }
}

// missingLabel describes the first label that a host does not have. It returns "" if the host has
// all labels.
func missingLabel(h *UpstreamHost, labels map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if value, ok := h.Metadata[name]; !ok || value != labels[name] {
			return fmt.Sprintf("it does not have the label %s=%s", name, labels[name])
		}
	}
	return ""
}

// withRules extends mismatch with the rules of the cluster that exclude a host for x.
func (u *Upstream) withRules(mismatch func(*UpstreamHost) string, labels map[string]string, x *exchange) func(*UpstreamHost) string {
	chain := u.Config.HostRules.Chain(labels)
	allowed := config.NewHostSet(chain.Len())
	if x != nil {
		chain.Select(x, allowed)
	}
	return func(h *UpstreamHost) string {
		if reason := mismatch(h); reason != "" || chain.Allows(allowed, &config.Host{Address: h.Address, Metadata: h.Metadata}) {
			return reason
		}
		return "the rules of the cluster exclude it for the request"
	}
}
