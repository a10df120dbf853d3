// Package variable defines the named values of an exchange, and the %name% templates in which
// access logs, header mutations and route conditions use them. It is pure: every value, time
// included, comes from the exchange.
package variable

import (
	"iter"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Variable is a named value that an exchange may have. Lookup returns a Variable; the zero Variable
// is not valid. Variables are immutable and safe for concurrent use on different exchanges.
type Variable struct {
	def *definition
	arg string // the NAME in a name like request_header_NAME
}

// definition is one row of the table. Either text or write is set.
type definition struct {
	name string // the name of a family ends in "_"; the argument follows it
	doc  string

	// text returns a string that may borrow the exchange, and false if there is no such value.
	text func(x *protocol.Exchange, arg string) (string, bool)
	// write appends a value that is not text in the exchange, or returns false if there is none.
	write func(dst []byte, x *protocol.Exchange) ([]byte, bool)
	// field returns the name of the request header whose first value text returns, and false if
	// that header cannot repeat. If field is nil, text never returns the value of a request header
	// that can repeat.
	field func(x *protocol.Exchange, arg string) (name string, ok bool)
	// json appends a JSON value of another type, or returns false if there is none; nil: the value
	// is a string, or a number.
	json func(dst []byte, x *protocol.Exchange) ([]byte, bool)
	// isNumber: write appends a JSON number.
	isNumber bool
}

func (d *definition) isFamily() bool { return strings.HasSuffix(d.name, "_") }

// Lookup returns the variable called name, and whether there is one. Names are case-sensitive,
// except for the header names in which they end. Lookup ignores MOSN's protocol prefixes, as in
// Http1_request_uri and Http2_cookie_NAME.
func Lookup(name string) (Variable, bool) {
	for _, version := range []string{"Http1_", "Http2_"} {
		unprefixed, ok := strings.CutPrefix(name, version)
		if ok && (strings.HasPrefix(unprefixed, "request_") || strings.HasPrefix(unprefixed, "cookie_")) {
			name = unprefixed
		}
	}
	for i := range definitions {
		if d := &definitions[i]; !d.isFamily() && d.name == name {
			return Variable{def: d}, true
		}
	}
	for i := range definitions {
		d := &definitions[i]
		if arg, ok := strings.CutPrefix(name, d.name); ok && d.isFamily() && arg != "" {
			return Variable{d, arg}, true
		}
	}
	return Variable{}, false
}

// Names yields the name and the description of every variable in a fixed order, for documentation.
// A family's name ends in NAME.
func Names() iter.Seq2[string, string] {
	return func(yield func(name, doc string) bool) {
		for i := range definitions {
			name := definitions[i].name
			if definitions[i].isFamily() {
				name += "NAME"
			}
			if !yield(name, definitions[i].doc) {
				return
			}
		}
	}
}

// Name returns the variable's name as documented, its argument included.
func (v Variable) Name() string { return v.def.name + v.arg }

// Text returns the raw value of v, and whether x has one. The string may borrow x, and is valid
// only as long as x.
func (v Variable) Text(x *protocol.Exchange) (string, bool) {
	if v.def.text != nil {
		return v.def.text(x, v.arg)
	}
	b, ok := v.def.write(nil, x)
	return string(b), ok
}

// Field returns the name of the request header whose first value Text returns, and false if the
// value of v does not come from a header that can repeat. A condition on v must evaluate each value
// of that header.
func (v Variable) Field(x *protocol.Exchange) (name string, ok bool) {
	if v.def.field == nil {
		return "", false
	}
	return v.def.field(x, v.arg)
}

// Append appends the raw value of v, and reports whether x has one. If x has none, Append returns
// dst unchanged.
func (v Variable) Append(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if v.def.text == nil {
		return v.def.write(dst, x)
	}
	text, ok := v.def.text(x, v.arg)
	if !ok {
		return dst, false
	}
	return append(dst, text...), true
}

// Nearest returns the known name that is most similar to name, for error messages, or "" if none is
// similar enough.
func Nearest(name string) string {
	best, minDistance := "", len(name)
	for i := range definitions {
		prefix, typed, displayed := definitions[i].name, name, definitions[i].name
		if definitions[i].isFamily() { // the argument after the family's name may be any text
			typed = name[:min(len(name), len(prefix))]
			displayed += "NAME"
		}
		if d := distance(typed, prefix); d < minDistance && d <= max(1, len(prefix)/3) {
			best, minDistance = displayed, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
