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

// Kind is the kind of a value.
type Kind uint8

// The kinds. Invalid is a value that could not be read. It has been reported, and the Decoder skips
// it without another report.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Object
	Array
)

// String returns the words for the kind in diagnostics, such as "a number".
func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an object", "a list"}[k]
}

// Document is one parsed file. Callers read it through its nodes.
type Document struct {
	name string
	src  []byte
	// entries are in source order: an entry, then its members, then the next entry; objects that
	// MemberOrEmpty adds come last.
	entries []entry
	texts   []string // texts stored outside src
	lines   []uint32 // offset of each line; nil until the first use
}

// entry is one value. Its subtree consists of the entries from its own index to end.
type entry struct {
	parent uint32
	end    uint32
	key    uint32 // offset of the key's text or, with flagStoredKey, of its position for diagnostics
	keyLen uint32 // length of the key or, with flagStoredKey, its index in texts
	offset uint32 // offset of the value's first byte
	size   uint32 // length of the text in bytes or, with flagStoredText, its index in texts
	kind   Kind
	flags  flags
}

type flags uint8

const (
	flagQuoted     flags = 1 << iota // the text begins one byte after offset
	flagStoredText                   // texts contains the text
	flagStoredKey                    // texts contains the key
	flagKeyed                        // the value is a member of an object
	flagExpanded                     // the text was expanded from ${…}; the next entry of texts is the original
	flagSecret                       // the value is secret
)

// Node is one value of a document. The zero Node is an absent value: its kind is Invalid and it has
// no members.
type Node struct {
	d *Document
	i uint32
}

// Position is a location in a file.
type Position struct {
	File         string
	Line, Column int // from 1; the column in characters
}

// Exists reports whether the value is present; null and unreadable values count as absent.
func (n Node) Exists() bool { return n.d != nil && n.entry().kind > Null }

// Kind returns the kind of the value, Invalid for an absent one.
func (n Node) Kind() Kind {
	if n.d == nil {
		return Invalid
	}
	return n.entry().kind
}

func (n Node) entry() *entry { return &n.d.entries[n.i] }

// Text returns the text of a string, number or boolean, "" for anything else.
func (n Node) Text() string { return string(n.text()) }

// text returns the bytes of Text, which are valid as long as the document.
func (n Node) text() []byte {
	if n.d == nil {
		return nil
	}
	e := n.entry()
	switch {
	case e.kind < Bool || e.kind > String:
		return nil
	case e.flags&flagStoredText != 0:
		return []byte(n.d.texts[e.size])
	}
	start := e.offset
	if e.flags&flagQuoted != 0 {
		start++
	}
	return n.d.src[start : start+e.size]
}

// unexpandedText returns Text as in the source, before ${…} was expanded.
func (n Node) unexpandedText() string {
	if e := n.entry(); e.flags&flagExpanded != 0 {
		return n.d.texts[e.size+1]
	}
	return n.Text()
}

// Key returns the key of a member of an object, "" for other values.
func (n Node) Key() string { return string(n.keyText()) }

func (n Node) keyText() []byte {
	if n.d == nil {
		return nil
	}
	e := n.entry()
	switch {
	case e.flags&flagKeyed == 0:
		return nil
	case e.flags&flagStoredKey != 0:
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

// Get returns the first member of an object whose key is one of the names, ignoring case; the zero
// Node if there is none.
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

// MemberOrEmpty returns the member called name of an object. If the member is absent, null or
// unreadable, it returns a new empty object at the position of n. Decode then reports missing
// required keys at that position. If n is absent, MemberOrEmpty returns the zero Node.
func (n Node) MemberOrEmpty(name string) Node {
	if member := n.Get(name); member.Exists() || n.d == nil {
		return member
	}
	e := entry{offset: n.entry().offset, key: n.entry().offset, keyLen: n.d.addTexts(name), kind: Object, flags: flagKeyed | flagStoredKey}
	return Node{n.d, n.d.beginEntry(n.i, e)}
}

// Or returns n, or other if n is absent. It selects the node whose position a diagnostic gets.
func (n Node) Or(other Node) Node {
	if n.d == nil {
		return other
	}
	return n
}

// IsDisabled reports whether the value disables its feature. Such values are absence, null, false,
// 0, "", "0", "0s" and an empty list or object. An object or list is also disabled if all its
// members are, and an object if "enable", "enabled" or "status" is false.
func (n Node) IsDisabled() bool {
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
		if !member.IsDisabled() {
			return false
		}
	}
	return true
}

// Value returns the value as a Go value: nil, bool, int64, float64, string, []any or
// map[string]any. A number with a fraction or an exponent, or outside the range of int64, is a
// float64.
func (n Node) Value() any {
	switch n.Kind() {
	case Bool:
		return n.Text() == "true"
	case Number:
		return parseNumber(n.Text())
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

func parseNumber(text string) any {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i
	}
	f, _ := strconv.ParseFloat(text, 64) // the parser checked the grammar; a number that is too large becomes an infinity
	return f
}

// Describe describes the value for a diagnostic: the kind and the text, which is shortened if it is
// long. For a boolean, it returns only the text. For a secret, a text that contains a private key,
// or a value without a text, it returns only the kind.
func (n Node) Describe() string {
	const maxLen = 40 // bytes of the text that are shown
	kind := n.Kind()
	if kind != Bool && kind != Number && kind != String || n.entry().flags&flagSecret != 0 {
		return kind.String()
	}
	text := n.Text()
	if containsPrivateKey(text) {
		return kind.String()
	}
	if len(text) > maxLen {
		cut := maxLen
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

// Path returns the path of the value: servers[0].listeners[2].address. Keys are spelled as written;
// keys with characters other than letters, digits, "_" and "-" are quoted: metadata["mosn.lb"].
func (n Node) Path() string {
	if n.d == nil {
		return ""
	}
	var ancestors []uint32
	for i := n.i; i != 0; i = n.d.entries[i].parent {
		ancestors = append(ancestors, i)
	}
	var path []byte
	for _, i := range slices.Backward(ancestors) {
		step := Node{n.d, i}
		key := step.keyText()
		switch {
		case step.entry().flags&flagKeyed == 0:
			path = append(path, '[')
			path = strconv.AppendInt(path, int64(step.index()), 10)
			path = append(path, ']')
		case isPlainKey(key):
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

// index returns the index of an element in its list. The list may be incomplete: index reads only
// the entries before the element.
func (n Node) index() int {
	count := 0
	for i := n.entry().parent + 1; i != n.i; i = n.d.entries[i].end {
		count++
	}
	return count
}

func isPlainKey(key []byte) bool {
	for _, c := range key {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return len(key) > 0
}

// Position returns the position of the value; the zero Position if it is absent.
func (n Node) Position() Position {
	if n.d == nil {
		return Position{}
	}
	return n.d.position(n.entry().offset)
}

// KeyPosition returns the position of the key of a member, including its quote, and Position for
// other values.
func (n Node) KeyPosition() Position {
	if n.d == nil || n.entry().flags&flagKeyed == 0 {
		return n.Position()
	}
	e := n.entry()
	offset := e.key
	if offset > 0 && e.flags&flagStoredKey == 0 && (n.d.src[offset-1] == '"' || n.d.src[offset-1] == '\'') {
		offset--
	}
	return n.d.position(offset)
}

// position computes the line and column of an offset.
func (d *Document) position(offset uint32) Position {
	line, start := d.line(offset)
	return Position{File: d.name, Line: line + 1, Column: 1 + utf8.RuneCount(d.src[start:offset])}
}

// line returns the index of the line that contains an offset, and the offset of that line.
func (d *Document) line(offset uint32) (index int, start uint32) {
	if d.lines == nil {
		d.lines = make([]uint32, 1, 1+bytes.Count(d.src, []byte{'\n'}))
		for i, c := range d.src {
			if c == '\n' {
				d.lines = append(d.lines, uint32(i)+1)
			}
		}
	}
	index, exact := slices.BinarySearch(d.lines, offset)
	if !exact {
		index--
	}
	return index, d.lines[index]
}

// beginEntry appends an entry and starts its subtree; endEntry ends the subtree.
func (d *Document) beginEntry(parent uint32, e entry) uint32 {
	i := uint32(len(d.entries))
	e.parent, e.end = parent, i+1
	d.entries = append(d.entries, e)
	return i
}

func (d *Document) endEntry(i uint32) { d.entries[i].end = uint32(len(d.entries)) }

// addTexts stores texts outside the source and returns the index of the first.
func (d *Document) addTexts(texts ...string) uint32 {
	i := uint32(len(d.texts))
	d.texts = append(d.texts, texts...)
	return i
}

// containsPrivateKey reports whether text contains a private key.
func containsPrivateKey(text string) bool { return strings.Contains(text, "PRIVATE KEY-----") }

// checkDuplicates reports the members of an object whose key an earlier member has.
func (d *Document) checkDuplicates(object uint32, r *Report) {
	const maxPairwise = 12 // up to this number, comparing keys pairwise is faster than a map
	n := Node{d, object}
	count := n.Len()
	if count > maxPairwise {
		seen := make(map[string]Node, count)
		for member := range n.All() {
			key := member.Key()
			if first, exists := seen[key]; exists {
				r.duplicateKey(member, first)
				continue
			}
			seen[key] = member
		}
		return
	}
	var seen [maxPairwise]Node
	var keys [maxPairwise][]byte
	seenCount := 0
	for member := range n.All() {
		seen[seenCount], keys[seenCount] = member, member.keyText()
		for i := range seenCount {
			if bytes.Equal(keys[i], keys[seenCount]) {
				r.duplicateKey(member, seen[i])
				break
			}
		}
		seenCount++
	}
}

// duplicateKey reports a key that the object already contains.
func (r *Report) duplicateKey(member, first Node) {
	r.addAt(member, member.KeyPosition(), Diagnostic{
		Problem: fmt.Sprintf("duplicate key %q: it is already defined on line %d", member.Key(), first.KeyPosition().Line),
	})
}
