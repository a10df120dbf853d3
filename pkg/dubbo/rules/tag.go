package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// The parameters of consumers and providers, and the attachments of calls, that contain tags.
const (
	KeyTag      = "dubbo.tag"
	KeyForceTag = "dubbo.force.tag"
)

// tagRule assigns tags to providers of an application, in addition to those that the providers set
// themselves.
type tagRule struct {
	application string
	force       bool
	tags        []tag
}

// tag selects the providers at its addresses or, if it has none, the providers that meet all
// conditions of match. If it has neither, or match selects no provider, the rule does not set the
// tag: the providers that set the tag themselves have it.
type tag struct {
	name      string
	addresses []string
	match     []parameterMatch
}

func (r *Routers) readTagDocument(u registry.URL, warn Warn) {
	root, err := readDocument(u)
	if err != nil {
		warn.report(u, err.Error())
		return
	}
	if isDocumentDisabled(root) {
		return
	}
	rule := tagRule{application: u.Path, force: boolOr(root.Get("force"), false)}
	for item := range root.Get("tags").All() {
		t := tag{name: item.Get("name").Text(), addresses: stringList(item.Get("addresses"))}
		match, problem := readParameterMatches(item.Get("match"))
		if t.match = match; t.name == "" {
			problem = "the tag has no name"
		}
		if problem != "" {
			warn.report(u, item.Path()+": "+problem+": the rule has no effect")
			return
		}
		rule.tags = append(rule.tags, t)
	}
	if r.tags = append(r.tags, rule); len(r.tags) > MaxTagRules || len(rule.tags) > MaxTagRules {
		r.setRejectAll(u, warn, fmt.Sprintf("there are more than %d tag rules, or tags of one rule", MaxTagRules))
	}
}

func (t *tag) matches(u registry.URL) bool {
	if len(t.addresses) > 0 {
		return matchesAnyAddress(t.addresses, u.Host, u.Port)
	}
	return len(t.match) > 0 && !slices.ContainsFunc(t.match, func(m parameterMatch) bool { return !m.matches(u) })
}

// tagSets contains the providers by their tags.
type tagSets struct {
	consumerTag Tag
	byTag       map[string]tagMembers // by tag
	untagged    config.HostSet
}

// tagMembers contains the providers that have a tag.
type tagMembers struct {
	members []int32
	force   bool // calls do not fall back to untagged providers, even if the calls allow this
}

// Tag is the tag that a consumer's parameters select for its calls.
type Tag struct {
	Name  string // "": no tag
	Force bool   // no call of the consumer with a tag falls back to untagged providers
}

// TagOf reads the tag from a consumer's parameters.
func TagOf(parameters map[string]string) Tag {
	return Tag{parameters[KeyTag], parameters[KeyForceTag] == "true"}
}

// selectInto sets allowed to the providers that have the tag of a call. If there are none, and the
// tag is not forced, it selects the untagged providers, which also get calls without a tag.
func (t *tagSets) selectInto(call config.Call, allowed config.HostSet) {
	name, _ := call.Attachment(KeyTag)
	force := t.consumerTag.Force
	if name == "" {
		name = t.consumerTag.Name
	} else if !force {
		text, _ := call.Attachment(KeyForceTag)
		force = strings.EqualFold(text, "true")
	}
	t.selectTag(name, force, allowed)
}

func (t *tagSets) selectTag(name string, force bool, allowed config.HostSet) {
	set := t.byTag[name]
	if name == "" || len(set.members) == 0 && !force && !set.force {
		copy(allowed, t.untagged)
		return
	}
	clear(allowed)
	for _, i := range set.members {
		allowed.Add(int(i))
	}
}

// HaveTags reports whether a provider sets a tag itself, or the rule of its application defines
// tags, even tags that no provider has.
func (r *Routers) HaveTags(providers []registry.URL) bool {
	byApplication := r.rulesByApplication()
	return slices.ContainsFunc(providers, func(u registry.URL) bool {
		rule := byApplication[u.Get(keyApplication)]
		return u.Get(KeyTag) != "" || rule != nil && len(rule.tags) > 0
	})
}

// rulesByApplication returns the first rule of each application.
func (r *Routers) rulesByApplication() map[string]*tagRule {
	rules := make(map[string]*tagRule, len(r.tags))
	for i := range r.tags {
		if rule := &r.tags[i]; rules[rule.application] == nil {
			rules[rule.application] = rule
		}
	}
	return rules
}

// tagSets computes which providers have which tag. If a rule sets a tag, only the rule decides
// which providers have the tag; otherwise the providers that set the tag themselves have it.
func (r *Routers) tagSets(consumerTag Tag, providers []registry.URL) *tagSets {
	t := &tagSets{consumerTag: consumerTag, byTag: map[string]tagMembers{}, untagged: config.NewHostSet(len(providers))}
	byApplication := r.rulesByApplication()
	definedTags := map[*tagRule]map[string]bool{} // the tags that rules set for these providers
	for _, u := range providers {
		rule := byApplication[u.Get(keyApplication)]
		if rule == nil {
			continue
		}
		if definedTags[rule] == nil {
			definedTags[rule] = map[string]bool{}
		}
		for i := range rule.tags {
			if ruleTag := &rule.tags[i]; !definedTags[rule][ruleTag.name] && (len(ruleTag.addresses) > 0 || ruleTag.matches(u)) {
				definedTags[rule][ruleTag.name] = true
			}
		}
	}
	for i, u := range providers {
		name, rule := u.Get(KeyTag), byApplication[u.Get(keyApplication)]
		tagged := name != ""
		if tagged && !definedTags[rule][name] {
			t.add(name, i)
		}
		if rule != nil {
			for j := range rule.tags {
				if ruleTag := &rule.tags[j]; ruleTag.matches(u) {
					tagged = true
					t.add(ruleTag.name, i)
				}
			}
		}
		if !tagged {
			t.untagged.Add(i)
		}
	}
	for rule, names := range definedTags {
		for name := range names {
			members := t.byTag[name]
			members.force = members.force || rule.force
			t.byTag[name] = members
		}
	}
	return t
}

// add records that provider i has a tag. The caller adds the providers in order.
func (t *tagSets) add(name string, i int) {
	members := t.byTag[name]
	if n := len(members.members); n == 0 || members.members[n-1] != int32(i) { //nolint:gosec // there are far fewer than 2^31
		members.members = append(members.members, int32(i)) //nolint:gosec // as above
		t.byTag[name] = members
	}
}
