package protocol

import (
	"iter"
	"slices"
	"strings"
)

// Field is one header as on the wire.
type Field struct{ Name, Value string }

// Header is an ordered list of headers. It keeps order, case and repetition, and compares names
// without regard to ASCII case (RFC 9110 5.1). The zero value is empty. Lookups are linear, because
// heads are short and bounded.
type Header struct {
	fields  []Field
	changed bool
	loader  FieldLoader // nil: the fields are loaded
}

// FieldLoader loads fields that are expensive to decode.
type FieldLoader interface {
	// LoadFields adds the fields to h, which is empty.
	LoadFields(h *Header)
}

// SetLoader makes loader load the fields of h, which is empty, when they are first read or changed:
// most responses are forwarded without a look at their fields. Loading does not set Changed.
func (h *Header) SetLoader(loader FieldLoader) { h.loader = loader }

func (h *Header) load() {
	loader := h.loader
	h.loader = nil
	loader.LoadFields(h)
	h.MarkUnchanged()
}

// Len returns the number of fields.
func (h *Header) Len() int {
	if h.loader != nil {
		h.load()
	}
	return len(h.fields)
}

// At returns field i, valid until the next call that adds or removes a field. The caller may change
// the field in place, which Changed does not detect. Call Len first.
func (h *Header) At(i int) *Field { return &h.fields[i] }

// All yields the fields in order.
func (h *Header) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if h.loader != nil {
			h.load()
		}
		for i := range h.fields {
			if !yield(h.fields[i].Name, h.fields[i].Value) {
				return
			}
		}
	}
}

// CloneFields returns the fields in order, for code that keeps them: no string borrows the buffer
// from which a message was read.
func (h *Header) CloneFields() []Field {
	fields := make([]Field, 0, h.Len())
	for name, value := range h.All() {
		fields = append(fields, Field{Name: strings.Clone(name), Value: strings.Clone(value)})
	}
	return fields
}

// Get returns the value of the first field called name, or "" if there is none.
func (h *Header) Get(name string) string {
	v, _ := h.Lookup(name)
	return v
}

// Lookup returns the value of the first field called name and whether there is one.
func (h *Header) Lookup(name string) (string, bool) {
	if h.loader != nil {
		h.load()
	}
	for i := range h.fields {
		if EqualFold(h.fields[i].Name, name) {
			return h.fields[i].Value, true
		}
	}
	return "", false
}

// Changed reports whether a field was added or removed, or got another value by Set, since
// MarkUnchanged or Reset. Engines that forward messages byte for byte use it.
func (h *Header) Changed() bool { return h.changed }

// MarkUnchanged makes Changed return false until the next change.
func (h *Header) MarkUnchanged() { h.changed = false }

// Add appends a field.
func (h *Header) Add(name, value string) {
	if h.loader != nil {
		h.load()
	}
	h.changed = true
	h.fields = append(h.fields, Field{name, value})
}

// Set makes value the only value of name: it replaces the first field of that name, or appends one.
func (h *Header) Set(name, value string) {
	if h.loader != nil {
		h.load()
	}
	for i := range h.fields {
		if EqualFold(h.fields[i].Name, name) {
			h.changed = h.changed || h.fields[i].Value != value
			h.fields[i].Value = value
			h.removeFrom(i+1, name)
			return
		}
	}
	h.Add(name, value)
}

// Del removes every field called name and reports whether there was one.
func (h *Header) Del(name string) bool {
	if h.loader != nil {
		h.load()
	}
	n := len(h.fields)
	h.removeFrom(0, name)
	return len(h.fields) < n
}

// DelFunc removes every field for whose name del returns true.
func (h *Header) DelFunc(del func(name string) bool) {
	if h.loader != nil {
		h.load()
	}
	n := len(h.fields)
	h.fields = slices.DeleteFunc(h.fields, func(f Field) bool { return del(f.Name) })
	h.changed = h.changed || len(h.fields) < n
}

func (h *Header) removeFrom(start int, name string) {
	kept := start
	for i := start; i < len(h.fields); i++ {
		if EqualFold(h.fields[i].Name, name) {
			continue
		}
		if kept != i {
			h.fields[kept] = h.fields[i]
		}
		kept++
	}
	if kept < len(h.fields) {
		h.changed = true
	}
	clear(h.fields[kept:])
	h.fields = h.fields[:kept]
}

// Reset removes all fields and keeps the storage. Changed then returns false, so only code that
// builds a message calls Reset.
func (h *Header) Reset() {
	clear(h.fields)
	h.fields = h.fields[:0]
	h.changed, h.loader = false, nil
}

// EqualFold reports whether a and b are equal under ASCII case folding.
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 0; i < len(a); i++ {
		if x, y := a[i], b[i]; x != y && toLower(x) != toLower(y) {
			return false
		}
	}
	return true
}

// HasPrefixFold reports whether s begins with prefix under ASCII case folding.
func HasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && EqualFold(s[:len(prefix)], prefix)
}

// AppendLower appends text to dst with its ASCII letters in lower case.
func AppendLower(dst []byte, text string) []byte {
	for i := range len(text) {
		dst = append(dst, toLower(text[i]))
	}
	return dst
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
