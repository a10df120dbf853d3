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
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
)

// Routers are the rules that say which providers a call may go to. They are not changed.
type Routers struct {
	conditions []condition
	tags       []tagRule
}

// condition is "when => then".
type condition struct {
	order       int    // of its kind: documents of services, then of applications, then URLs
	priority    int    // within
	application string // whose providers, or consumers, it is about; "": everybody's
	when        []pair // of the consumer; none: always
	requests    []Pair // of when, what the request has to be
	then        []pair // of the provider
	nobody      bool   // then nobody
	force       bool   // rather nobody than somebody else
}

// pair is what is said of one key.
type pair struct {
	key     string
	is, not []string
}

// Pair is a condition on a request: one of Is, if there are any, and none of Not. In a
// text one "*", the last, stands for anything.
type Pair struct {
	Kind  PairKind
	Name  string // of an attachment
	Index int    // of an argument
	Is    []string
	Not   []string
}

// Range is whole numbers, both ends included.
type Range struct{ From, To int64 }

// RangeOf reads a pattern that is a range of numbers, as "1~10", "1~" and "~10".
func RangeOf(pattern string) (r Range, ok bool) {
	from, to, ok := strings.Cut(pattern, "~")
	if !ok || from == "" && to == "" {
		return r, false
	}
	r = Range{math.MinInt32, math.MaxInt32}
	var low, high error
	if from != "" {
		r.From, low = strconv.ParseInt(from, 10, 32)
	}
	if to != "" {
		r.To, high = strconv.ParseInt(to, 10, 32)
	}
	return r, low == nil && high == nil
}

// PairKind is what of a request is compared.
type PairKind uint8

// The kinds.
const (
	Method PairKind = iota
	Attachment
	Argument
)

// Holds reports whether the condition holds for a value; "" is a value that is missing.
func (p Pair) Holds(value string) bool {
	if value == "" && p.MissingDiffers() {
		return len(p.Is) == 0
	}
	return pair{is: p.Is, not: p.Not}.holds(value, value != "", registry.URL{})
}

// MissingDiffers reports whether a value that is missing is another than any: of arguments.
// Else no condition on it holds.
func (p Pair) MissingDiffers() bool { return p.Kind == Argument }

// holds compares as Dubbo 3 does: what must not be counts before what must be, and of what
// is not there neither holds. In a pattern "$name" is the consumer's parameter of that name,
// and a tilde makes a range.
func (p pair) holds(text string, there bool, consumer registry.URL) bool {
	if !there {
		return false
	}
	one := func(pattern string) bool {
		if r, ok := RangeOf(pattern); ok {
			n, err := strconv.ParseInt(text, 10, 32)
			return err == nil && r.From <= n && n <= r.To
		}
		if name, ok := strings.CutPrefix(pattern, "$"); ok {
			pattern, _ = value(consumer, name)
		}
		return glob(pattern, text)
	}
	if slices.ContainsFunc(p.not, one) {
		return false
	}
	return len(p.is) == 0 || slices.ContainsFunc(p.is, one)
}

// ReadRouters reads the routers that a registry names.
func ReadRouters(urls []registry.URL, warn Warn) *Routers {
	r := &Routers{}
	for _, u := range urls {
		document := u.Get(keyYAML) != ""
		switch {
		case u.Protocol == "empty":
			return &Routers{}
		case len(r.conditions) >= MostRules || len(r.tags) >= MostRules:
			warn.about(u, "there are too many rules")
		case document && u.Protocol == "tag":
			r.readTagDocument(u, warn)
		case document:
			r.readConditionDocument(u, warn)
		case isOff(u):
		case u.Protocol == "condition", u.Protocol == "route" && (u.Get(keyRouter) == "" || u.Get(keyRouter) == "condition"):
			c, err := readCondition(u.Get(keyRule))
			if err != nil {
				warn.about(u, err.Error())
				continue
			}
			c.order, c.priority, c.force = orderOfURLs, priority(u), u.Get(keyForce) == "true"
			r.conditions = append(r.conditions, c)
		default:
			warn.about(u, fmt.Sprintf("routers of the kind %q are not built: it has no effect", cmp.Or(u.Get(keyRouter), u.Protocol)))
		}
	}
	slices.SortStableFunc(r.conditions, func(a, b condition) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.priority, b.priority))
	})
	return r
}

// The order in which kinds of conditions apply.
const (
	orderOfServices = iota
	orderOfApplications
	orderOfURLs
)

func (r *Routers) readConditionDocument(u registry.URL, warn Warn) {
	root, err := readDocument(u)
	if err != nil {
		warn.about(u, err.Error())
		return
	}
	if isDocumentOff(root) {
		return
	}
	var all []condition
	for one := range root.Get("conditions").All() {
		if one.Kind() != document.String {
			warn.about(u, one.Path()+": a condition is "+one.Found()+", not a text: the rule has no effect")
			return
		}
		c, err := readCondition(one.Text())
		if err != nil {
			warn.about(u, one.Path()+": "+err.Error()+": the rule has no effect")
			return
		}
		c.force = flag(root.Get("force"), false)
		c.priority, _ = strconv.Atoi(root.Get("priority").Text())
		if u.Get(keyScope) == scopeApplication {
			c.order, c.application = orderOfApplications, u.Path
		}
		if all = append(all, c); len(all) > MostRules {
			warn.about(u, "it has too many conditions: the rule has no effect")
			return
		}
	}
	r.conditions = append(r.conditions, all...)
}

var errRule = errors.New("the rule is none")

// readCondition reads "when => then".
func readCondition(text string) (c condition, err error) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "consumer.", ""), "provider.", "")
	when, then, found := strings.Cut(text, "=>")
	if !found {
		when, then = "", text
	}
	when, then = strings.TrimSpace(when), strings.TrimSpace(then)
	if strings.TrimSpace(text) == "" {
		return c, fmt.Errorf("%w: it is empty", errRule)
	}
	if when != "" && when != "true" {
		all, err := readPairs(when)
		if err != nil {
			return c, err
		}
		for _, p := range all {
			if request, ok, err := p.ofRequest(); err != nil {
				return c, err
			} else if ok {
				c.requests = append(c.requests, request)
				continue
			}
			c.when = append(c.when, p)
		}
	}
	if then == "" || then == "false" {
		c.nobody = true
		return c, nil
	}
	c.then, err = readPairs(then)
	return c, err
}

// ofRequest returns the pair as a condition on requests, if it is one.
func (p pair) ofRequest() (r Pair, ok bool, err error) {
	r = Pair{Is: p.is, Not: p.not}
	inBrackets := func(name string) (text string, ok bool) {
		if text, ok = strings.CutPrefix(p.key, name+"["); ok {
			text, ok = strings.CutSuffix(text, "]")
		}
		return text, ok
	}
	isRange := func(value string) bool { return strings.Contains(value, "~") }
	if p.key == "method" || p.key == "methods" {
		return r, true, nil
	}
	if len(p.is) > 1 && slices.ContainsFunc(p.is, isRange) {
		return r, false, fmt.Errorf("%w: a range of %q is not built beside other values", errRule, clip(p.key))
	}
	if name, ok := inBrackets("attachments"); ok {
		if r.Kind, r.Name = Attachment, name; name == "" {
			return r, false, fmt.Errorf("%w: %q names no attachment", errRule, clip(p.key))
		}
		return r, true, nil
	}
	if index, ok := inBrackets("arguments"); ok {
		const most = 255
		n, err := strconv.Atoi(index)
		if err != nil || n < 0 || n > most {
			return r, false, fmt.Errorf("%w: %q is no argument", errRule, clip(p.key))
		}
		r.Kind, r.Index = Argument, n
		return r, true, nil
	}
	return r, false, nil
}

// mostPairs bounds the keys, and the values of each, in a side of a condition.
const mostPairs = 64

// readPairs reads "a=1,2 & b!=3": each key once, what is said of it together.
func readPairs(text string) (all []pair, err error) {
	at := -1           // of the key that is spoken of
	var into *[]string // where a value goes; nil: none was begun
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		const separators = "&!=,"
		rest := strings.TrimLeft(text, separators)
		separator := text[:len(text)-len(rest)]
		rest = strings.TrimSpace(rest)
		end := strings.IndexFunc(rest, func(c rune) bool { return strings.ContainsRune(separators+" \t\r\n", c) })
		if end < 0 {
			end = len(rest)
		}
		word := rest[:end]
		text = rest[end:]
		if word == "" {
			return nil, fmt.Errorf("%w: nothing follows %q", errRule, separator)
		}
		switch {
		case separator == "&" || separator == "" && at < 0:
			if at = slices.IndexFunc(all, func(p pair) bool { return p.key == word }); at < 0 {
				at = len(all)
				all = append(all, pair{key: word})
			}
			into = nil
		case separator == "=" && at >= 0:
			into = &all[at].is
			*into = append(*into, word)
		case separator == "!=" && at >= 0:
			into = &all[at].not
			*into = append(*into, word)
		case separator == "," && into != nil:
			*into = append(*into, word)
		default:
			return nil, fmt.Errorf("%w: %q stands before %q", errRule, separator, clip(word))
		}
		if len(all) > mostPairs || into != nil && len(*into) > mostPairs {
			return nil, fmt.Errorf("%w: it is too long", errRule)
		}
	}
	for _, p := range all {
		if len(p.is) == 0 && len(p.not) == 0 {
			return nil, fmt.Errorf("%w: nothing is said of %q", errRule, clip(p.key))
		}
		for _, value := range slices.Concat(p.is, p.not) {
			if _, ok := RangeOf(value); !ok && strings.Contains(value, "~") {
				return nil, fmt.Errorf("%w: %q is no range", errRule, clip(value))
			}
		}
	}
	return all, nil
}

// Chain is the conditions that count for calls of a consumer, in the order in which they
// apply.
type Chain struct {
	consumer registry.URL
	all      []condition
	dynamic  []int // of all, those that depend on the request
}

// Chain returns the conditions that count for calls of a consumer.
func (r *Routers) Chain(consumer registry.URL) Chain {
	chain := Chain{consumer: consumer}
	for _, c := range r.conditions {
		counts := true
		for _, p := range c.when {
			text, there := value(consumer, p.key)
			counts = counts && p.holds(text, there, registry.URL{})
		}
		if !counts {
			continue
		}
		if len(c.requests) > 0 {
			chain.dynamic = append(chain.dynamic, len(chain.all))
		}
		chain.all = append(chain.all, c)
	}
	return chain
}

// IsEmpty reports whether no condition counts.
func (c Chain) IsEmpty() bool { return len(c.all) == 0 }

// Requests returns what each condition that depends on the request asks of it: all pairs
// of one must hold.
func (c Chain) Requests() (all [][]Pair) {
	for _, i := range c.dynamic {
		all = append(all, c.all[i].requests)
	}
	return all
}

// Keep returns which providers are left of those whose indexes are in left, when of the
// conditions that Requests returned those hold that holds reports.
func (c Chain) Keep(providers []registry.URL, left []int, holds func(request int) bool) []int {
	dynamic := 0
	for i := range c.all {
		if len(c.all[i].requests) > 0 {
			dynamic++
			if !holds(dynamic - 1) {
				continue
			}
		}
		left = c.all[i].keep(providers, left, c.consumer)
	}
	return left
}

func (c *condition) keep(providers []registry.URL, left []int, consumer registry.URL) []int {
	mine := func(u registry.URL) bool {
		return c.application == "" || c.application == consumer.Get(keyApplication) || c.application == u.Get(keyApplication)
	}
	var kept, others []int
	for _, i := range left {
		switch {
		case !mine(providers[i]):
			others = append(others, i)
		case !c.nobody && c.goesTo(providers[i], consumer):
			kept = append(kept, i)
		}
	}
	if len(kept) == 0 && !c.nobody && !c.force {
		return left
	}
	if len(others) > 0 {
		kept = append(kept, others...)
		slices.Sort(kept)
	}
	return kept
}

func (c *condition) goesTo(u, consumer registry.URL) bool {
	for _, p := range c.then {
		text, there := value(u, p.key)
		if !p.holds(text, there, consumer) {
			return false
		}
	}
	return true
}
