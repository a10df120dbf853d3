package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
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
		rule.tags = append(rule.tags, t)
	}
	if r.tags = append(r.tags, rule); len(r.tags) > MostTagRules || len(rule.tags) > MostTagRules {
		r.refuse(u, warn, fmt.Sprintf("there are more than %d tag rules, or tags of one", MostTagRules))
	}
}

func (t *tag) has(u registry.URL) bool {
	if len(t.addresses) > 0 {
		return isAddressed(t.addresses, u.Host, u.Port)
	}
	return len(t.match) > 0 && !slices.ContainsFunc(t.match, func(m parameterMatch) bool { return !m.holds(u) })
}

// tagSets are the providers that calls go to by their tags.
type tagSets struct {
	own      Tag
	holders  map[string]holders // by tag
	untagged config.HostSet
}

// holders are the providers that have a tag.
type holders struct {
	members []int32
	force   bool // calls go to no other provider, even if they allow it
}

// Tag is the tag that a consumer's own parameters ask for.
type Tag struct {
	Name  string // "": none
	Force bool   // of every call, whatever its tag
}

// TagOf reads the tag from a consumer's parameters.
func TagOf(parameters map[string]string) Tag {
	return Tag{parameters[KeyTag], parameters[KeyForceTag] == "true"}
}

// selectInto makes allowed those who get a call by its tag: those that have it, else, unless
// that is forced, those without any. Calls without a tag go to those without any.
func (t *tagSets) selectInto(call config.Call, allowed config.HostSet) {
	name, _ := call.Attachment(KeyTag)
	force := t.own.Force
	if name == "" {
		name = t.own.Name
	} else if !force {
		text, _ := call.Attachment(KeyForceTag)
		force = strings.EqualFold(text, "true")
	}
	t.holdersOf(name, force, allowed)
}

func (t *tagSets) holdersOf(name string, force bool, allowed config.HostSet) {
	h := t.holders[name]
	if name == "" || len(h.members) == 0 && !force && !h.force {
		copy(allowed, t.untagged)
		return
	}
	clear(allowed)
	for _, i := range h.members {
		allowed.Add(int(i))
	}
}

// HaveTags reports whether some of the providers have tags, of their own or by rules, or a
// rule of their application has tags that no provider holds.
func (r *Routers) HaveTags(providers []registry.URL) bool {
	of := r.rulesByApplication()
	return slices.ContainsFunc(providers, func(u registry.URL) bool {
		rule := of[u.Get(keyApplication)]
		return u.Get(KeyTag) != "" || rule != nil && len(rule.tags) > 0
	})
}

// rulesByApplication returns the rule of each application: the first, if there are several.
func (r *Routers) rulesByApplication() map[string]*tagRule {
	all := make(map[string]*tagRule, len(r.tags))
	for i := range r.tags {
		if rule := &r.tags[i]; all[rule.application] == nil {
			all[rule.application] = rule
		}
	}
	return all
}

// tagSets finds out who has which tag. A tag that a rule sets is whose the rule says; any
// other is whose providers say it.
func (r *Routers) tagSets(own Tag, providers []registry.URL) *tagSets {
	t := &tagSets{own: own, holders: map[string]holders{}, untagged: config.NewHostSet(len(providers))}
	of := r.rulesByApplication()
	set := map[*tagRule]map[string]bool{} // the tags that rules set for these providers
	for _, u := range providers {
		rule := of[u.Get(keyApplication)]
		if rule == nil {
			continue
		}
		if set[rule] == nil {
			set[rule] = map[string]bool{}
		}
		for i := range rule.tags {
			if one := &rule.tags[i]; !set[rule][one.name] && (len(one.addresses) > 0 || one.has(u)) {
				set[rule][one.name] = true
			}
		}
	}
	for i, u := range providers {
		name, rule := u.Get(KeyTag), of[u.Get(keyApplication)]
		tagged := name != ""
		if tagged && !set[rule][name] {
			t.add(name, i)
		}
		if rule != nil {
			for j := range rule.tags {
				if one := &rule.tags[j]; one.has(u) {
					tagged = true
					t.add(one.name, i)
				}
			}
		}
		if !tagged {
			t.untagged.Add(i)
		}
	}
	for rule, names := range set {
		for name := range names {
			h := t.holders[name]
			h.force = h.force || rule.force
			t.holders[name] = h
		}
	}
	return t
}

// add takes in that provider i has a tag; providers come in order.
func (t *tagSets) add(name string, i int) {
	h := t.holders[name]
	if n := len(h.members); n == 0 || h.members[n-1] != int32(i) { //nolint:gosec // there are far fewer than 2^31
		h.members = append(h.members, int32(i)) //nolint:gosec // the same
		t.holders[name] = h
	}
}
