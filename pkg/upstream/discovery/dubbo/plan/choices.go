package plan

import (
	"cmp"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/rules"
)

// choice is which providers calls go to that are as its conditions say. Where rules make
// several they are tried in order; the last has no conditions.
type choice struct {
	conditions []config.HeaderMatch
	arguments  []config.ArgumentMatch
	methods    []rules.Pair // more conditions, on the method
	left       [][]int      // of each audience those who get the calls
}

// Bounds of the choices that rules of a service make: each tag has two, and each rule that
// depends on the request doubles them.
const (
	mostTags    = 32
	mostChoices = 128
)

// label is what hosts of a set have. Sets overlap: each has a label of its own.
func label(set int) string { return fmt.Sprintf("weft.choice.%d", set) }

const chosen = "yes" // the value of it

// audience is who may get the calls of a lane before rules and weights count. As a Dubbo
// consumer knows nobody else, rules fall back, and weights count, among them.
type audience struct {
	members []int // of the providers
	urls    []registry.URL
}

// choose finds out which providers calls of each audience go to as routers and weights say,
// and who is not used by any.
func (p *providers) choose(w Wish, routers []registry.URL, audiences []audience, n *notes) []choice {
	c := &chooser{wish: w, providers: p, audiences: audiences, routers: rules.ReadRouters(routers, n.add)}
	c.chain = c.routers.Chain(w.Consumer)
	c.tags = c.routers.Tags(p.usable())
	p.tagged = w.Tagged || len(c.tags) > 0 || w.Parameters[rules.KeyTag] != ""
	if len(c.tags) > mostTags {
		n.add(fmt.Sprintf("there are %d tags: those after %q have no effect", len(c.tags), c.tags[mostTags-1]))
		c.tags = c.tags[:mostTags]
	}
	all := c.all(p.tagged, n)
	same := func(other choice) bool { return slices.EqualFunc(other.left, all[0].left, slices.Equal) }
	if !slices.ContainsFunc(all, func(one choice) bool { return !same(one) }) { // whatever is called
		return []choice{{left: all[0].left}}
	}
	return all
}

// weighted returns those of who are left after the rules that have a weight; all if nobody has
// any: as in Dubbo they share.
func (p *providers) weighted(left []int) []int {
	light := func(i int) bool { return p.all[i].Weight == 0 }
	if !slices.ContainsFunc(left, light) {
		return left
	}
	if heavy := slices.DeleteFunc(slices.Clone(left), light); len(heavy) > 0 {
		return heavy
	}
	return left
}

// mark notes who gets no calls, though an audience has it.
func (p *providers) mark(audiences []audience, choices []choice) {
	called := make([]bool, len(p.all))
	for _, one := range choices {
		for _, left := range one.left {
			for _, i := range left {
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
func routersOf(lists []List) (all []registry.URL) {
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

type chooser struct {
	wish      Wish
	providers *providers
	audiences []audience
	routers   *rules.Routers
	chain     rules.Chain
	tags      []string
}

// all returns the choices: of each tag those for the conditions that hold, the more hold
// the earlier, so that the first that fits is the one of exactly those that do.
func (c *chooser) all(tagged bool, n *notes) (all []choice) {
	tags := []byTag{{left: c.each(everybody)}}
	if tagged {
		tags = c.byTags()
	}
	requests := c.chain.Requests()
	count := len(requests)
	for count > 0 && len(tags)<<count > mostChoices {
		count--
	}
	if count < len(requests) {
		n.add(fmt.Sprintf("%d conditions depend on the request: those after the first %d have no effect", len(requests), count))
	}
	masks := make([]uint, 1<<count)
	for i := range masks {
		masks[i] = uint(i)
	}
	slices.SortFunc(masks, func(a, b uint) int { return cmp.Or(bits.OnesCount(b)-bits.OnesCount(a), cmp.Compare(a, b)) })
	for _, tag := range tags {
		for _, mask := range masks {
			one := choice{conditions: tag.conditions}
			for i := range count {
				if mask&(1<<i) != 0 {
					one.add(requests[i])
				}
			}
			one.left = make([][]int, len(c.audiences))
			for i, a := range c.audiences {
				kept := c.chain.Keep(a.urls, tag.left[i], func(i int) bool { return mask&(1<<i) != 0 })
				one.left[i] = c.providers.weighted(a.providers(kept))
			}
			all = append(all, one)
		}
	}
	return all
}

// each returns who is left of each audience.
func (c *chooser) each(who func(all []registry.URL) []int) [][]int {
	left := make([][]int, len(c.audiences))
	for i, a := range c.audiences {
		left[i] = who(a.urls)
	}
	return left
}

func everybody(all []registry.URL) []int {
	left := make([]int, len(all))
	for i := range left {
		left[i] = i
	}
	return left
}

// providers returns those of an audience that are left.
func (a *audience) providers(left []int) []int {
	all := make([]int, len(left))
	for i, at := range left {
		all[i] = a.members[at]
	}
	return all
}

// byTag is which providers are left for calls with a tag.
type byTag struct {
	conditions []config.HeaderMatch
	left       [][]int // of each audience, as indexes of it
}

// byTags returns the narrower before the wider; the last is for all calls.
func (c *chooser) byTags() (all []byTag) {
	own := c.wish.Parameters[rules.KeyTag]
	always := c.wish.Parameters[rules.KeyForceTag] == "true"
	forced := config.HeaderMatch{Name: rules.KeyForceTag, Is: &config.ValueMatch{Kind: config.ValueExact, Text: "true", IgnoreCase: true}}
	some := config.HeaderMatch{Name: rules.KeyTag, Is: &config.ValueMatch{Kind: config.ValueRegex, Text: "(?s).+"}}
	tagged := func(name string, force bool) [][]int {
		return c.each(func(all []registry.URL) []int { return c.routers.Tagged(all, name, force) })
	}
	none, nobody := tagged("", false), make([][]int, len(c.audiences))
	add := func(left [][]int, conditions ...config.HeaderMatch) {
		all = append(all, byTag{conditions, left})
	}
	for _, name := range c.tags {
		is := config.HeaderMatch{Name: rules.KeyTag, Is: &config.ValueMatch{Kind: config.ValueExact, Text: name}}
		strict, loose := tagged(name, true), tagged(name, always)
		if !slices.EqualFunc(strict, loose, slices.Equal) {
			add(strict, is, forced)
		}
		add(loose, is)
	}
	if always {
		add(nobody, some)
	} else {
		add(nobody, some, forced)
		if own != "" {
			add(none, some)
		}
	}
	if own != "" {
		none = tagged(own, always)
	}
	add(none)
	return all
}

// add has a choice ask for more.
func (c *choice) add(pairs []rules.Pair) {
	for _, p := range pairs {
		if p.Kind == rules.Method {
			c.methods = append(c.methods, p)
			continue
		}
		for _, is := range comparisons(p) {
			if p.Kind == rules.Argument {
				c.arguments = append(c.arguments, config.ArgumentMatch{Index: p.Index, Is: is})
				continue
			}
			c.conditions = append(slices.Clip(c.conditions), config.HeaderMatch{Name: p.Name, Is: &is})
		}
	}
}

// of returns the conditions on the method; false: a call of the method cannot be meant. For
// "" it is not known which method is called.
func (c *choice) of(method string) (conditions []config.HeaderMatch, can bool) {
	for _, p := range c.methods {
		if method != "" {
			if !p.Holds(method) {
				return nil, false
			}
			continue
		}
		for _, is := range comparisons(p) {
			conditions = append(conditions, config.HeaderMatch{Name: fieldMethod, Is: &is})
		}
	}
	return conditions, true
}

// comparisons returns a pair as comparisons that all have to hold.
func comparisons(p rules.Pair) (all []config.ValueMatch) {
	if len(p.Is) > 0 {
		all = append(all, oneOf(p.Is))
	}
	not := func(patterns []string) {
		is := oneOf(patterns)
		is.Invert, is.MissingIsEmpty = true, p.MissingDiffers()
		all = append(all, is)
	}
	var texts []string
	for _, pattern := range p.Not {
		if _, ok := rules.RangeOf(pattern); ok {
			not([]string{pattern})
		} else {
			texts = append(texts, pattern)
		}
	}
	if len(texts) > 0 {
		not(texts)
	}
	return all
}

// oneOf returns a comparison that holds for values that one of the patterns describes. A
// range is alone; see rules.
func oneOf(patterns []string) config.ValueMatch {
	if r, ok := rules.RangeOf(patterns[0]); ok {
		return config.ValueMatch{Kind: config.ValueRange, From: r.From, To: r.To + 1}
	}
	if len(patterns) == 1 && !strings.Contains(patterns[0], anything) {
		return config.ValueMatch{Kind: config.ValueExact, Text: patterns[0]}
	}
	var b strings.Builder
	b.WriteString("(?s)(?:")
	for i, pattern := range patterns {
		if i > 0 {
			b.WriteByte('|')
		}
		at := strings.LastIndex(pattern, anything)
		if at < 0 {
			b.WriteString(regexp.QuoteMeta(pattern))
			continue
		}
		b.WriteString(regexp.QuoteMeta(pattern[:at]) + ".*" + regexp.QuoteMeta(pattern[at+1:]))
	}
	b.WriteByte(')')
	return config.ValueMatch{Kind: config.ValueRegex, Text: b.String()}
}
