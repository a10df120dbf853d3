package rules

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Routers are the rules that select the providers that a call may go to. They are immutable.
type Routers struct {
	conditions []conditionRule
	tags       []tagRule
	rejectAll  bool // a rule exceeds a bound: reject every call
}

// conditionRule is the parsed form of "when => then".
type conditionRule struct {
	order          int            // orderOfServices, orderOfApplications or orderOfURLs
	priority       int            // among rules of one order
	application    string         // of the consumers or providers; "": any
	when           []keyMatch     // conditions on the consumer; none: always
	requestMatches []requestMatch // conditions of "when" on the request
	then           []keyMatch     // conditions on the provider
	denies         bool           // no provider gets the requests
	force          bool           // no provider gets the requests if none matches
}

// keyMatch contains the conditions on one key.
type keyMatch struct {
	key               string
	equals, notEquals []pattern
}

// pattern matches values: either a text, in which the last "*" matches any text, or an inclusive
// range of numbers.
type pattern struct {
	text     string
	star     int // index in text; -1: none
	isRange  bool
	from, to int64
}

// newPattern parses a pattern. Ranges are "1~10", "1~" and "~10".
func newPattern(text string) (p pattern, ok bool) {
	p = pattern{text: text, star: strings.LastIndexByte(text, '*'), from: math.MinInt32, to: math.MaxInt32}
	from, to, isRange := strings.Cut(text, "~")
	if !isRange {
		return p, true
	}
	p.isRange, ok = true, from != "" || to != ""
	if from != "" && ok {
		p.from, ok = integer(from)
	}
	if to != "" && ok {
		p.to, ok = integer(to)
	}
	return p, ok
}

// matches reports whether a value matches the pattern. "$name" refers to the parameter name of the
// consumer. If consumer is nil, "$name" is literal.
func (p *pattern) matches(value string, consumer *registry.URL) bool {
	switch {
	case p.isRange:
		n, ok := integer(value)
		return ok && p.from <= n && n <= p.to
	case consumer != nil && strings.HasPrefix(p.text, "$"):
		return matchesConsumerParameter(p.text[1:], value, consumer)
	case p.star < 0:
		return value == p.text
	}
	head, tail := p.text[:p.star], p.text[p.star+1:]
	return len(p.text) == 1 || value != "" && len(value) >= len(head)+len(tail) && strings.HasPrefix(value, head) && strings.HasSuffix(value, tail)
}

// integer parses a number like Java's Integer.parseInt. It rejects most texts before ParseInt,
// whose error allocates.
func integer(text string) (n int64, ok bool) {
	const maxLen = len("-2147483648")
	if len(text) > maxLen || strings.Trim(text, "+-0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return n, err == nil
}

// matchesConsumerParameter compares text with a parameter of the consumer, whose value is a glob.
func matchesConsumerParameter(name, text string, consumer *registry.URL) bool {
	pattern, _ := urlValue(*consumer, name)
	return glob(pattern, text)
}

// matches evaluates the conditions like Dubbo 3: "!=" before "=". No condition matches a missing
// value.
func (p *keyMatch) matches(text string, exists bool, consumer *registry.URL) bool {
	if !exists {
		return false
	}
	return !matchesAnyPattern(p.notEquals, text, consumer) && (len(p.equals) == 0 || matchesAnyPattern(p.equals, text, consumer))
}

// matchesAnyPattern reports whether one of the patterns matches text.
func matchesAnyPattern(patterns []pattern, text string, consumer *registry.URL) bool {
	for i := range patterns {
		if patterns[i].matches(text, consumer) {
			return true
		}
	}
	return false
}

// ReadRouters parses the routers of a registry.
func ReadRouters(urls []registry.URL, warn Warn) *Routers {
	r := &Routers{}
	for _, u := range urls {
		document := u.Get(keyYAML) != ""
		switch {
		case u.Protocol == "empty":
			return &Routers{}
		case r.rejectAll:
		case document && u.Protocol == "tag":
			r.readTagDocument(u, warn)
		case document:
			r.readConditionDocument(u, warn)
		case isDisabled(u):
		case u.Protocol == "condition", u.Protocol == "route" && (u.Get(keyRouter) == "" || u.Get(keyRouter) == "condition"):
			c, err := readCondition(u.Get(keyRule))
			if err != nil {
				r.dropRule(u, err, warn)
				continue
			}
			c.order, c.priority, c.force = orderOfURLs, priority(u), u.Get(keyForce) == "true"
			r.add(u, warn, c)
		default:
			warn.report(u, fmt.Sprintf("routers of type %q are not supported: the rule has no effect", cmp.Or(u.Get(keyRouter), u.Protocol)))
		}
	}
	slices.SortStableFunc(r.conditions, func(a, b conditionRule) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.priority, b.priority))
	})
	return r
}

// The order in which conditions apply, by their origin.
const (
	orderOfServices = iota
	orderOfApplications
	orderOfURLs
)

func (r *Routers) readConditionDocument(u registry.URL, warn Warn) {
	root, err := readDocument(u)
	if err != nil {
		warn.report(u, err.Error())
		return
	}
	if isDocumentDisabled(root) {
		return
	}
	var conditions []conditionRule
	for item := range root.Get("conditions").All() {
		if item.Kind() != document.String {
			warn.report(u, item.Path()+": a condition must be a string, found "+item.Describe()+": the rule has no effect")
			return
		}
		c, err := readCondition(item.Text())
		if err != nil {
			r.dropRule(u, fmt.Errorf("%s: %w: the rule has no effect", item.Path(), err), warn)
			return
		}
		c.force = boolOr(root.Get("force"), false)
		c.priority, _ = strconv.Atoi(root.Get("priority").Text())
		if u.Get(keyScope) == scopeApplication {
			c.order, c.application = orderOfApplications, u.Path
		}
		conditions = append(conditions, c)
	}
	r.add(u, warn, conditions...)
}

// add appends the conditions of a rule. Conditions may deny calls, so Weft rejects every call of
// the service if its rules have more than MaxConditions conditions.
func (r *Routers) add(u registry.URL, warn Warn, conditions ...conditionRule) {
	r.conditions = append(r.conditions, conditions...)
	if len(r.conditions) > MaxConditions {
		r.setRejectAll(u, warn, fmt.Sprintf("there are more than %d conditions", MaxConditions))
	}
}

// setRejectAll makes chains reject every call.
func (r *Routers) setRejectAll(u registry.URL, warn Warn, problem string) {
	r.rejectAll = true
	warn.report(u, problem+": all calls of the service are rejected")
}

// dropRule drops an invalid rule, as Dubbo does. A rule that is only too long is valid in Dubbo and
// may deny calls, so Weft then rejects every call of the service.
func (r *Routers) dropRule(u registry.URL, err error, warn Warn) {
	if errors.Is(err, errTooLong) {
		r.setRejectAll(u, warn, err.Error())
		return
	}
	warn.report(u, err.Error())
}

var (
	errInvalidRule = errors.New("invalid rule")
	errTooLong     = errors.New("the rule is too long")
)

// readCondition parses "when => then".
func readCondition(text string) (c conditionRule, err error) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "consumer.", ""), "provider.", "")
	when, then, found := strings.Cut(text, "=>")
	if !found {
		when, then = "", text
	}
	when, then = strings.TrimSpace(when), strings.TrimSpace(then)
	if strings.TrimSpace(text) == "" {
		return c, fmt.Errorf("%w: the condition is empty", errInvalidRule)
	}
	if when != "" && when != "true" {
		pairs, err := readPairs(when)
		if err != nil {
			return c, err
		}
		for _, p := range pairs {
			if request, ok, err := p.asRequestMatch(); err != nil {
				return c, err
			} else if ok {
				c.requestMatches = append(c.requestMatches, request)
				continue
			}
			c.when = append(c.when, p)
		}
	}
	if then == "" || then == "false" {
		c.denies = true
		return c, nil
	}
	c.then, err = readPairs(then)
	return c, err
}

// asRequestMatch returns p as a condition on requests; ok is false if p is a condition on the
// consumer.
func (p keyMatch) asRequestMatch() (r requestMatch, ok bool, err error) {
	r = requestMatch{keyMatch: p}
	inBrackets := func(name string) (text string, ok bool) {
		if text, ok = strings.CutPrefix(p.key, name+"["); ok {
			text, ok = strings.CutSuffix(text, "]")
		}
		return text, ok
	}
	if p.key == "method" || p.key == "methods" {
		r.attachment = fieldMethod
		return r, true, nil
	}
	if name, ok := inBrackets("attachments"); ok {
		if r.attachment = name; name == "" {
			return r, false, fmt.Errorf("%w: %q has no attachment name", errInvalidRule, truncate(p.key))
		}
		return r, true, nil
	}
	if index, ok := inBrackets("arguments"); ok {
		if r.argument, err = strconv.Atoi(index); err != nil || r.argument < 0 {
			return r, false, fmt.Errorf("%w: %q has no valid argument index", errInvalidRule, truncate(p.key))
		}
		return r, true, nil
	}
	return r, false, nil
}

// maxPairs bounds the keys on one side of a condition, and the values of each key.
const maxPairs = 1024

// readPairs parses "a=1,2 & b!=3". It merges the conditions on one key.
func readPairs(text string) (pairs []keyMatch, err error) {
	current := -1      // index of the current key; -1: none
	var dst *[]pattern // values of the last operator; nil: no operator was read
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		const separators = "&!=,"
		rest := strings.TrimLeft(text, separators)
		separator := text[:len(text)-len(rest)]
		rest = strings.TrimSpace(rest)
		end := strings.IndexFunc(rest, func(c rune) bool { return strings.ContainsRune(separators+" \t\r\n", c) })
		if end < 0 {
			end = len(rest)
		}
		token := rest[:end]
		text = rest[end:]
		if token == "" {
			return nil, fmt.Errorf("%w: no key or value after %q", errInvalidRule, separator)
		}
		value, ok := newPattern(token)
		if !ok && separator != "&" && separator != "" {
			return nil, fmt.Errorf("%w: %q is not a valid range", errInvalidRule, truncate(token))
		}
		switch {
		case separator == "&" || separator == "" && current < 0:
			if current = slices.IndexFunc(pairs, func(p keyMatch) bool { return p.key == token }); current < 0 {
				current = len(pairs)
				pairs = append(pairs, keyMatch{key: token})
			}
			dst = nil
			continue
		case separator == "=" && current >= 0:
			dst = &pairs[current].equals
		case separator == "!=" && current >= 0:
			dst = &pairs[current].notEquals
		case separator == "," && dst != nil:
		default:
			return nil, fmt.Errorf("%w: unexpected %q before %q", errInvalidRule, separator, truncate(token))
		}
		*dst = append(*dst, value)
		if len(pairs) > maxPairs || len(*dst) > maxPairs {
			return nil, fmt.Errorf("%w: one side has more than %d keys, or values of a key", errTooLong, maxPairs)
		}
	}
	for _, p := range pairs {
		if len(p.equals) == 0 && len(p.notEquals) == 0 {
			return nil, fmt.Errorf("%w: key %q has no value", errInvalidRule, truncate(p.key))
		}
	}
	return pairs, nil
}
