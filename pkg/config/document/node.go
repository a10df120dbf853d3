package document

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is what a value is.
type Kind uint8

// The kinds. Invalid is a value that could not be read: it was reported, and
// whoever decodes it passes over it in silence.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Object
	Array
)

// String returns the kind as diagnostics name it.
func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an object", "a list"}[k]
}

// Document is one parsed file. It is read through its nodes.
type Document struct {
	name    string
	src     []byte
	entries []entry  // in the order of the source: an entry, its members, the next
	texts   []string // what differs from its spelling in src
	lines   []uint32 // where each line begins; nil until a position is asked for
}

// entry is one value. Its subtree is the entries from its own index to end.
type entry struct {
	parent uint32
	end    uint32
	key    uint32 // offset of the key's first byte; without flagKeyText, of its text
	keyLen uint32 // or, with flagKeyText, its index in texts
	at     uint32 // offset of the value's first byte
	size   uint32 // bytes of its text, or, with flagText, its index in texts
	kind   Kind
	flags  flags
}

type flags uint8

const (
	flagQuoted   flags = 1 << iota // the text begins one byte after at
	flagText                       // the text is in texts
	flagKeyText                    // the key is in texts
	flagKeyed                      // it is a member of an object
	flagExpanded                   // its text came out of ${…}; the next of texts is what was written
	flagSecret                     // it is not to be printed
)

// Node is one value of a document. The zero Node is an absent value: its kind
// is Invalid and it has no members.
type Node struct {
	d *Document
	i uint32
}

// Position is where something is written.
type Position struct {
	File         string
	Line, Column int // from 1; the column in characters
}

// Exists reports whether there is a value; null is none.
func (n Node) Exists() bool { return n.d != nil && n.entry().kind > Null }

// Kind returns what the value is, Invalid for an absent one.
func (n Node) Kind() Kind {
	if n.d == nil {
		return Invalid
	}
	return n.entry().kind
}

func (n Node) entry() *entry { return &n.d.entries[n.i] }

// Text returns the text of a string, number or boolean, "" for anything else.
func (n Node) Text() string { return string(n.text()) }

// text returns the bytes of Text, valid as long as the document.
func (n Node) text() []byte {
	if n.d == nil {
		return nil
	}
	e := n.entry()
	switch {
	case e.kind < Bool || e.kind > String:
		return nil
	case e.flags&flagText != 0:
		return []byte(n.d.texts[e.size])
	}
	start := e.at
	if e.flags&flagQuoted != 0 {
		start++
	}
	return n.d.src[start : start+e.size]
}

// written returns Text as it stands in the document, before ${…} was expanded.
func (n Node) written() string {
	if e := n.entry(); e.flags&flagExpanded != 0 {
		return n.d.texts[e.size+1]
	}
	return n.Text()
}

// Key returns the key of a member of an object, "" for other values.
func (n Node) Key() string { return string(n.keyText()) }

func (n Node) keyText() []byte {
	e := n.entry()
	switch {
	case e.flags&flagKeyed == 0:
		return nil
	case e.flags&flagKeyText != 0:
		return []byte(n.d.texts[e.keyLen])
	}
	return n.d.src[e.key : e.key+e.keyLen]
}

// Len returns the number of members of an object or elements of a list.
func (n Node) Len() int {
	count := 0
	for range n.All() {
		count++
	}
	return count
}

// All yields the members of an object or the elements of a list, in order.
func (n Node) All() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		if n.d == nil {
			return
		}
		end := n.entry().end
		for i := n.i + 1; i < end; i = n.d.entries[i].end {
			if !yield(Node{n.d, i}) {
				return
			}
		}
	}
}

// Get returns the member of an object under any of the names, compared without
// case; the zero Node if there is none.
func (n Node) Get(names ...string) Node {
	if n.Kind() != Object {
		return Node{}
	}
	for member := range n.All() {
		key := member.keyText()
		for _, name := range names {
			if len(key) == len(name) && bytes.EqualFold(key, []byte(name)) {
				return member
			}
		}
	}
	return Node{}
}

// Member returns the member under a name, or an empty object that stands for
// it, at the place of n: to decode what may be left out and still has
// obligations. n is an object.
func (n Node) Member(name string) Node {
	if member := n.Get(name); member.Exists() || n.d == nil {
		return member
	}
	e := entry{at: n.entry().at, key: n.entry().at, keyLen: n.d.keep(name), kind: Object, flags: flagKeyed | flagKeyText}
	return Node{n.d, n.d.open(n.i, e)}
}

// Or returns n, or other if n is absent: a place to point at.
func (n Node) Or(other Node) Node {
	if n.d == nil {
		return other
	}
	return n
}

// Off reports whether a value asks for nothing: it is absent, null, false, 0,
// "", "0s", an empty list or object, an object whose members are all off, or
// one with "enable", "enabled" or "status" false.
func (n Node) Off() bool {
	switch n.Kind() {
	case Invalid, Null:
		return true
	case Bool:
		return n.Text() == "false"
	case Number:
		v, err := strconv.ParseFloat(n.Text(), 64)
		return err == nil && v == 0
	case String:
		text := n.Text()
		return text == "" || text == "0s" || text == "0"
	case Object, Array:
	}
	for _, name := range []string{"enable", "enabled", "status"} {
		if s := n.Get(name); s.Kind() == Bool && s.Text() == "false" {
			return true
		}
	}
	for member := range n.All() {
		if !member.Off() {
			return false
		}
	}
	return true
}

// Value returns the value as Go's own types: nil, bool, int64, float64, string,
// []any, map[string]any. A number that fits no int64 is a float64.
func (n Node) Value() any {
	switch n.Kind() {
	case Bool:
		return n.Text() == "true"
	case Number:
		return number(n.Text())
	case String:
		return n.Text()
	case Array:
		list := make([]any, 0, n.Len())
		for element := range n.All() {
			list = append(list, element.Value())
		}
		return list
	case Object:
		object := make(map[string]any, n.Len())
		for member := range n.All() {
			object[member.Key()] = member.Value()
		}
		return object
	case Invalid, Null:
	}
	return nil
}

func number(text string) any {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	f, _ := strconv.ParseFloat(text, 64) // the grammar was checked; too large is an infinity
	return f
}

// Found describes the value for a diagnostic: its kind, and what it says if
// that is short and no secret.
func (n Node) Found() string {
	const most = 40 // bytes that help to recognise it
	kind := n.Kind()
	if kind != Bool && kind != Number && kind != String || n.entry().flags&flagSecret != 0 {
		return kind.String()
	}
	text := n.Text()
	if looksSecret(text) {
		return kind.String()
	}
	if len(text) > most {
		cut := most
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	if kind == Bool {
		return text
	}
	if kind == Number {
		return "the number " + text
	}
	return "the string " + strconv.Quote(text)
}

// Path returns the way to the value: servers[0].listeners[2].address. Keys are
// spelt as written; those with other characters than letters, digits, "_" and
// "-" are quoted: metadata["mosn.lb"].
func (n Node) Path() string {
	if n.d == nil {
		return ""
	}
	var way []uint32
	for i := n.i; i != 0; i = n.d.entries[i].parent {
		way = append(way, i)
	}
	var path []byte
	for _, i := range slices.Backward(way) {
		step := Node{n.d, i}
		key := step.keyText()
		switch {
		case step.entry().flags&flagKeyed == 0:
			path = append(path, '[')
			path = strconv.AppendInt(path, int64(step.index()), 10)
			path = append(path, ']')
		case plainKey(key):
			if len(path) > 0 {
				path = append(path, '.')
			}
			path = append(path, key...)
		default:
			path = append(path, '[')
			path = strconv.AppendQuote(path, string(key))
			path = append(path, ']')
		}
	}
	return string(path)
}

// index is the place of an element in its list. The list may be still open: only
// what comes before the element is looked at.
func (n Node) index() int {
	at := 0
	for i := n.entry().parent + 1; i != n.i; i = n.d.entries[i].end {
		at++
	}
	return at
}

func plainKey(key []byte) bool {
	for _, c := range key {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return len(key) > 0
}

// Position returns where the value begins; the zero Position for an absent one.
func (n Node) Position() Position {
	if n.d == nil {
		return Position{}
	}
	return n.d.position(n.entry().at)
}

// KeyPosition returns where the key of a member begins, and Position for other
// values.
func (n Node) KeyPosition() Position {
	e := n.entry()
	if e.flags&flagKeyed == 0 {
		return n.Position()
	}
	at := e.key
	if at > 0 && e.flags&flagKeyText == 0 && n.d.src[at-1] == '"' {
		at--
	}
	return n.d.position(at)
}

// position works out line and column of an offset.
func (d *Document) position(at uint32) Position {
	line, start := d.line(at)
	return Position{File: d.name, Line: line + 1, Column: 1 + utf8.RuneCount(d.src[start:at])}
}

// line returns the index of the line that holds an offset, and where it begins.
func (d *Document) line(at uint32) (index int, start uint32) {
	if d.lines == nil {
		d.lines = make([]uint32, 1, 1+bytes.Count(d.src, []byte{'\n'}))
		for i, c := range d.src {
			if c == '\n' {
				d.lines = append(d.lines, uint32(i)+1)
			}
		}
	}
	index, exact := slices.BinarySearch(d.lines, at)
	if !exact {
		index--
	}
	return index, d.lines[index]
}

// open appends an entry whose subtree begins; close ends it.
func (d *Document) open(parent uint32, e entry) uint32 {
	i := uint32(len(d.entries))
	e.parent, e.end = parent, i+1
	d.entries = append(d.entries, e)
	return i
}

func (d *Document) close(i uint32) { d.entries[i].end = uint32(len(d.entries)) }

// keep stores texts that are not spelt in the source and returns the index of
// the first.
func (d *Document) keep(texts ...string) uint32 {
	i := uint32(len(d.texts))
	d.texts = append(d.texts, texts...)
	return i
}

// looksSecret recognises what must not be printed wherever it stands.
func looksSecret(text string) bool { return strings.Contains(text, "PRIVATE KEY-----") }

// checkDuplicates reports the members of an object whose key was there before.
func (d *Document) checkDuplicates(object uint32, r *Report) {
	const few = 12 // keys that are compared with each other faster than by a map
	n := Node{d, object}
	count := n.Len()
	if count > few {
		seen := make(map[string]Node, count)
		for member := range n.All() {
			key := member.Key()
			if first, there := seen[key]; there {
				r.duplicate(member, first)
				continue
			}
			seen[key] = member
		}
		return
	}
	var seen [few]Node
	var keys [few][]byte
	at := 0
	for member := range n.All() {
		seen[at], keys[at] = member, member.keyText()
		for i := range at {
			if bytes.Equal(keys[i], keys[at]) {
				r.duplicate(member, seen[i])
				break
			}
		}
		at++
	}
}

// duplicate reports a key that its object has already.
func (r *Report) duplicate(member, first Node) {
	r.at(member, member.KeyPosition(), Diagnostic{
		Problem: fmt.Sprintf("duplicate key %q: it was written first in line %d", member.Key(), first.KeyPosition().Line),
	})
}
