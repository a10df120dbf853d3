package document

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Value is a value of a document that a program builds, for example from a protobuf message. Build
// converts it to a document. A Value is not safe for concurrent use. Several objects and lists may
// share a Value, but a Value must not contain itself. A nil Value is an absent value: it has no
// text and no members.
type Value struct {
	kind    Kind
	text    string // text of a string, number or boolean
	members []valueMember
}

// valueMember is a member of an object or, without a key, an element of a list.
type valueMember struct {
	key   string
	value *Value
}

// NewNull returns null.
func NewNull() *Value { return &Value{kind: Null} }

// NewBool returns a boolean.
func NewBool(b bool) *Value {
	if b {
		return &Value{kind: Bool, text: "true"}
	}
	return &Value{kind: Bool, text: "false"}
}

// NewNumber returns a number. It panics if text does not match the grammar of numbers in JSON (RFC
// 8259 section 6).
func NewNumber(text string) *Value {
	if !isNumber([]byte(text)) {
		panic(fmt.Sprintf("document: NewNumber of %q", text))
	}
	return &Value{kind: Number, text: text}
}

// NewString returns a string. text must be valid UTF-8. Variables in it, ${NAME}, are not expanded.
func NewString(text string) *Value { return &Value{kind: String, text: text} }

// NewList returns a list of the elements.
func NewList(elements ...*Value) *Value {
	v := &Value{kind: Array, members: make([]valueMember, len(elements))}
	for i, e := range elements {
		v.members[i].value = e
	}
	return v
}

// NewObject returns an empty object with space for capacity members.
func NewObject(capacity int) *Value {
	return &Value{kind: Object, members: make([]valueMember, 0, capacity)}
}

// Kind returns the kind of v, or Invalid if v is absent.
func (v *Value) Kind() Kind {
	if v == nil {
		return Invalid
	}
	return v.kind
}

// Text returns the text of a string, number or boolean, "" for anything else.
func (v *Value) Text() string {
	if v == nil {
		return ""
	}
	return v.text
}

// Len returns the number of members of an object or elements of a list.
func (v *Value) Len() int {
	if v == nil {
		return 0
	}
	return len(v.members)
}

// Members yields the members of an object with their keys, in order. The loop must not add or
// delete members of v.
func (v *Value) Members() iter.Seq2[string, *Value] {
	return func(yield func(string, *Value) bool) {
		for i := 0; v.Kind() == Object && i < len(v.members) && yield(v.members[i].key, v.members[i].value); i++ {
		}
	}
}

// Elements yields the elements of a list with their indexes, in order.
func (v *Value) Elements() iter.Seq2[int, *Value] {
	return func(yield func(int, *Value) bool) {
		for i := 0; v.Kind() == Array && i < len(v.members) && yield(i, v.members[i].value); i++ {
		}
	}
}

// Get returns the member of an object by its key, nil if there is none. The key is case-sensitive.
func (v *Value) Get(key string) *Value {
	if i := v.find(key); i >= 0 {
		return v.members[i].value
	}
	return nil
}

func (v *Value) find(key string) int {
	if v.Kind() != Object {
		return -1
	}
	return slices.IndexFunc(v.members, func(m valueMember) bool { return m.key == key })
}

// Add appends a member to an object, which must not have a member with that key.
func (v *Value) Add(key string, member *Value) {
	v.members = append(v.members, valueMember{key, member})
}

// Set replaces the member of an object that has the key, or appends a member if there is none.
func (v *Value) Set(key string, member *Value) {
	if i := v.find(key); i >= 0 {
		v.members[i].value = member
		return
	}
	v.Add(key, member)
}

// Delete removes the member of an object that has the key, if there is one.
func (v *Value) Delete(key string) {
	if i := v.find(key); i >= 0 {
		v.members = slices.Delete(v.members, i, i+1)
	}
}

// SortKeys sorts the members of every object in v by their keys.
func (v *Value) SortKeys() {
	if v.kind == Object {
		slices.SortFunc(v.members, func(a, b valueMember) int { return strings.Compare(a.key, b.key) })
	}
	for _, m := range v.members {
		m.value.SortKeys()
	}
}

// Build converts v to a document and returns its root. Diagnostics use name as the file name. The
// document has one line, on which the values have increasing positions. If v is nested too deeply,
// Build reports it to r and returns the zero Node. The document does not refer to v.
func Build(name string, v *Value, r *Report) Node {
	values, size := v.measure()
	d := &Document{name: name, src: make([]byte, 0, size), entries: make([]entry, 0, values), lines: []uint32{0}}
	if !d.addValue(0, entry{}, v, 0) {
		pos := d.position(uint32(len(d.src))) //nolint:gosec // documents are smaller than 4 GiB
		r.Add(Diagnostic{File: pos.File, Line: pos.Line, Column: pos.Column, Problem: fmt.Sprintf("more than %d levels of nesting", maxDepth)})
		return Node{}
	}
	return Node{d: d}
}

// measure returns the number of values in v and an upper bound of their size in the source that
// addValue writes.
func (v *Value) measure() (values, size int) {
	values, size = 1, len(v.text)+1
	for _, m := range v.members {
		n, bytes := m.value.measure()
		values, size = values+n, size+len(m.key)+1+bytes
	}
	return values, size
}

// addValue appends an entry for v, whose key e contains, and entries for its members. It writes
// each text and one separator byte to d.src, so that no two values have the same position. It
// returns false if v is nested too deeply.
func (d *Document) addValue(parent uint32, e entry, v *Value, depth int) bool {
	e.offset, e.kind = uint32(len(d.src)), v.kind //nolint:gosec // documents are smaller than 4 GiB
	if v.kind != Object && v.kind != Array {
		e.size = uint32(len(v.text)) //nolint:gosec // likewise
		d.src = append(append(d.src, v.text...), ',')
		d.beginEntry(parent, e)
		return true
	}
	if depth == maxDepth {
		return false
	}
	index := d.beginEntry(parent, e)
	d.src = append(d.src, '{')
	for _, m := range v.members {
		var member entry
		if v.kind == Object {
			member = entry{flags: flagKeyed, key: uint32(len(d.src)), keyLen: uint32(len(m.key))} //nolint:gosec // likewise
			d.src = append(append(d.src, m.key...), ':')
		}
		if !d.addValue(index, member, m.value, depth+1) {
			return false
		}
	}
	d.endEntry(index)
	return true
}
