// Package match owns the conditions that filters share: on texts, headers and addresses of a
// request, and on random fractions. Each has a configuration struct, spelled as Envoy spells it,
// and an immutable compiled form that does not allocate.
package match

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TextConfig is a condition on a text. Exactly one of its conditions is set.
type TextConfig struct {
	Exact      *string `key:"exact" doc:"The text must equal this." example:"\"shop\""`
	Prefix     *string `key:"prefix" doc:"The text must start with this." example:"\"/api/\""`
	Suffix     *string `key:"suffix" doc:"The text must end with this." example:"\".example.com\""`
	Contains   *string `key:"contains" doc:"The text must contain this." example:"\"internal\""`
	SafeRegex  *Regex  `key:"safe_regex" doc:"A regular expression that must match the whole text."`
	IgnoreCase bool    `key:"ignore_case" doc:"Ignores the case of ASCII letters; in a regular expression, use (?i) instead." default:"false" example:"true"`
}

// Regex is an expression in RE2 syntax. Matching takes time proportional to the length of the
// text.
type Regex struct {
	Regex string `key:"regex" doc:"The regular expression in RE2 syntax, anchored at both ends." required:"true" example:"\"v[0-9]+\""`
	// Engine is a key of older Envoy files.
	Engine map[string]any `key:"google_re2" doc:"The regular expression engine for Envoy." noeffect:"RE2 is the only supported syntax" example:"{}"`
}

// StringMatcher is a compiled TextConfig. The zero StringMatcher matches nothing.
type StringMatcher struct {
	test       textTest
	fold       bool
	value      string
	expression *regexp.Regexp
}

type textTest uint8

const (
	never textTest = iota
	exact
	prefix
	suffix
	contains
	expression
)

// Exactly returns a StringMatcher that matches only value.
func Exactly(value string) StringMatcher { return StringMatcher{test: exact, value: value} }

// Beginning returns a StringMatcher that matches texts with the prefix value.
func Beginning(value string) StringMatcher { return StringMatcher{test: prefix, value: value} }

// Ending returns a StringMatcher that matches texts with the suffix value.
func Ending(value string) StringMatcher { return StringMatcher{test: suffix, value: value} }

// Having returns a StringMatcher that matches texts that contain value.
func Having(value string) StringMatcher { return StringMatcher{test: contains, value: value} }

// IgnoringCase returns a copy of t that ignores the case of ASCII letters. It does not change how
// expressions match.
func (t StringMatcher) IgnoringCase() StringMatcher {
	t.fold = true
	return t
}

// Compile checks c and returns its compiled form.
func (c *TextConfig) Compile() (StringMatcher, error) {
	var t StringMatcher
	set := 0
	for _, one := range []struct {
		test  textTest
		name  string
		value *string
	}{{exact, "exact", c.Exact}, {prefix, "prefix", c.Prefix}, {suffix, "suffix", c.Suffix}, {contains, "contains", c.Contains}} {
		if one.value == nil {
			continue
		}
		if *one.value == "" && one.test != exact {
			return StringMatcher{}, fmt.Errorf("%s is empty and would match every text", one.name)
		}
		t = StringMatcher{test: one.test, value: *one.value, fold: c.IgnoreCase}
		set++
	}
	if c.SafeRegex != nil {
		var err error
		if t, err = c.SafeRegex.Compile(); err != nil {
			return StringMatcher{}, fmt.Errorf("safe_regex: %w", err)
		}
		if c.IgnoreCase {
			return StringMatcher{}, errors.New("ignore_case has no effect on safe_regex: start the expression with (?i)")
		}
		set++
	}
	if set != 1 {
		return StringMatcher{}, fmt.Errorf("%d of exact, prefix, suffix, contains and safe_regex are set, want one", set)
	}
	return t, nil
}

// Compile checks r and returns its compiled form.
func (r *Regex) Compile() (StringMatcher, error) {
	e, err := Expression(r.Regex)
	if err != nil {
		return StringMatcher{}, err
	}
	return StringMatcher{test: expression, expression: e}, nil
}

// Bounds of an expression.
const (
	maxExpression = 4096 // bytes
	maxProgram    = 8192 // instructions
)

// Expression compiles an expression that must match a whole text. It rejects an expression that
// is too large to match quickly. A dot matches any character, newlines included, so that ".*"
// matches an attachment of several lines.
func Expression(text string) (*regexp.Regexp, error) {
	if _, err := Part(text); err != nil {
		return nil, err
	}
	return regexp.Compile("(?s)^(?:" + text + ")$")
}

// Part compiles an expression that matches any part of a text, with the bounds of Expression.
func Part(text string) (*regexp.Regexp, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("the expression has %d bytes: at most %d are allowed", len(text), maxExpression)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxProgram {
		return nil, fmt.Errorf("the expression is too large: %d instructions, at most %d are allowed", len(program.Inst), maxProgram)
	}
	return regexp.Compile(text)
}

// Holds reports whether t matches s.
func (t *StringMatcher) Holds(s string) bool {
	switch n := len(t.value); t.test {
	case exact:
		return t.same(s)
	case prefix:
		return len(s) >= n && t.same(s[:n])
	case suffix:
		return len(s) >= n && t.same(s[len(s)-n:])
	case contains:
		return t.isIn(s)
	case expression:
		return t.expression.MatchString(s)
	case never:
	}
	return false
}

// valueMatch converts t, a result of Compile, to the form of header conditions.
func (t *StringMatcher) valueMatch() config.ValueMatch {
	m := config.ValueMatch{Text: t.value, IgnoreCase: t.fold}
	switch t.test {
	case prefix:
		m.Kind = config.ValuePrefix
	case suffix:
		m.Kind = config.ValueSuffix
	case contains:
		m.Kind = config.ValueContains
	case expression:
		m.Kind = config.ValueRegex
	case exact, never:
	}
	return m
}

// IsExactly reports whether t matches value and nothing else.
func (t *StringMatcher) IsExactly(value string) bool {
	return t.test == exact && !t.fold && t.value == value
}

func (t *StringMatcher) same(s string) bool {
	return s == t.value || t.fold && protocol.EqualFold(s, t.value)
}

func (t *StringMatcher) isIn(s string) bool {
	if !t.fold {
		return strings.Contains(s, t.value)
	}
	for ; len(s) >= len(t.value); s = s[1:] {
		if protocol.EqualFold(s[:len(t.value)], t.value) {
			return true
		}
	}
	return false
}

// AnyMatches reports whether one of the matchers matches s.
func AnyMatches(texts []StringMatcher, s string) bool {
	for i := range texts {
		if texts[i].Holds(s) {
			return true
		}
	}
	return false
}

// CompileAll compiles a list. Errors name key.
func CompileAll(key string, list []TextConfig) ([]StringMatcher, error) {
	texts := make([]StringMatcher, len(list))
	for i := range list {
		var err error
		if texts[i], err = list[i].Compile(); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
		}
	}
	return texts, nil
}
