package protocol

import (
	"iter"
	"strings"
)

// BalancerNamespace is the namespace of the metadata that chooses hosts: the labels
// of a subset. MOSN calls it "mosn.lb", Envoy "envoy.lb"; they are one.
const BalancerNamespace = "mosn.lb"

// Namespace returns the one spelling of a namespace that has two.
func Namespace(name string) string {
	if name == "envoy.lb" {
		return BalancerNamespace
	}
	return name
}

// MetadataKey returns the key of a value inside other values, as claims of a token
// are. A path of one part is its own key. It allocates for more: call it when a
// configuration is built.
func MetadataKey(path ...string) string { return strings.Join(path, "\x00") }

// Metadata is what filters found out about a request, for services further in: the
// labels of the hosts that it may go to, the claims of its token. It is part of the
// exchange, costs nothing while it is empty, and keeps its storage. Lookups are
// linear: there are few entries.
//
// Strings may be views, valid as long as the exchange. Namespaces are spelt as
// Namespace returns them, keys as MetadataKey does.
type Metadata struct {
	entries []metadatum
}

type metadatum struct {
	namespace, key, value string
	of                    valueOf
}

// valueOf says what a value is one of.
type valueOf uint8

const (
	ofKey   valueOf = iota // see Add
	ofField                // see AddRepeated
	ofList                 // see AddElement
)

// Set makes value the only value of key.
func (m *Metadata) Set(namespace, key, value string) {
	m.Del(namespace, key)
	m.Add(namespace, key, value)
}

// Add appends a value beside those that key has: lists have several.
func (m *Metadata) Add(namespace, key, value string) {
	m.entries = append(m.entries, metadatum{namespace: namespace, key: key, value: value})
}

// AddRepeated appends another value of a key that stands for a repeated header field.
// The values are not a list: a condition on the key looks at each of them by itself, as
// one on the field does.
func (m *Metadata) AddRepeated(namespace, key, value string) {
	m.entries = append(m.entries, metadatum{namespace: namespace, key: key, value: value, of: ofField})
}

// Repeats reports whether key has values of AddRepeated.
func (m *Metadata) Repeats(namespace, key string) bool {
	return m.has(namespace, key, ofField)
}

// AddElement appends an element of the list that key has. A list is one even if it has
// only one element.
func (m *Metadata) AddElement(namespace, key, value string) {
	m.entries = append(m.entries, metadatum{namespace: namespace, key: key, value: value, of: ofList})
}

// IsList reports whether key has values of AddElement.
func (m *Metadata) IsList(namespace, key string) bool {
	return m.has(namespace, key, ofList)
}

func (m *Metadata) has(namespace, key string, of valueOf) bool {
	for i := range m.entries {
		if e := &m.entries[i]; e.of == of && e.key == key && e.namespace == namespace {
			return true
		}
	}
	return false
}

// Del removes every value of key.
func (m *Metadata) Del(namespace, key string) {
	kept := 0
	for i := range m.entries {
		if e := &m.entries[i]; e.namespace != namespace || e.key != key {
			m.entries[kept] = *e
			kept++
		}
	}
	clear(m.entries[kept:])
	m.entries = m.entries[:kept]
}

// Lookup returns the first value of key and whether there is one.
func (m *Metadata) Lookup(namespace, key string) (string, bool) {
	for i := range m.entries {
		if e := &m.entries[i]; e.key == key && e.namespace == namespace {
			return e.value, true
		}
	}
	return "", false
}

// Len returns the number of values in all namespaces.
func (m *Metadata) Len() int { return len(m.entries) }

// Values yields the values of key in the order in which they came.
func (m *Metadata) Values(namespace, key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range m.entries {
			if e := &m.entries[i]; e.key == key && e.namespace == namespace && !yield(e.value) {
				return
			}
		}
	}
}

// All yields the keys and values of a namespace in the order in which they came.
func (m *Metadata) All(namespace string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for i := range m.entries {
			if e := &m.entries[i]; e.namespace == namespace && !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Clone returns metadata of its own, whose strings are no views.
func (m *Metadata) Clone() Metadata {
	c := Metadata{entries: make([]metadatum, len(m.entries))}
	for i, e := range m.entries {
		c.entries[i] = metadatum{strings.Clone(e.namespace), strings.Clone(e.key), strings.Clone(e.value), e.of}
	}
	return c
}

func (m *Metadata) reset() {
	clear(m.entries)
	m.entries = m.entries[:0]
}
