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
	all       config.HostSet // the initial set if tags are ignored
	size      int
	tags      *tagSets // nil: tags are ignored
	steps     []step
	rejectAll bool // reject every call
}

// step is a condition, evaluated for the providers of a chain. If it is strict, or if an allowed
// provider is in matched, it removes the allowed providers that are not in remaining.
type step struct {
	requests           []request // all must match; none: the step is for all calls
	matched, remaining config.HostSet
	strict             bool
}

// request is a condition on a call.
type request struct {
	keyMatch

	attachment string // "": an argument is compared
	argument   int
}

// matches reports whether a call meets the condition. A missing argument meets only a condition
// without "=" values. A missing attachment meets no condition.
func (r *request) matches(call config.Call) bool {
	if r.attachment != "" {
		text, there := call.Attachment(r.attachment)
		return r.keyMatch.matches(text, there, nil)
	}
	text, there := call.Argument(r.argument)
	if !there {
		return len(r.is) == 0
	}
	return r.keyMatch.matches(text, true, nil)
}

// ChainFor returns the chain for calls of a consumer to providers. own is the consumer's own tag.
// The chain evaluates tags only if tagged is true.
func (r *Routers) ChainFor(consumer registry.URL, own Tag, tagged bool, providers []registry.URL) *RouterChain {
	c := &RouterChain{size: len(providers), all: config.NewHostSet(len(providers)), rejectAll: r.rejectAll}
	for i := range providers {
		c.all.Add(i)
	}
	if tagged {
		c.tags = r.tagSets(own, providers)
	}
	for i := range r.conditions {
		if one := &r.conditions[i]; one.appliesTo(consumer) {
			c.steps = append(c.steps, one.step(providers, consumer))
		}
	}
	return c
}

// appliesTo reports whether the condition applies to calls of a consumer.
func (c *conditionRule) appliesTo(consumer registry.URL) bool {
	for i := range c.when {
		text, there := urlValue(consumer, c.when[i].key)
		if !c.when[i].matches(text, there, nil) {
			return false
		}
	}
	return true
}

func (c *conditionRule) step(providers []registry.URL, consumer registry.URL) step {
	s := step{requests: c.requests, strict: c.denies || c.force, matched: config.NewHostSet(len(providers)), remaining: config.NewHostSet(len(providers))}
	mine := c.application == "" || c.application == consumer.Get(keyApplication)
	for i, u := range providers {
		switch {
		case !mine && c.application != u.Get(keyApplication):
			s.remaining.Add(i)
		case !c.denies && c.matchesProvider(u, &consumer):
			s.matched.Add(i)
			s.remaining.Add(i)
		}
	}
	return s
}

func (c *conditionRule) matchesProvider(u registry.URL, consumer *registry.URL) bool {
	for i := range c.then {
		text, there := urlValue(u, c.then[i].key)
		if !c.then[i].matches(text, there, consumer) {
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
		copy(allowed, c.all)
	}
	for i := range c.steps {
		if s := &c.steps[i]; s.appliesTo(call) {
			s.apply(allowed)
		}
	}
}

func (s *step) appliesTo(call config.Call) bool {
	for i := range s.requests {
		if !s.requests[i].matches(call) {
			return false
		}
	}
	return true
}

func (s *step) apply(allowed config.HostSet) {
	if s.strict || allowed.Intersects(s.matched) {
		allowed.Intersect(s.remaining)
	}
}

// Outcomes returns all sets that Select can return, without duplicates; the caller may modify them.
// ok is false if there may be more than most.
func (c *RouterChain) Outcomes(most int) (all []config.HostSet, ok bool) {
	u := distinctSets{seen: map[string]bool{}}
	c.initialSets(&u, most)
	for i := range c.steps {
		if s := &c.steps[i]; len(u.all) <= most {
			u = s.outcomes(u.all)
		}
	}
	return u.all, len(u.all) <= most
}

// initialSets adds the sets that Select can begin with.
func (c *RouterChain) initialSets(u *distinctSets, most int) {
	switch {
	case c.rejectAll:
		u.add(config.NewHostSet(c.size))
	case c.tags == nil:
		u.add(slices.Clone(c.all))
	default:
		for _, force := range []bool{c.tags.own.Force, true} {
			for name := range c.tags.byTag {
				if len(u.all) <= most {
					u.add(c.tags.outcome(name, force, c.size))
				}
			}
		}
		u.add(c.tags.outcome(c.tags.own.Name, c.tags.own.Force, c.size))
		if !c.tags.own.Force {
			u.add(slices.Clone(c.tags.untagged))
		}
		u.add(config.NewHostSet(c.size)) // no provider has the tag, and force is set
	}
}

func (t *tagSets) outcome(name string, force bool, size int) config.HostSet {
	allowed := config.NewHostSet(size)
	t.selectTag(name, force, allowed)
	return allowed
}

// outcomes returns the sets that a step makes of other sets. A step with request conditions leaves
// a set unchanged for calls that do not match.
func (s *step) outcomes(of []config.HostSet) distinctSets {
	u := distinctSets{seen: make(map[string]bool, len(of))}
	for _, set := range of {
		if len(s.requests) > 0 {
			u.add(set)
		}
		allowed := slices.Clone(set)
		s.apply(allowed)
		u.add(allowed)
	}
	return u
}

// distinctSets is a list of distinct sets.
type distinctSets struct {
	all  []config.HostSet
	seen map[string]bool
}

func (u *distinctSets) add(set config.HostSet) {
	key := make([]byte, 0, 8*len(set))
	for _, word := range set {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	if !u.seen[string(key)] {
		u.seen[string(key)] = true
		u.all = append(u.all, set)
	}
}
