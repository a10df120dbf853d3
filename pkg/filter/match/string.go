// Package match implements the conditions that filters share: on strings, headers and addresses of
// a request, and on random fractions. Each has a configuration struct with Envoy's keys, and an
// immutable compiled form that does not allocate.
package match

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// StringMatcherConfig configures a condition on a string. Exactly one of its conditions is set.
type StringMatcherConfig struct {
	Exact      *string `key:"exact" doc:"The text must equal this." example:"\"shop\""`
	Prefix     *string `key:"prefix" doc:"The text must start with this." example:"\"shop-\""`
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
	Engine map[string]any `key:"google_re2" doc:"The regular expression engine for Envoy." ignored:"RE2 is the only supported syntax" example:"{}"`
}

// StringMatcher is a compiled StringMatcherConfig. The zero StringMatcher matches nothing.
type StringMatcher struct {
	matcher  headermatch.Matcher
	compiled bool // false: matches nothing
}

// Exact returns a StringMatcher that matches only value.
func Exact(value string) StringMatcher {
	return newStringMatcher(config.ValueMatch{Kind: config.ValueExact, Text: value}, nil)
}

func newStringMatcher(m config.ValueMatch, expression *regexp.Regexp) StringMatcher {
	return StringMatcher{matcher: headermatch.New(m, expression), compiled: true}
}

// IgnoreCase returns a copy of m that ignores the case of ASCII letters. It does not change how
// expressions match.
func (m StringMatcher) IgnoreCase() StringMatcher {
	m.matcher.IgnoreCase = true
	return m
}

// Compile checks c and returns its compiled form.
func (c *StringMatcherConfig) Compile() (StringMatcher, error) {
	var m StringMatcher
	count := 0
	for _, condition := range []struct {
		kind config.ValueKind
		name string
		text *string
	}{{config.ValueExact, "exact", c.Exact}, {config.ValuePrefix, "prefix", c.Prefix}, {config.ValueSuffix, "suffix", c.Suffix}, {config.ValueContains, "contains", c.Contains}} {
		if condition.text == nil {
			continue
		}
		if *condition.text == "" && condition.kind != config.ValueExact {
			return StringMatcher{}, fmt.Errorf("%s is empty and would match every text", condition.name)
		}
		m = newStringMatcher(config.ValueMatch{Kind: condition.kind, Text: *condition.text, IgnoreCase: c.IgnoreCase}, nil)
		count++
	}
	if c.SafeRegex != nil {
		var err error
		if m, err = c.SafeRegex.Compile(); err != nil {
			return StringMatcher{}, fmt.Errorf("safe_regex: %w", err)
		}
		if c.IgnoreCase {
			return StringMatcher{}, errors.New("ignore_case has no effect on safe_regex: start the expression with (?i)")
		}
		count++
	}
	if count != 1 {
		return StringMatcher{}, fmt.Errorf("%d of exact, prefix, suffix, contains and safe_regex are set, want one", count)
	}
	return m, nil
}

// Compile checks r and returns its compiled form.
func (r *Regex) Compile() (StringMatcher, error) {
	expression, err := CompileAnchored(r.Regex)
	if err != nil {
		return StringMatcher{}, err
	}
	return newStringMatcher(config.ValueMatch{Kind: config.ValueRegex}, expression), nil
}

// Bounds of an expression.
const (
	maxRegexBytes        = 4096
	maxRegexInstructions = 8192 // of the compiled program
)

// CompileAnchored compiles an expression that must match a whole text. It rejects an expression
// that is too large to match quickly. A dot matches any character: see headermatch.Anchored.
func CompileAnchored(expression string) (*regexp.Regexp, error) {
	if _, err := CompileUnanchored(expression); err != nil {
		return nil, err
	}
	return regexp.Compile(headermatch.Anchored(expression))
}

// CompileUnanchored compiles an expression that matches any part of a text, with the bounds of
// CompileAnchored.
func CompileUnanchored(expression string) (*regexp.Regexp, error) {
	if len(expression) > maxRegexBytes {
		return nil, fmt.Errorf("the expression has %d bytes: at most %d are allowed", len(expression), maxRegexBytes)
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > maxRegexInstructions {
		return nil, fmt.Errorf("the expression is too large: %d instructions, at most %d are allowed", len(program.Inst), maxRegexInstructions)
	}
	return regexp.Compile(expression)
}

// Matches reports whether m matches s.
func (m *StringMatcher) Matches(s string) bool { return m.compiled && m.matcher.MatchValue(s) }

// IsExact reports whether m is the condition that Exact returns for value.
func (m *StringMatcher) IsExact(value string) bool {
	matcher := &m.matcher
	return m.compiled && matcher.Kind == config.ValueExact && !matcher.IgnoreCase && matcher.Text == value
}

// AnyMatches reports whether one of the matchers matches s.
func AnyMatches(matchers []StringMatcher, s string) bool {
	for i := range matchers {
		if matchers[i].Matches(s) {
			return true
		}
	}
	return false
}

// CompileStringMatchers compiles a list. Errors name key.
func CompileStringMatchers(key string, list []StringMatcherConfig) ([]StringMatcher, error) {
	matchers := make([]StringMatcher, len(list))
	for i := range list {
		var err error
		if matchers[i], err = list[i].Compile(); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
		}
	}
	return matchers, nil
}
