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
	set        int          // number of the set of providers; 0: all that are used
}

// Bounds of the choices that rules of a service make: each tag has two, and each rule that
// depends on the request doubles them.
const (
	mostTags    = 32
	mostChoices = 128
)

// label is what hosts of a set have. Sets overlap: each has a label of its own.
func label(set int) string { return fmt.Sprintf("weft.choice.%d", set) }

// labelOfAny is what hosts have of which anything is in a set.
func labelOfAny(set int) string { return fmt.Sprintf("weft.choice.any.%d", set) }

const chosen = "yes" // the value of both

// choose finds out which providers calls go to as routers say, and who is not used by any.
func (p *providers) choose(w Wish, lists []List, n *notes) []choice {
	c := &chooser{wish: w}
	for i := range p.all {
		if p.all[i].Unused == "" {
			c.urls = append(c.urls, p.all[i].URL)
			c.index = append(c.index, i)
		}
	}
	c.routers = rules.ReadRouters(routersOf(lists), n.add)
	c.chain = c.routers.Chain(w.Consumer)
	c.tags = c.routers.Tags(c.urls)
	p.tagged = w.Tagged || len(c.tags) > 0 || w.Parameters[rules.KeyTag] != ""
	if !p.tagged && c.chain.IsEmpty() {
		return []choice{{}}
	}
	if len(c.tags) > mostTags {
		n.add(fmt.Sprintf("there are %d tags: those after %q have no effect", len(c.tags), c.tags[mostTags-1]))
		c.tags = c.tags[:mostTags]
	}
	all := c.all(p.tagged, n)
	if len(c.sets) == 1 { // whatever is called
		all = []choice{{}}
	}
	p.mark(c)
	return all
}

// mark notes which sets each provider is in. One that is in none is not used; where there
// is but one set, all are in it.
func (p *providers) mark(c *chooser) {
	for set, members := range c.sets {
		for _, i := range members {
			one := &p.all[c.index[i]]
			one.Choices = append(one.Choices, set+1)
		}
	}
	for _, at := range c.index {
		switch one := &p.all[at]; {
		case len(one.Choices) == 0:
			one.Unused = "rules have no calls go to it"
		case len(c.sets) == 1:
			one.Choices = nil
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
	wish    Wish
	routers *rules.Routers
	chain   rules.Chain
	tags    []string
	urls    []registry.URL // those that can be used
	index   []int          // of each, where it is in providers.all
	sets    [][]int        // of indexes of urls
}

// number returns the number of a set of providers.
func (c *chooser) number(members []int) int {
	at := slices.IndexFunc(c.sets, func(other []int) bool { return slices.Equal(other, members) })
	if at < 0 {
		at = len(c.sets)
		c.sets = append(c.sets, members)
	}
	return at + 1
}

// all returns the choices: of each tag those for the conditions that hold, the more hold
// the earlier, so that the first that fits is the one of exactly those that do.
func (c *chooser) all(tagged bool, n *notes) (all []choice) {
	tags := []byTag{{left: c.everybody()}}
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
			one.set = c.number(c.chain.Keep(c.urls, tag.left, func(i int) bool { return mask&(1<<i) != 0 }))
			all = append(all, one)
		}
	}
	return all
}

func (c *chooser) everybody() []int {
	left := make([]int, len(c.urls))
	for i := range left {
		left[i] = i
	}
	return left
}

// byTag is which providers are left for calls with a tag.
type byTag struct {
	conditions []config.HeaderMatch
	left       []int
}

// byTags returns the narrower before the wider; the last is for all calls.
func (c *chooser) byTags() (all []byTag) {
	own := c.wish.Parameters[rules.KeyTag]
	always := c.wish.Parameters[rules.KeyForceTag] == "true"
	forced := config.HeaderMatch{Name: rules.KeyForceTag, Is: &config.ValueMatch{Kind: config.ValueExact, Text: "true", IgnoreCase: true}}
	some := config.HeaderMatch{Name: rules.KeyTag, Is: &config.ValueMatch{Kind: config.ValueRegex, Text: "(?s).+"}}
	none := c.routers.Tagged(c.urls, "", false)
	add := func(left []int, conditions ...config.HeaderMatch) {
		all = append(all, byTag{conditions, left})
	}
	for _, name := range c.tags {
		is := config.HeaderMatch{Name: rules.KeyTag, Is: &config.ValueMatch{Kind: config.ValueExact, Text: name}}
		strict, loose := c.routers.Tagged(c.urls, name, true), c.routers.Tagged(c.urls, name, always)
		if !slices.Equal(strict, loose) {
			add(strict, is, forced)
		}
		add(loose, is)
	}
	if always {
		add(nil, some)
	} else {
		add(nil, some, forced)
		if own != "" {
			add(none, some)
		}
	}
	if own != "" {
		none = c.routers.Tagged(c.urls, own, always)
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
