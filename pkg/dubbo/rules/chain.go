package rules

import (
	"encoding/binary"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// fieldMethod is the field that contains the method name; see pkg/protocol/xprotocol.
const fieldMethod = "method"

// RouterChain selects the providers that a call of one consumer may go to: first by tags, then by
// each condition in order. It is immutable and safe for concurrent use.
type RouterChain struct {
	providers config.HostSet // all providers: the initial set if tags are ignored
	size      int
	tags      *tagSets // nil: tags are ignored
	steps     []step
	rejectAll bool // reject every call
}

// step is a condition, evaluated for the providers of a chain. If the step is strict, or
// matchedProviders contains an allowed provider, the step removes the allowed providers that are
// not in remainingProviders.
type step struct {
	requestMatches                       []requestMatch // all must match; none: the step is for all calls
	matchedProviders, remainingProviders config.HostSet
	strict                               bool
}

// requestMatch is a condition on a call.
type requestMatch struct {
	keyMatch

	attachment string // "": an argument is compared
	argument   int
}

// matches reports whether a call meets the condition. A missing argument meets only a condition
// without "=" values. A missing attachment meets no condition.
func (r *requestMatch) matches(call config.Call) bool {
	if r.attachment != "" {
		text, exists := call.Attachment(r.attachment)
		return r.keyMatch.matches(text, exists, nil)
	}
	text, exists := call.Argument(r.argument)
	if !exists {
		return len(r.equals) == 0
	}
	return r.keyMatch.matches(text, true, nil)
}

// ChainFor returns the chain for calls of a consumer to providers. consumerTag is the tag that the
// consumer configures. The chain evaluates tags only if tagged is true.
func (r *Routers) ChainFor(consumer registry.URL, consumerTag Tag, tagged bool, providers []registry.URL) *RouterChain {
	c := &RouterChain{size: len(providers), providers: config.NewHostSet(len(providers)), rejectAll: r.rejectAll}
	for i := range providers {
		c.providers.Add(i)
	}
	if tagged {
		c.tags = r.tagSets(consumerTag, providers)
	}
	for i := range r.conditions {
		if condition := &r.conditions[i]; condition.appliesTo(consumer) {
			c.steps = append(c.steps, condition.step(providers, consumer))
		}
	}
	return c
}

// appliesTo reports whether the condition applies to calls of a consumer.
func (c *conditionRule) appliesTo(consumer registry.URL) bool {
	for i := range c.when {
		text, exists := urlValue(consumer, c.when[i].key)
		if !c.when[i].matches(text, exists, nil) {
			return false
		}
	}
	return true
}

func (c *conditionRule) step(providers []registry.URL, consumer registry.URL) step {
	s := step{requestMatches: c.requestMatches, strict: c.denies || c.force, matchedProviders: config.NewHostSet(len(providers)), remainingProviders: config.NewHostSet(len(providers))}
	consumerMatches := c.application == "" || c.application == consumer.Get(keyApplication)
	for i, u := range providers {
		switch {
		case !consumerMatches && c.application != u.Get(keyApplication):
			s.remainingProviders.Add(i)
		case !c.denies && c.matchesProvider(u, &consumer):
			s.matchedProviders.Add(i)
			s.remainingProviders.Add(i)
		}
	}
	return s
}

func (c *conditionRule) matchesProvider(u registry.URL, consumer *registry.URL) bool {
	for i := range c.then {
		text, exists := urlValue(u, c.then[i].key)
		if !c.then[i].matches(text, exists, consumer) {
			return false
		}
	}
	return true
}

// Len returns the number of providers.
func (c *RouterChain) Len() int { return c.size }

// Select sets allowed to the providers that a call may go to.
func (c *RouterChain) Select(call config.Call, allowed config.HostSet) {
	switch {
	case c.rejectAll:
		clear(allowed)
		return
	case c.tags != nil:
		c.tags.selectInto(call, allowed)
	default:
		copy(allowed, c.providers)
	}
	for i := range c.steps {
		if s := &c.steps[i]; s.appliesTo(call) {
			s.apply(allowed)
		}
	}
}

func (s *step) appliesTo(call config.Call) bool {
	for i := range s.requestMatches {
		if !s.requestMatches[i].matches(call) {
			return false
		}
	}
	return true
}

func (s *step) apply(allowed config.HostSet) {
	if s.strict || allowed.Intersects(s.matchedProviders) {
		allowed.Intersect(s.remainingProviders)
	}
}

// Outcomes returns all sets that Select can return, without duplicates, and perhaps others; the
// caller may modify them. ok is false if there are more than limit; outcomes is then incomplete.
func (c *RouterChain) Outcomes(limit int) (outcomes []config.HostSet, ok bool) {
	sets := distinctSets{seen: map[string]bool{}}
	c.initialSets(&sets, limit)
	for i := range c.steps {
		if s := &c.steps[i]; len(sets.sets) <= limit {
			sets = s.outcomes(sets.sets)
		}
	}
	return sets.sets, len(sets.sets) <= limit
}

// initialSets adds the sets that Select can begin with.
func (c *RouterChain) initialSets(sets *distinctSets, limit int) {
	switch {
	case c.rejectAll:
		sets.add(config.NewHostSet(c.size))
	case c.tags == nil:
		sets.add(slices.Clone(c.providers))
	default:
		for _, force := range []bool{c.tags.consumerTag.Force, true} {
			for name := range c.tags.byTag {
				if len(sets.sets) <= limit {
					sets.add(c.tags.outcome(name, force, c.size))
				}
			}
		}
		sets.add(c.tags.outcome(c.tags.consumerTag.Name, c.tags.consumerTag.Force, c.size))
		if !c.tags.consumerTag.Force {
			sets.add(slices.Clone(c.tags.untagged))
		}
		sets.add(config.NewHostSet(c.size)) // no provider has the tag, and force is set
	}
}

func (t *tagSets) outcome(name string, force bool, size int) config.HostSet {
	allowed := config.NewHostSet(size)
	t.selectTag(name, force, allowed)
	return allowed
}

// outcomes returns the sets that a step can return for sets. A step with request conditions leaves
// a set unchanged for calls that do not match.
func (s *step) outcomes(sets []config.HostSet) distinctSets {
	result := distinctSets{seen: make(map[string]bool, len(sets))}
	for _, set := range sets {
		if len(s.requestMatches) > 0 {
			result.add(set)
		}
		allowed := slices.Clone(set)
		s.apply(allowed)
		result.add(allowed)
	}
	return result
}

// distinctSets is a list of distinct sets.
type distinctSets struct {
	sets []config.HostSet
	seen map[string]bool
}

func (d *distinctSets) add(set config.HostSet) {
	key := make([]byte, 0, 8*len(set))
	for _, bits := range set {
		key = binary.LittleEndian.AppendUint64(key, bits)
	}
	if !d.seen[string(key)] {
		d.seen[string(key)] = true
		d.sets = append(d.sets, set)
	}
}
