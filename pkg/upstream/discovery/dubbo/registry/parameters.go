package registry

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Parameters are what a URL says beside the address, each name once. They are not changed,
// and hold on to no other text: a process keeps those of tens of thousands of providers.
// The zero value has none.
type Parameters struct {
	text  string // names and values, one after the other
	spans []span // by name
}

// span is where a parameter is in the text: the value ends where the next name begins.
type span struct{ name, value uint32 }

// pair is a parameter of its own.
type pair struct{ name, value string }

// ParametersOf returns what is in a map.
func ParametersOf(all map[string]string) Parameters {
	pairs := make([]pair, 0, len(all))
	for name, value := range all {
		pairs = append(pairs, pair{name, value})
	}
	return collect(pairs)
}

// collect returns pairs as parameters; it sorts pairs. Of those of one name the last counts.
func collect(pairs []pair) Parameters {
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
	for i, one := range pairs {
		if !isLast(i) {
			continue
		}
		at := uint32(b.Len()) //nolint:gosec // a URL is bounded
		p.spans = append(p.spans, span{at, at + uint32(len(one.name))})
		b.WriteString(one.name)
		b.WriteString(one.value)
	}
	p.text = b.String()
	return p
}

// Len returns how many there are.
func (p Parameters) Len() int { return len(p.spans) }

// at returns the i-th by name.
func (p Parameters) at(i int) (name, value string) {
	end := uint32(len(p.text)) //nolint:gosec // as in collect
	if i+1 < len(p.spans) {
		end = p.spans[i+1].name
	}
	s := p.spans[i]
	return p.text[s.name:s.value], p.text[s.value:end]
}

// Lookup returns the value of a parameter, and whether it is there.
func (p Parameters) Lookup(name string) (value string, there bool) {
	i, there := slices.BinarySearchFunc(p.spans, name, func(s span, name string) int {
		return cmp.Compare(p.text[s.name:s.value], name)
	})
	if !there {
		return "", false
	}
	_, value = p.at(i)
	return value, true
}

// Get returns the value of a parameter; "": it is not there, or empty.
func (p Parameters) Get(name string) string {
	value, _ := p.Lookup(name)
	return value
}

// All goes through them in the order of their names.
func (p Parameters) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for i := range p.spans {
			if !yield(p.at(i)) {
				return
			}
		}
	}
}

// Map returns them as a map of the caller's own; it is never nil.
func (p Parameters) Map() map[string]string {
	all := make(map[string]string, len(p.spans))
	maps.Insert(all, p.All())
	return all
}

// Equal reports whether both have the same names and values.
func (p Parameters) Equal(q Parameters) bool {
	return p.text == q.text && slices.Equal(p.spans, q.spans)
}
