package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/rules"
	"github.com/weft-proxy/weft/pkg/registry"
)

// candidates are the providers that may get the calls of a route target before rules and weights
// apply. Rules and weights consider only these providers, because a Dubbo consumer has no others.
type candidates struct {
	members []int // indexes of the providers
	urls    []registry.URL

	chain    *hostChain
	outcomes [][]int // the provider sets that chain may return; if there are too many, all members
	constant bool    // chain returns the same providers, outcomes[0], for all calls
}

// hostChain combines the rules and weights of candidates. It implements config.HostChain. Its host
// sets contain indexes of candidates.members.
type hostChain struct {
	rules    *rules.RouterChain
	weighted config.HostSet  // members with a weight
	spans    map[string]span // by address
}

// span is the range of members at one address: from is included, to is not.
type span struct{ from, to int }

// maxOutcomes is the maximum number of provider sets in the search for providers that never get
// calls. If a chain may return more, Weft assumes that all its members get calls.
const maxOutcomes = 64

// labelAddress is a label of hosts in clusters with rules: their address in the registry, before
// name resolution.
const labelAddress = "weft.address"

// buildChains creates the chains of the candidates, and marks providers that never get calls.
func (p *providers) buildChains(ref Reference, routers []registry.URL, candidateSets []candidates, warn *warnings) {
	parsed := rules.ReadRouters(routers, warn.add)
	consumerTag := rules.TagOf(ref.Parameters)
	p.hasTags = ref.Tagged || consumerTag.Name != "" || parsed.HaveTags(p.usableURLs())
	for i := range candidateSets {
		a := &candidateSets[i]
		a.chain = &hostChain{rules: parsed.ChainFor(ref.Consumer, consumerTag, p.hasTags, a.urls), weighted: config.NewHostSet(len(a.members)), spans: map[string]span{}}
		for index, member := range a.members {
			if p.list[member].Weight > 0 {
				a.chain.weighted.Add(index)
			}
			address := a.urls[index].Address()
			addressSpan, ok := a.chain.spans[address]
			if !ok {
				addressSpan.from = index
			}
			a.chain.spans[address] = span{addressSpan.from, index + 1}
		}
		p.findOutcomes(a)
	}
	p.markUnused(candidateSets)
}

// findOutcomes computes the provider sets that the chain of a can return.
func (p *providers) findOutcomes(a *candidates) {
	sets, ok := a.chain.rules.Outcomes(maxOutcomes)
	if !ok {
		a.outcomes = [][]int{a.members}
		return
	}
	for _, set := range sets {
		a.chain.keepWeighted(set)
		var allowed []int
		for index, member := range a.members {
			if set.Has(index) {
				allowed = append(allowed, member)
			}
		}
		if !slices.ContainsFunc(a.outcomes, func(other []int) bool { return slices.Equal(allowed, other) }) {
			a.outcomes = append(a.outcomes, allowed)
		}
	}
	a.constant = len(a.outcomes) == 1
}

// markUnused marks members that never get calls.
func (p *providers) markUnused(candidateSets []candidates) {
	called := make([]bool, len(p.list))
	for _, a := range candidateSets {
		for _, allowed := range a.outcomes {
			for _, i := range allowed {
				called[i] = true
			}
		}
	}
	for _, a := range candidateSets {
		for _, i := range a.members {
			switch provider := &p.list[i]; {
			case called[i] || provider.UnusedReason != "":
			case provider.Weight == 0:
				provider.UnusedReason = "its weight is 0"
			default:
				provider.UnusedReason = "routing rules exclude it from all calls"
			}
		}
	}
}

// routersOf returns the routers of all registries, without duplicates.
func routersOf(snapshots []RegistrySnapshot) (routers []registry.URL) {
	if len(snapshots) == 1 {
		return snapshots[0].Snapshot.Routers
	}
	seen := map[string]bool{}
	for _, snapshot := range snapshots {
		for _, u := range snapshot.Snapshot.Routers {
			if text := u.String(); !seen[text] {
				seen[text] = true
				routers = append(routers, u)
			}
		}
	}
	return routers
}

// Len implements config.HostChain.
func (c *hostChain) Len() int { return c.rules.Len() }

// Select implements config.HostChain.
func (c *hostChain) Select(call config.Call, allowed config.HostSet) {
	c.rules.Select(call, allowed)
	c.keepWeighted(allowed)
}

// keepWeighted removes providers without weight. If no provider has weight, all share the calls, as
// in Dubbo.
func (c *hostChain) keepWeighted(allowed config.HostSet) {
	if allowed.Intersects(c.weighted) {
		allowed.Intersect(c.weighted)
	}
}

// Allows implements config.HostChain: a host stands for every provider at its address.
func (c *hostChain) Allows(allowed config.HostSet, h *config.Host) bool {
	members := c.spans[h.Metadata[labelAddress]]
	for i := members.from; i < members.to; i++ {
		if allowed.Has(i) {
			return true
		}
	}
	return false
}

// hostRules contains the chains of a cluster's route targets. It implements config.HostRules.
type hostRules struct {
	chains     map[string]*hostChain // the keys are from labelKey
	emptyChain *hostChain
}

// Chain implements config.HostRules.
func (r *hostRules) Chain(labels map[string]string) config.HostChain {
	if c := r.chains[labelKey(labels)]; c != nil {
		return c
	}
	return r.emptyChain
}

// labelKey returns a map key that identifies labels.
func labelKey(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%q=%q ", name, labels[name])
	}
	return b.String()
}

// rulesOf returns the rules of a cluster, or nil if every call of each of its route targets may go
// to all hosts with the labels of the target.
func (p *providers) rulesOf(cluster string, targets []routeTarget) config.HostRules {
	hr := &hostRules{chains: map[string]*hostChain{}, emptyChain: &hostChain{rules: (&rules.Routers{}).ChainFor(registry.URL{}, rules.Tag{}, false, nil)}}
	needed := false
	for i := range targets {
		t := &targets[i]
		if t.cluster != cluster {
			continue
		}
		a := t.candidates
		hr.chains[labelKey(t.labels)] = a.chain
		needed = needed || !a.constant || len(a.members) > 0 && len(a.outcomes[0]) == 0 || p.excludesAll(t, a.outcomes[0])
	}
	if !needed {
		return nil
	}
	return hr
}
