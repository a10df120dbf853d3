package protocol

import (
	"iter"
	"strings"
)

// BalancerNamespace is the namespace of the metadata that selects hosts: the labels of a subset.
// MOSN calls it "mosn.lb", Envoy "envoy.lb"; Weft treats them as one.
const BalancerNamespace = "mosn.lb"

// Namespace returns the canonical spelling of a namespace.
func Namespace(name string) string {
	if name == "envoy.lb" {
		return BalancerNamespace
	}
	return name
}

// MetadataKey returns the key of a nested value, such as a claim in a token. A path of one part is
// its own key. MetadataKey allocates for longer paths: call it when a configuration is built.
func MetadataKey(path ...string) string { return strings.Join(path, "\x00") }

// Metadata holds values that filters determine for a request and later services use, such as the
// labels of permitted hosts or the claims of a token. Its storage is reused with the exchange.
// Lookups are linear, because there are few entries.
//
// Strings may borrow memory of the exchange, and are valid only as long as the exchange. Callers
// pass namespaces in the spelling that Namespace returns, and keys of nested values as MetadataKey
// returns them.
type Metadata struct {
	entries []metadataEntry
}

type metadataEntry struct {
	namespace, key, value string
	kind                  valueKind
}

// valueKind is the method that added a value.
type valueKind uint8

const (
	kindPlain    valueKind = iota // see Add
	kindRepeated                  // see AddRepeated
	kindList                      // see AddElement
)

// Set makes value the only value of key.
func (m *Metadata) Set(namespace, key, value string) {
	m.Del(namespace, key)
	m.Add(namespace, key, value)
}

// Add appends a value to the values of key.
func (m *Metadata) Add(namespace, key, value string) {
	m.entries = append(m.entries, metadataEntry{namespace: namespace, key: key, value: value})
}

// AddRepeated appends a value to a key that represents a repeated header. The values are not a
// list: a condition on the key evaluates each of them separately, as a condition on the header
// does.
func (m *Metadata) AddRepeated(namespace, key, value string) {
	m.entries = append(m.entries, metadataEntry{namespace: namespace, key: key, value: value, kind: kindRepeated})
}

// Repeats reports whether key has values that AddRepeated added.
func (m *Metadata) Repeats(namespace, key string) bool {
	return m.has(namespace, key, kindRepeated)
}

// AddElement appends an element to the list under key. The key is a list even if it has only one
// element.
func (m *Metadata) AddElement(namespace, key, value string) {
	m.entries = append(m.entries, metadataEntry{namespace: namespace, key: key, value: value, kind: kindList})
}

// IsList reports whether key has values that AddElement added.
func (m *Metadata) IsList(namespace, key string) bool {
	return m.has(namespace, key, kindList)
}

func (m *Metadata) has(namespace, key string, kind valueKind) bool {
	for i := range m.entries {
		if e := &m.entries[i]; e.kind == kind && e.key == key && e.namespace == namespace {
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

// Values yields the values of key in the order in which they were added.
func (m *Metadata) Values(namespace, key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range m.entries {
			if e := &m.entries[i]; e.key == key && e.namespace == namespace && !yield(e.value) {
				return
			}
		}
	}
}

// All yields the keys and values of a namespace in the order in which they were added.
func (m *Metadata) All(namespace string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for i := range m.entries {
			if e := &m.entries[i]; e.namespace == namespace && !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Clone returns a copy that owns its strings.
func (m *Metadata) Clone() Metadata {
	c := Metadata{entries: make([]metadataEntry, len(m.entries))}
	for i, e := range m.entries {
		c.entries[i] = metadataEntry{strings.Clone(e.namespace), strings.Clone(e.key), strings.Clone(e.value), e.kind}
	}
	return c
}

func (m *Metadata) reset() {
	clear(m.entries)
	m.entries = m.entries[:0]
}
