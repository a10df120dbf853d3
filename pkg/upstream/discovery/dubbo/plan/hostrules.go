package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/rules"
)

// candidates is the providers that may get the calls of a lane before rules and weights apply.
// Rules fall back to them, and weights are shared among them: a Dubbo consumer knows no other
// providers.
type candidates struct {
	members []int // of the providers
	urls    []registry.URL

	chain    *hostChain
	outcomes [][]int // of the providers, who the chain may leave; of too many those who can be called
	settled  bool    // outcomes is all, and there is one: whatever is called
}

// hostChain is the rules and weights of an audience. It implements config.HostChain: its
// candidates are the members.
type hostChain struct {
	rules  *rules.RouterChain
	heavy  config.HostSet // who has a weight
	places map[string]span
}

// span is the members at an address, from one to before another.
type span struct{ from, to int }

// mostOutcomes bounds the search for who gets no calls, whatever is called.
const mostOutcomes = 64

// labelAddress is a label of hosts of clusters with rules: what their address was in the
// registry, before a name was resolved.
const labelAddress = "weft.address"

// choose makes the chains of audiences, and finds out who is not called, whatever is
// called.
func (p *providers) choose(w Reference, routers []registry.URL, audiences []candidates, n *warnings) {
	all := rules.ReadRouters(routers, n.add)
	own := rules.TagOf(w.Parameters)
	p.tagged = w.Tagged || own.Name != "" || all.HaveTags(p.usable())
	for i := range audiences {
		a := &audiences[i]
		a.chain = &hostChain{rules: all.ChainFor(w.Consumer, own, p.tagged, a.urls), heavy: config.NewHostSet(len(a.members)), places: map[string]span{}}
		for at, member := range a.members {
			if p.all[member].Weight > 0 {
				a.chain.heavy.Add(at)
			}
			address := a.urls[at].Address()
			place, ok := a.chain.places[address]
			if !ok {
				place.from = at
			}
			a.chain.places[address] = span{place.from, at + 1}
		}
		p.findOutcomes(a)
	}
	p.markUnused(audiences)
}

// findOutcomes finds out which sets of an audience the chain can return.
func (p *providers) findOutcomes(a *candidates) {
	sets, ok := a.chain.rules.Outcomes(mostOutcomes)
	if !ok {
		a.outcomes = [][]int{a.members}
		return
	}
	for _, set := range sets {
		a.chain.weigh(set)
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
	a.settled = len(a.outcomes) == 1
}

// markUnused notes who gets no calls, though an audience has it.
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
			case called[i] || one.Unused != "":
			case one.Weight == 0:
				one.Unused = "its weight is 0"
			default:
				one.Unused = "rules have no calls go to it"
			}
		}
	}
}

// routersOf returns the routers of all registries; what two of them say counts once.
func routersOf(lists []RegistrySnapshot) (all []registry.URL) {
	if len(lists) == 1 {
		return lists[0].View.Routers
	}
	seen := map[string]bool{}
	for _, list := range lists {
		for _, u := range list.View.Routers {
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
	c.weigh(allowed)
}

// weigh removes those that have no weight; if nobody has any they share, as in Dubbo.
func (c *hostChain) weigh(allowed config.HostSet) {
	if allowed.Meets(c.heavy) {
		allowed.Keep(c.heavy)
	}
}

// Has implements config.HostChain: a host is everybody who is at its address.
func (c *hostChain) Has(allowed config.HostSet, h *config.Host) bool {
	place := c.places[h.Metadata[labelAddress]]
	for i := place.from; i < place.to; i++ {
		if allowed.Has(i) {
			return true
		}
	}
	return false
}

// hostRules are the chains of a cluster's lanes. It implements config.HostRules.
type hostRules struct {
	chains map[string]*hostChain // by the labels of the lanes; see labelKey
	nobody *hostChain
}

// Chain implements config.HostRules.
func (r *hostRules) Chain(labels map[string]string) config.HostChain {
	if c := r.chains[labelKey(labels)]; c != nil {
		return c
	}
	return r.nobody
}

// labelKey tells labels from others.
func labelKey(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%q=%q ", name, labels[name])
	}
	return b.String()
}

// rulesOf returns the rules of a cluster; nil: whatever is called, calls of each of its lanes
// may go to all hosts that have the lane's labels.
func (p *providers) rulesOf(cluster string, lanes []routeTarget) config.HostRules {
	all := &hostRules{chains: map[string]*hostChain{}, nobody: &hostChain{rules: (&rules.Routers{}).ChainFor(registry.URL{}, rules.Tag{}, false, nil)}}
	needed := false
	for i := range lanes {
		l := &lanes[i]
		if l.cluster != cluster {
			continue
		}
		a := l.audience
		all.chains[labelKey(l.labels)] = a.chain
		needed = needed || !a.settled || len(a.members) > 0 && len(a.outcomes[0]) == 0 || p.excludesAll(l, a.outcomes[0])
	}
	if !needed {
		return nil
	}
	return all
}
