package match

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// HeaderConfig says what a field of a request must be. Without a condition, it must
// be there. Upper and lower case are the same in the host that a request is for.
type HeaderConfig struct {
	Name          string      `key:"name" doc:"Field name, of RPC calls also an attachment or service, method, version and group; :method, :authority, :path (with the query) and :scheme are the request's own." required:"true" example:"\"x-tenant\""`
	String        *TextConfig `key:"string_match" doc:"What the value must be; values of several fields count as one, with commas between them."`
	Exact         *string     `key:"exact_match" doc:"The value must be this." example:"\"blue\""`
	Prefix        *string     `key:"prefix_match" doc:"The value must begin with this." example:"\"blue-\""`
	Suffix        *string     `key:"suffix_match" doc:"The value must end with this." example:"\"-blue\""`
	Contains      *string     `key:"contains_match" doc:"This must be in the value." example:"\"blue\""`
	SafeRegex     *Regex      `key:"safe_regex_match" doc:"An expression that describes all of the value."`
	Range         *Numbers    `key:"range_match" doc:"The value must be an integer in this range."`
	Present       *bool       `key:"present_match" doc:"The field must be there; false: it must not." example:"true"`
	Invert        bool        `key:"invert_match" doc:"The condition must not hold. Of a field that is not there neither holds, unless the condition is that it is (not) there." default:"false" example:"true"`
	MissingIsText bool        `key:"treat_missing_header_as_empty" doc:"A field that is not there is as if its value were empty." default:"false" example:"true"`
}

// Numbers is a range of integers: from Start to End, End not included.
type Numbers struct {
	Start int64 `key:"start" doc:"The first number." example:"1"`
	End   int64 `key:"end" doc:"The number after the last one." example:"10"`
}

// Header is a compiled HeaderConfig.
type Header struct {
	field   Field
	test    headerTest
	text    Text
	numbers Numbers
	invert  bool
	// missing: a field that is not there counts as "".
	missing bool
}

type headerTest uint8

const (
	isPresent headerTest = iota
	isAbsent
	isText
	isNumber
)

// Compile checks c and returns its compiled form.
func (c *HeaderConfig) Compile() (Header, error) {
	h := Header{invert: c.Invert, missing: c.MissingIsText}
	var err error
	if h.field, err = NewField(c.Name); err != nil {
		return Header{}, err
	}
	set := 0
	text := func(of TextConfig) {
		set++
		var problem error
		h.test = isText
		if h.text, problem = of.Compile(); problem != nil {
			err = problem
		}
	}
	if c.String != nil {
		text(*c.String)
	}
	if c.Exact != nil {
		text(TextConfig{Exact: c.Exact})
	}
	if c.Prefix != nil {
		text(TextConfig{Prefix: c.Prefix})
	}
	if c.Suffix != nil {
		text(TextConfig{Suffix: c.Suffix})
	}
	if c.Contains != nil {
		text(TextConfig{Contains: c.Contains})
	}
	if c.SafeRegex != nil {
		text(TextConfig{SafeRegex: c.SafeRegex})
	}
	if c.Range != nil {
		set++
		h.test, h.numbers = isNumber, *c.Range
		if c.Range.Start >= c.Range.End {
			err = fmt.Errorf("range_match from %d to before %d has no number", c.Range.Start, c.Range.End)
		}
	}
	if c.Present != nil {
		set++
		if !*c.Present {
			h.test = isAbsent
		}
	}
	if err == nil && set > 1 {
		err = fmt.Errorf("%d conditions are set, want one", set)
	}
	if h.field.of == authority || h.field.of == host {
		h.text = h.text.IgnoringCase() // RFC 9110 4.2.3
	}
	if err != nil {
		return Header{}, fmt.Errorf("the header condition on %q: %w", c.Name, err)
	}
	return h, nil
}

// CompileHeaders compiles a list; key is what it is called in errors.
func CompileHeaders(key string, list []HeaderConfig) ([]Header, error) {
	headers := make([]Header, len(list))
	for i := range list {
		var err error
		if headers[i], err = list[i].Compile(); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", key, i, err)
		}
	}
	return headers, nil
}

// Holds reports whether the request of x is as h asks. Only a field that occurs
// several times makes it allocate.
func (h *Header) Holds(x *protocol.Exchange) bool {
	value, ok := h.field.Value(x)
	switch h.test {
	case isPresent:
		return (ok || h.missing) != h.invert
	case isAbsent:
		return (!ok && !h.missing) != h.invert
	case isText, isNumber:
	}
	if !ok && !h.missing {
		return false // Envoy's reading, inverted or not
	}
	if h.test == isText {
		return h.text.Holds(value) != h.invert
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return (err == nil && n >= h.numbers.Start && n < h.numbers.End) != h.invert
}

// Field finds a value of a request by name.
type Field struct {
	name string
	of   source
}

type source uint8

const (
	fields source = iota
	method
	authority
	target
	scheme
	host    // authority of HTTP, a field of RPC
	routing // a field of HTTP; of RPC what the call itself says, which goes before its attachments
)

// NewField returns the field called name: a header field, or :method, :authority,
// :path and :scheme, the request's own, as the caller sent them.
func NewField(name string) (Field, error) {
	f := Field{name: name}
	switch strings.ToLower(name) {
	case "":
		return Field{}, errors.New("a field has no name")
	case ":method":
		f.of = method
	case ":authority":
		f.of = authority
	case ":path":
		f.of = target
	case ":scheme":
		f.of = scheme
	case "host":
		f.of = host
	case "service", "method", "version", "group":
		f.of = routing
	default:
		if name[0] == ':' {
			return Field{}, fmt.Errorf("%q is no name of a field: those with a colon are :method, :authority, :path and :scheme", name)
		}
	}
	return f, nil
}

// IsPath reports whether the field is the request's path.
func (f *Field) IsPath() bool { return f.of == target }

// ReadsPath reports whether h is a condition on the request's path.
func (h *Header) ReadsPath() bool { return h.field.IsPath() }

// ReadsCall reports whether h is a condition on what a call of RPC is for.
func (h *Header) ReadsCall() bool {
	return h.field.of == target || h.field.of == authority || h.field.of == routing
}

// Value returns the field's value, a view of x, and whether there is one. Several
// fields of the name are one value, with commas between them (RFC 9110 5.3).
func (f *Field) Value(x *protocol.Exchange) (string, bool) {
	r := &x.Request
	switch f.of {
	case method:
		return r.Method, true
	case authority:
		return x.AskedAuthority(), true
	case target:
		return x.AskedPath(), true
	case scheme:
		return r.Scheme, true
	case host:
		if r.Method != "" { // no call of RPC
			return x.AskedAuthority(), true
		}
	case routing:
		if r.Method == "" {
			return r.Header.Lookup(f.name)
		}
	case fields:
	}
	return joined(&r.Header, f.name)
}

func joined(h *protocol.Header, name string) (value string, ok bool) {
	for i := range h.Len() {
		switch field := h.At(i); {
		case !protocol.EqualFold(field.Name, name):
		case ok:
			value += "," + field.Value
		default:
			value, ok = field.Value, true
		}
	}
	return value, ok
}
