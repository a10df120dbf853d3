// Package headertometadata implements the header_to_metadata filter, which copies request headers
// and cookies to metadata for load balancers and policies.
package headertometadata

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// Config is the filter's configuration, in Envoy's format. MOSN's format is a subset of it.
type Config struct {
	Rules         []Rule           `key:"request_rules" doc:"Rules for requests, in order."`
	ResponseRules []map[string]any `key:"response_rules" doc:"Rules for responses." unsupported:"response_rules" example:"[{\"header\": \"x\"}]"`
	StatPrefix    string           `key:"stat_prefix" doc:"Name of the filter in metrics." ignored:"the filter has no metrics" example:"\"labels\""`
}

// Rule configures the metadata for one header or cookie. Present, Missing or both are set.
type Rule struct {
	Header  string        `key:"header" doc:"Header name; if several headers have the name, each adds a value to the metadata. Set either header or cookie." example:"\"x-version\""`
	Cookie  string        `key:"cookie" doc:"Cookie name." example:"\"version\""`
	Present *KeyValuePair `key:"on_header_present" doc:"Metadata to add if the header or cookie is present and not empty."`
	Missing *KeyValuePair `key:"on_header_missing" doc:"Metadata to add if the header or cookie is absent; its value is required."`
	Remove  bool          `key:"remove" doc:"Removes the header from the request." default:"false" example:"true"`
}

// KeyValuePair configures one metadata value.
type KeyValuePair struct {
	Namespace string   `key:"metadata_namespace" doc:"Metadata namespace; mosn.lb, the same as envoy.lb, is the namespace of host labels." default:"mosn.lb" example:"\"envoy.lb\""`
	Key       string   `key:"key" doc:"Metadata key." required:"true" example:"\"version\""`
	Value     string   `key:"value" doc:"Metadata value; empty: the value of the header or cookie." example:"\"v2\""`
	Type      string   `key:"type" doc:"Type of the value. With NUMBER, a value that is not a number is skipped." enum:"STRING|NUMBER" default:"STRING" example:"\"NUMBER\""`
	Encode    string   `key:"encode" doc:"Encoding of the header value; a value that cannot be decoded is skipped." enum:"NONE|BASE64" default:"NONE" example:"\"BASE64\""`
	Rewrite   *Rewrite `key:"regex_value_rewrite" doc:"Rewrites the header value."`
}

// Rewrite replaces parts of a value.
type Rewrite struct {
	Pattern      Pattern `key:"pattern" doc:"Regular expression whose matches are replaced." required:"true"`
	Substitution string  `key:"substitution" doc:"Replacement; \\1 is the match of the first group, \\0 the whole match." example:"\"\\\\1\""`
}

// Pattern is a regular expression that matches any part of a value.
type Pattern struct {
	Regex string `key:"regex" doc:"The regular expression in RE2 syntax; it may match any part of the value." required:"true" example:"\"v[0-9]+\""`
	// Engine is a key of older Envoy files.
	Engine map[string]any `key:"google_re2" doc:"The regular expression engine for Envoy." ignored:"RE2 is the only supported syntax" example:"{}"`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	_, err := c.compile()
	return err
}

// rule is a compiled Rule.
type rule struct {
	cookie           *variable.Variable
	field            match.Field   // used if cookie is nil
	present, missing *compiledPair // nil: none
	removeHeader     string        // header to remove; "": none
}

// compiledPair is a compiled KeyValuePair.
type compiledPair struct {
	KeyValuePair
	pattern      *regexp.Regexp // nil: no rewrite
	substitution string         // in the syntax of regexp.Expand
}

func (c *Config) compile() ([]rule, error) {
	rules := make([]rule, len(c.Rules))
	for i := range c.Rules {
		var err error
		if rules[i], err = c.Rules[i].compile(); err != nil {
			return nil, fmt.Errorf("request_rules[%d]: %w", i, err)
		}
	}
	return rules, nil
}

func (r *Rule) compile() (rule, error) {
	var compiled rule
	var err error
	switch {
	case (r.Header == "") == (r.Cookie == ""):
		return rule{}, errors.New("expected one of header and cookie")
	case r.Cookie != "" && r.Remove:
		return rule{}, errors.New("a cookie cannot be removed")
	case r.Cookie != "":
		v, ok := variable.Lookup("cookie_" + r.Cookie)
		if !ok {
			return rule{}, fmt.Errorf("%q is not a valid cookie name", r.Cookie)
		}
		compiled.cookie = &v
	default:
		if compiled.field, err = match.NewField(r.Header); err != nil {
			return rule{}, err
		}
	}
	if r.Remove {
		if r.Header[0] == ':' || strings.EqualFold(r.Header, "host") {
			return rule{}, fmt.Errorf("%s cannot be removed: every request has it", r.Header)
		}
		compiled.removeHeader = r.Header
	}
	if r.Present == nil && r.Missing == nil {
		return rule{}, errors.New("neither on_header_present nor on_header_missing is set")
	}
	if compiled.present, err = r.Present.compile(); err != nil {
		return rule{}, fmt.Errorf("on_header_present: %w", err)
	}
	if compiled.missing, err = r.Missing.compile(); err != nil {
		return rule{}, fmt.Errorf("on_header_missing: %w", err)
	}
	if r.Missing != nil && (r.Missing.Value == "" || r.Missing.Rewrite != nil || r.Missing.Encode == "BASE64") {
		return rule{}, errors.New("on_header_missing: expected a value, and no regex_value_rewrite or encode: there is no header to copy, rewrite or decode")
	}
	return compiled, nil
}

func (p *KeyValuePair) compile() (*compiledPair, error) {
	if p == nil {
		return nil, nil
	}
	compiled := &compiledPair{KeyValuePair: *p}
	compiled.Namespace = protocol.Namespace(p.Namespace)
	if p.Key == "" {
		return nil, errors.New("key is empty")
	}
	if p.Value != "" && p.Type == "NUMBER" {
		number, ok := canonicalNumber(p.Value)
		if !ok {
			return nil, fmt.Errorf("value %q is not a number", p.Value)
		}
		compiled.Value = number
	}
	if p.Rewrite == nil {
		return compiled, nil
	}
	if p.Value != "" {
		return nil, errors.New("value and regex_value_rewrite are mutually exclusive")
	}
	var err error
	if compiled.pattern, err = match.CompileUnanchored(p.Rewrite.Pattern.Regex); err != nil {
		return nil, fmt.Errorf("regex_value_rewrite.pattern: %w", err)
	}
	compiled.substitution, err = toExpandSyntax(p.Rewrite.Substitution, compiled.pattern.NumSubexp())
	return compiled, err
}

// toExpandSyntax converts a substitution with references such as \1 to the syntax of regexp.Expand.
// It returns an error if the substitution refers to a group greater than groups.
func toExpandSyntax(substitution string, groups int) (string, error) {
	var b strings.Builder
	for i := 0; i < len(substitution); i++ {
		c := substitution[i]
		switch {
		case c == '$':
			b.WriteString("$$")
		case c != '\\':
			b.WriteByte(c)
		case i+1 == len(substitution):
			return "", errors.New(`regex_value_rewrite.substitution ends in "\"`)
		default:
			i++
			digit := int(substitution[i]) - '0'
			switch {
			case substitution[i] == '\\':
				b.WriteByte('\\')
			case digit < 0 || digit > groups || digit > 9:
				return "", fmt.Errorf(`regex_value_rewrite.substitution has "\%c": the expression has %d groups`, substitution[i], groups)
			default:
				fmt.Fprintf(&b, "${%d}", digit)
			}
		}
	}
	return b.String(), nil
}

// Factory returns the filter factory.
func Factory() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name:   "header_to_metadata",
		Stage:  filter.AfterRoute,
		Config: func() any { return new(Config) },
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			rules, err := cfg.(*Config).compile() //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
			if err != nil {
				return nil, err
			}
			return func(next protocol.Service) protocol.Service {
				return &headerToMetadata{rules, next}
			}, nil
		},
	}
}

// headerToMetadata is immutable.
type headerToMetadata struct {
	rules []rule
	next  protocol.Service
}

// Start implements protocol.Service.
func (h *headerToMetadata) Start(ctx context.Context, x *protocol.Exchange) error {
	for i := range h.rules {
		r := &h.rules[i]
		if present := r.apply(x); present && r.removeHeader != "" {
			x.Request.Header.Del(r.removeHeader)
		}
	}
	return h.next.Start(ctx, x)
}

// apply writes the values that r selects to x.Metadata and reports whether the header or cookie is
// present.
func (r *rule) apply(x *protocol.Exchange) (present bool) {
	set := (*protocol.Metadata).Set // replaces the value of an earlier rule
	for n, more := 0, true; more; n++ {
		var value string
		var ok bool
		if value, ok, more = r.value(x, n); !ok {
			break
		}
		present = true
		if value != "" && r.present != nil && r.present.write(&x.Metadata, value, set) {
			set = (*protocol.Metadata).AddRepeated
		}
	}
	if !present && r.missing != nil {
		r.missing.write(&x.Metadata, "", set)
	}
	return present
}

// value returns the n-th value that r selects, with the results of match.Field.Value.
func (r *rule) value(x *protocol.Exchange, n int) (value string, ok, more bool) {
	if r.cookie == nil {
		return r.field.Value(x, n)
	}
	value, ok = r.cookie.Text(x)
	return value, ok, false
}

// maxValueBytes is the maximum length of a value in bytes, which is Envoy's limit.
const maxValueBytes = 8 << 10

// write adds p to m and reports whether it did. It always adds a fixed p.Value, which replaces
// earlier values. Otherwise it decodes and rewrites value, the value of the header or cookie, and
// adds the result with set. It adds nothing if value is longer than maxValueBytes or cannot be
// decoded, or if the result is empty or is not a number although p.Type is NUMBER.
func (p *compiledPair) write(m *protocol.Metadata, value string, set func(m *protocol.Metadata, namespace, key, value string)) bool {
	switch {
	case p.Value != "":
		m.Set(p.Namespace, p.Key, p.Value)
		return true
	case len(value) > maxValueBytes:
		return false
	}
	if p.Encode == "BASE64" {
		decoded, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return false
		}
		value = string(decoded)
	}
	if p.pattern != nil {
		value = p.pattern.ReplaceAllString(value, p.substitution)
	}
	if p.Type == "NUMBER" {
		var ok bool
		if value, ok = canonicalNumber(value); !ok {
			return false
		}
	}
	if value != "" {
		set(m, p.Namespace, p.Key, value)
	}
	return value != ""
}

// canonicalNumber returns the canonical form of a finite decimal number ("1" for "1.0"). It returns
// false if text is not such a number.
func canonicalNumber(text string) (string, bool) {
	if strings.ContainsAny(text, "xXpP_") {
		return "", false
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || number-number != 0 { // infinity or NaN
		return "", false
	}
	return strconv.FormatFloat(number, 'f', -1, 64), true
}
