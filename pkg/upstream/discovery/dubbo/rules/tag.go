package rules

import (
	"maps"
	"slices"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// The parameters of consumers and providers, and attachments of calls, that tags are in.
const (
	KeyTag      = "dubbo.tag"
	KeyForceTag = "dubbo.force.tag"
)

// tagRule says which providers of an application have which tags, beside those that they
// name themselves.
type tagRule struct {
	application string
	force       bool
	tags        []tag
}

// tag is a set of providers: those with the addresses, else those for which all of match
// hold. A tag that is said to be neither's, or whose match holds for nobody, is not set:
// it is whose providers say so themselves.
type tag struct {
	name      string
	addresses []string
	match     []parameterMatch
}

func (r *Routers) readTagDocument(u registry.URL, warn Warn) {
	root, err := readDocument(u)
	if err != nil {
		warn.about(u, err.Error())
		return
	}
	if isDocumentOff(root) {
		return
	}
	rule := tagRule{application: u.Path, force: flag(root.Get("force"), false)}
	for one := range root.Get("tags").All() {
		t := tag{name: one.Get("name").Text(), addresses: texts(one.Get("addresses"))}
		match, problem := readParameterMatches(one.Get("match"))
		if t.match = match; t.name == "" {
			problem = "it has no name"
		}
		if problem != "" {
			warn.about(u, one.Path()+": "+problem+": the rule has no effect")
			return
		}
		if rule.tags = append(rule.tags, t); len(rule.tags) > MostRules {
			warn.about(u, "it has too many tags: the rule has no effect")
			return
		}
	}
	r.tags = append(r.tags, rule)
}

func (t *tag) has(u registry.URL) bool {
	if len(t.addresses) > 0 {
		return isAddressed(t.addresses, u.Host, u.Port)
	}
	return len(t.match) > 0 && !slices.ContainsFunc(t.match, func(m parameterMatch) bool { return !m.holds(u) })
}

// sets reports whether a rule sets a tag for some of the providers.
func (r *tagRule) sets(name string, providers []registry.URL) bool {
	for i := range r.tags {
		t := &r.tags[i]
		if t.name != name {
			continue
		}
		if len(t.addresses) > 0 || slices.ContainsFunc(providers, func(u registry.URL) bool {
			return u.Get(keyApplication) == r.application && t.has(u)
		}) {
			return true
		}
	}
	return false
}

// ruleOf returns the rule of a provider's application; nil: there is none.
func (r *Routers) ruleOf(u registry.URL) *tagRule {
	application := u.Get(keyApplication)
	for i := range r.tags {
		if r.tags[i].application == application {
			return &r.tags[i]
		}
	}
	return nil
}

// Tags returns the tags that providers have, by themselves or by rules, and those that a
// rule has for nobody.
func (r *Routers) Tags(providers []registry.URL) []string {
	names := map[string]struct{}{}
	for _, u := range providers {
		if name := u.Get(KeyTag); name != "" {
			names[name] = struct{}{}
		}
		if rule := r.ruleOf(u); rule != nil {
			for i := range rule.tags {
				names[rule.tags[i].name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Tagged returns the indexes of the providers that calls with a tag go to: those that have
// it, else, unless that is forced, those without any. Calls without a tag ("") go to those
// without any.
func (r *Routers) Tagged(providers []registry.URL, name string, force bool) (left []int) {
	if name != "" {
		set := map[*tagRule]bool{}
		for i := range r.tags {
			set[&r.tags[i]] = r.tags[i].sets(name, providers)
		}
		for i, u := range providers {
			rule := r.ruleOf(u)
			has := u.Get(KeyTag) == name
			if set[rule] {
				force = force || rule.force
				has = slices.ContainsFunc(rule.tags, func(t tag) bool { return t.name == name && t.has(u) })
			}
			if has {
				left = append(left, i)
			}
		}
		if len(left) > 0 || force {
			return left
		}
	}
	for i, u := range providers {
		if !r.isTagged(u) {
			left = append(left, i)
		}
	}
	return left
}

func (r *Routers) isTagged(u registry.URL) bool {
	if u.Get(KeyTag) != "" {
		return true
	}
	rule := r.ruleOf(u)
	return rule != nil && slices.ContainsFunc(rule.tags, func(t tag) bool { return t.has(u) })
}
