package registry

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Parameters holds the query parameters of a URL, with unique names. It is immutable. It copies the
// names and values, so that the parameters of tens of thousands of providers do not retain the
// larger texts from which they were parsed. The zero value is empty.
type Parameters struct {
	text  string // concatenated names and values
	spans []span // sorted by name
}

// span is the position of a parameter in the text. The value ends where the next name begins.
type span struct{ name, value uint32 }

// pair is one parameter.
type pair struct{ name, value string }

// ParametersOf returns the entries of a map as Parameters.
func ParametersOf(parameters map[string]string) Parameters {
	pairs := make([]pair, 0, len(parameters))
	for name, value := range parameters {
		pairs = append(pairs, pair{name, value})
	}
	return newParameters(pairs)
}

// newParameters returns pairs as Parameters. It sorts pairs in place. The last pair of a name wins.
func newParameters(pairs []pair) Parameters {
	if len(pairs) == 0 {
		return Parameters{}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(a.name, b.name) })
	length, names := 0, 0
	isLast := func(i int) bool { return i == len(pairs)-1 || pairs[i+1].name != pairs[i].name }
	for i, p := range pairs {
		if isLast(i) {
			length += len(p.name) + len(p.value)
			names++
		}
	}
	var b strings.Builder
	b.Grow(length)
	p := Parameters{spans: make([]span, 0, names)}
	for i, pr := range pairs {
		if !isLast(i) {
			continue
		}
		start := uint32(b.Len()) //nolint:gosec // a URL is bounded
		p.spans = append(p.spans, span{start, start + uint32(len(pr.name))})
		b.WriteString(pr.name)
		b.WriteString(pr.value)
	}
	p.text = b.String()
	return p
}

// Len returns the number of parameters.
func (p Parameters) Len() int { return len(p.spans) }

// at returns the i-th parameter in the order of names.
func (p Parameters) at(i int) (name, value string) {
	end := uint32(len(p.text)) //nolint:gosec // as in newParameters
	if i+1 < len(p.spans) {
		end = p.spans[i+1].name
	}
	s := p.spans[i]
	return p.text[s.name:s.value], p.text[s.value:end]
}

// Lookup returns the value of a parameter, and whether the parameter exists.
func (p Parameters) Lookup(name string) (value string, ok bool) {
	i, ok := slices.BinarySearchFunc(p.spans, name, func(s span, name string) int {
		return cmp.Compare(p.text[s.name:s.value], name)
	})
	if !ok {
		return "", false
	}
	_, value = p.at(i)
	return value, true
}

// Get returns the value of a parameter, or "" if it is missing or empty.
func (p Parameters) Get(name string) string {
	value, _ := p.Lookup(name)
	return value
}

// All iterates over the parameters in the order of their names.
func (p Parameters) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for i := range p.spans {
			if !yield(p.at(i)) {
				return
			}
		}
	}
}

// Map returns a copy as a map, which is never nil. The caller may modify it.
func (p Parameters) Map() map[string]string {
	values := make(map[string]string, len(p.spans))
	maps.Insert(values, p.All())
	return values
}

// Equal reports whether p and q have the same names and values.
func (p Parameters) Equal(q Parameters) bool {
	return p.text == q.text && slices.Equal(p.spans, q.spans)
}
