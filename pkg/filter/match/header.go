package match

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/router/headermatch"
)

// HeaderMatcherConfig is a condition on a header of a request. Without a value condition, the
// header must be present. The host (:authority, and host of HTTP requests) is compared
// case-insensitively, also by expressions. Each header with the name is evaluated separately: see
// package headermatch.
type HeaderMatcherConfig struct {
	Name           string               `key:"name" doc:"Header name. For RPC requests: the name of an attachment, or one of service, method, version and group. :method, :authority, :path (with the query) and :scheme have their values before route rewrites." required:"true" example:"\"x-tenant\""`
	String         *StringMatcherConfig `key:"string_match" doc:"Condition on the value. If several headers have the name, one value must match."`
	Exact          *string              `key:"exact_match" doc:"The value must equal this text." example:"\"blue\""`
	Prefix         *string              `key:"prefix_match" doc:"The value must start with this text." example:"\"blue-\""`
	Suffix         *string              `key:"suffix_match" doc:"The value must end with this text." example:"\"-blue\""`
	Contains       *string              `key:"contains_match" doc:"The value must contain this text." example:"\"blue\""`
	SafeRegex      *Regex               `key:"safe_regex_match" doc:"A regular expression that must match the whole value."`
	Range          *Int64Range          `key:"range_match" doc:"The value must be an integer in this range."`
	Present        *bool                `key:"present_match" doc:"true: the header must be present; false: it must be absent." example:"true"`
	Invert         bool                 `key:"invert_match" doc:"Inverts the condition. If several headers have the name, no value may match. An absent header matches neither the condition nor its inversion, except for present_match." default:"false" example:"true"`
	MissingIsEmpty bool                 `key:"treat_missing_header_as_empty" doc:"Treats an absent header as one with an empty value." default:"false" example:"true"`
}

// Int64Range is the range of integers from Start up to, but not including, End.
type Int64Range struct {
	Start int64 `key:"start" doc:"The first number of the range." example:"1"`
	End   int64 `key:"end" doc:"The first number after the range." example:"10"`
}

// HeaderMatcher is a compiled HeaderMatcherConfig.
type HeaderMatcher struct {
	field Field
	value headermatch.Matcher
}

// Compile checks c and returns its compiled form.
func (c *HeaderMatcherConfig) Compile() (HeaderMatcher, error) {
	field, err := NewField(c.Name)
	if err != nil {
		return HeaderMatcher{}, err
	}
	isHost := field.source == sourceAuthority || field.source == sourceHost
	matcher := headermatch.New(config.ValueMatch{Kind: config.ValuePresent}, nil)
	conditions := 0
	setString := func(stringConfig StringMatcherConfig) {
		conditions++
		compiled, compileErr := stringConfig.Compile()
		if r := stringConfig.SafeRegex; isHost && r != nil && compileErr == nil {
			compiled, compileErr = (&Regex{Regex: "(?i)" + r.Regex}).Compile()
		}
		if compileErr != nil {
			err = compileErr
		}
		matcher = compiled.matcher
	}
	if c.String != nil {
		setString(*c.String)
	}
	if c.Exact != nil {
		setString(StringMatcherConfig{Exact: c.Exact})
	}
	if c.Prefix != nil {
		setString(StringMatcherConfig{Prefix: c.Prefix})
	}
	if c.Suffix != nil {
		setString(StringMatcherConfig{Suffix: c.Suffix})
	}
	if c.Contains != nil {
		setString(StringMatcherConfig{Contains: c.Contains})
	}
	if c.SafeRegex != nil {
		setString(StringMatcherConfig{SafeRegex: c.SafeRegex})
	}
	if c.Range != nil {
		conditions++
		matcher = headermatch.New(config.ValueMatch{Kind: config.ValueRange, From: c.Range.Start, To: c.Range.End}, nil)
		if c.Range.Start >= c.Range.End {
			err = fmt.Errorf("range_match is empty: start %d is not less than end %d", c.Range.Start, c.Range.End)
		}
	}
	mustBeAbsent := false
	if c.Present != nil {
		conditions++
		mustBeAbsent = !*c.Present
	}
	if err == nil && conditions > 1 {
		err = fmt.Errorf("%d conditions are set, want one", conditions)
	}
	if err != nil {
		return HeaderMatcher{}, fmt.Errorf("the header condition on %q: %w", c.Name, err)
	}
	matcher.Invert, matcher.TreatMissingAsEmpty = c.Invert != mustBeAbsent, c.MissingIsEmpty
	if isHost {
		matcher.IgnoreCase = true // RFC 9110 4.2.3: hosts have no case
	}
	return HeaderMatcher{field, matcher}, nil
}

// CompileHeaders compiles a list. Errors name key.
func CompileHeaders(key string, list []HeaderMatcherConfig) ([]HeaderMatcher, error) {
	headers := make([]HeaderMatcher, len(list))
	for i := range list {
		var err error
		if headers[i], err = list[i].Compile(); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
		}
	}
	return headers, nil
}

// Matches reports whether the request of x matches h. It does not allocate.
func (h *HeaderMatcher) Matches(x *protocol.Exchange) bool {
	if value, ok, repeatable := h.field.singleValue(x); !repeatable {
		return h.value.Match(value, ok)
	}
	return h.value.MatchHeader(&x.Request.Header, h.field.name)
}

// Field reads the values of a request header, or of a pseudo-header, by name.
type Field struct {
	name   string
	source valueSource
}

type valueSource uint8

const (
	sourceHeader valueSource = iota
	sourceMethod
	sourceAuthority
	sourcePath
	sourceScheme
	sourceHost    // the authority of an HTTP request, a header of an RPC call
	sourceRouting // a header of an HTTP request; for RPC the service, method, version or group of the call
)

// NewField returns the Field called name: a header, or :method, :authority, :path or :scheme with
// the value that the client sent.
func NewField(name string) (Field, error) {
	f := Field{name: name}
	switch strings.ToLower(name) {
	case "":
		return Field{}, errors.New("the header name is empty")
	case ":method":
		f.source = sourceMethod
	case ":authority":
		f.source = sourceAuthority
	case ":path":
		f.source = sourcePath
	case ":scheme":
		f.source = sourceScheme
	case "host":
		f.source = sourceHost
	case "service", "method", "version", "group":
		f.source = sourceRouting
	default:
		if name[0] == ':' {
			return Field{}, fmt.Errorf("%q is not a valid header name: the only names with a colon are :method, :authority, :path and :scheme", name)
		}
	}
	return f, nil
}

// IsPath reports whether the field is the request's path.
func (f *Field) IsPath() bool { return f.source == sourcePath }

// ReadsPath reports whether h reads the request's path.
func (h *HeaderMatcher) ReadsPath() bool { return h.field.IsPath() }

// ReadsCall reports whether h reads the service, method or other routing data of an RPC call.
func (h *HeaderMatcher) ReadsCall() bool {
	return h.field.source == sourcePath || h.field.source == sourceAuthority || h.field.source == sourceRouting
}

// singleValue returns the value of a field that a request has at most once, and whether it is
// present. value borrows from x. repeatable reports that the field is a header, which may occur
// many times.
func (f *Field) singleValue(x *protocol.Exchange) (value string, ok, repeatable bool) {
	r := &x.Request
	switch f.source {
	case sourceMethod:
		return r.Method, true, false
	case sourceAuthority:
		return x.OriginalAuthority(), true, false
	case sourcePath:
		return x.OriginalPath(), true, false
	case sourceScheme:
		return r.Scheme, true, false
	case sourceHost:
		if r.Method != "" { // not an RPC call
			return x.OriginalAuthority(), true, false
		}
	case sourceRouting:
		if r.Method == "" {
			value, ok = r.Header.Lookup(f.name)
			return value, ok, false
		}
	case sourceHeader:
	}
	return "", false, true
}

// Value returns the n-th value of the field, counted from 0, and whether it exists. value borrows
// from x. more reports that other values follow. Each header with the name has one value; Value
// never joins them.
func (f *Field) Value(x *protocol.Exchange, n int) (value string, ok, more bool) {
	value, ok, repeatable := f.singleValue(x)
	if !repeatable {
		if n > 0 {
			return "", false, false
		}
		return value, ok, false
	}
	h := &x.Request.Header
	for i := range h.Len() {
		header := h.At(i)
		if !protocol.EqualFold(header.Name, f.name) {
			continue
		}
		if ok {
			return value, true, true
		}
		if n == 0 {
			value, ok = header.Value, true
		}
		n--
	}
	return value, ok, false
}
