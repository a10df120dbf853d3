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
// apply. Rules fall back to them, and they share the weights: a Dubbo consumer knows no other
// providers.
type candidates struct {
	members []int // indexes of the providers
	urls    []registry.URL

	chain    *hostChain
	outcomes [][]int // the provider sets that chain may return; if there are too many, all members
	constant bool    // outcomes is complete and has one element, whatever the call
}

// hostChain combines the rules and weights of candidates. It implements config.HostChain, and
// indexes the members.
type hostChain struct {
	rules    *rules.RouterChain
	weighted config.HostSet // members with a weight
	spans    map[string]span
}

// span is the range of members at one address: from is included, to is not.
type span struct{ from, to int }

// maxOutcomes bounds the search for providers that never get calls.
const maxOutcomes = 64

// labelAddress is a label of hosts in clusters with rules: their address in the registry, before
// name resolution.
const labelAddress = "weft.address"

// buildChains creates the chains of the candidates, and marks providers that never get calls.
func (p *providers) buildChains(w Reference, routers []registry.URL, audiences []candidates, n *warnings) {
	all := rules.ReadRouters(routers, n.add)
	own := rules.TagOf(w.Parameters)
	p.tagged = w.Tagged || own.Name != "" || all.HaveTags(p.usableURLs())
	for i := range audiences {
		a := &audiences[i]
		a.chain = &hostChain{rules: all.ChainFor(w.Consumer, own, p.tagged, a.urls), weighted: config.NewHostSet(len(a.members)), spans: map[string]span{}}
		for at, member := range a.members {
			if p.all[member].Weight > 0 {
				a.chain.weighted.Add(at)
			}
			address := a.urls[at].Address()
			place, ok := a.chain.spans[address]
			if !ok {
				place.from = at
			}
			a.chain.spans[address] = span{place.from, at + 1}
		}
		p.findOutcomes(a)
	}
	p.markUnused(audiences)
}

// findOutcomes computes the sets that the chain of a can return.
func (p *providers) findOutcomes(a *candidates) {
	sets, ok := a.chain.rules.Outcomes(maxOutcomes)
	if !ok {
		a.outcomes = [][]int{a.members}
		return
	}
	for _, set := range sets {
		a.chain.keepWeighted(set)
		var allowed []int
		for at, member := range a.members {
			if set.Has(at) {
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
func (p *providers) markUnused(audiences []candidates) {
	called := make([]bool, len(p.all))
	for _, a := range audiences {
		for _, allowed := range a.outcomes {
			for _, i := range allowed {
				called[i] = true
			}
		}
	}
	for _, a := range audiences {
		for _, i := range a.members {
			switch one := &p.all[i]; {
			case called[i] || one.UnusedReason != "":
			case one.Weight == 0:
				one.UnusedReason = "its weight is 0"
			default:
				one.UnusedReason = "routing rules exclude it from all calls"
			}
		}
	}
}

// routersOf returns the routers of all registries, without duplicates.
func routersOf(lists []RegistrySnapshot) (all []registry.URL) {
	if len(lists) == 1 {
		return lists[0].Snapshot.Routers
	}
	seen := map[string]bool{}
	for _, list := range lists {
		for _, u := range list.Snapshot.Routers {
			if text := u.String(); !seen[text] {
				seen[text] = true
				all = append(all, u)
			}
		}
	}
	return all
}

// Len implements config.HostChain.
func (c *hostChain) Len() int { return c.rules.Len() }

// Select implements config.HostChain.
func (c *hostChain) Select(call config.Call, allowed config.HostSet) {
	c.rules.Select(call, allowed)
	c.keepWeighted(allowed)
}

// keepWeighted removes providers without weight. If no provider has weight, all share the calls, as in
// Dubbo.
func (c *hostChain) keepWeighted(allowed config.HostSet) {
	if allowed.Intersects(c.weighted) {
		allowed.Intersect(c.weighted)
	}
}

// Allows implements config.HostChain: a host stands for every provider at its address.
func (c *hostChain) Allows(allowed config.HostSet, h *config.Host) bool {
	place := c.spans[h.Metadata[labelAddress]]
	for i := place.from; i < place.to; i++ {
		if allowed.Has(i) {
			return true
		}
	}
	return false
}

// hostRules contains the chains of a cluster's route targets. It implements config.HostRules.
type hostRules struct {
	chains     map[string]*hostChain // by the labels of the route targets; see labelKey
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
func (p *providers) rulesOf(cluster string, lanes []routeTarget) config.HostRules {
	all := &hostRules{chains: map[string]*hostChain{}, emptyChain: &hostChain{rules: (&rules.Routers{}).ChainFor(registry.URL{}, rules.Tag{}, false, nil)}}
	needed := false
	for i := range lanes {
		l := &lanes[i]
		if l.cluster != cluster {
			continue
		}
		a := l.candidates
		all.chains[labelKey(l.labels)] = a.chain
		needed = needed || !a.constant || len(a.members) > 0 && len(a.outcomes[0]) == 0 || p.excludesAll(l, a.outcomes[0])
	}
	if !needed {
		return nil
	}
	return all
}
