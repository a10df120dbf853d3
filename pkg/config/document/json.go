package document

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is the maximum nesting depth.
const maxDepth = 200

// jsonParser reads a document in one pass. It reports small mistakes (an extra or missing comma, a
// word without quotes) and continues after them. It stops if it cannot tell where values end, for
// example if a bracket or string is not closed.
type jsonParser struct {
	d       *Document
	src     []byte
	pos     int
	depth   int
	env     Lookup
	report  *Report
	aborted bool // the rest cannot be read: return from all levels
}

func parseJSON(d *Document, env Lookup, r *Report) Node {
	p := &jsonParser{d: d, src: d.src, env: env, report: r}
	d.entries = make([]entry, 0, estimateEntries(d.src))
	p.skipSpace()
	if p.pos == len(p.src) && !p.aborted {
		p.errorf(p.pos, "the document is empty")
		return Node{}
	}
	p.parseValue(0, entry{})
	p.skipSpace()
	if !p.aborted && p.pos < len(p.src) {
		p.errorf(p.pos, "unexpected text after the end of the document")
	}
	if p.aborted {
		return Node{}
	}
	return Node{d: d}
}

// estimateEntries estimates how many values a JSON document has. Commas and brackets in strings
// make the estimate too large, so it is limited in proportion to the size of the document.
func estimateEntries(src []byte) int {
	count := 1 + bytes.Count(src, []byte{','}) + bytes.Count(src, []byte{'{'}) + bytes.Count(src, []byte{'['})
	return min(count, 16+len(src)/8)
}

func (p *jsonParser) errorf(offset int, format string, args ...any) {
	pos := p.d.position(uint32(offset))
	p.report.Add(Diagnostic{File: pos.File, Line: pos.Line, Column: pos.Column, Problem: fmt.Sprintf(format, args...)})
}

// fatalf reports a problem that makes the rest of the document unreadable.
func (p *jsonParser) fatalf(offset int, format string, args ...any) {
	if !p.aborted {
		p.errorf(offset, format, args...)
	}
	p.aborted = true
	p.pos = len(p.src)
}

// peek returns the next byte, or 0 at the end.
func (p *jsonParser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

// skipSpace skips white space and comments.
func (p *jsonParser) skipSpace() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		case '/':
			if !p.skipComment() {
				return
			}
		default:
			return
		}
	}
}

// skipComment skips one comment and reports whether there was one.
func (p *jsonParser) skipComment() bool {
	rest := p.src[p.pos:]
	switch {
	case bytes.HasPrefix(rest, []byte("//")):
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			p.pos += end + 1
		} else {
			p.pos = len(p.src)
		}
	case bytes.HasPrefix(rest, []byte("/*")):
		end := bytes.Index(rest[2:], []byte("*/"))
		if end < 0 {
			p.fatalf(p.pos, "the comment is not closed")
			return true
		}
		p.pos += end + 4
	default:
		return false
	}
	return true
}

// parseValue reads one value; e contains its key.
func (p *jsonParser) parseValue(parent uint32, e entry) {
	e.offset = uint32(p.pos)
	switch c := p.peek(); {
	case c == '{' || c == '[':
		p.parseContainer(parent, e, c)
	case c == '"':
		p.parseString(parent, e)
	case c == '-' || c >= '0' && c <= '9':
		p.parseNumber(parent, e)
	default:
		p.parseWord(parent, e)
	}
}

// parseContainer reads an object or a list.
func (p *jsonParser) parseContainer(parent uint32, e entry, bracket byte) {
	e.kind = Array
	closing := byte(']')
	if bracket == '{' {
		e.kind, closing = Object, '}'
	}
	if p.depth++; p.depth > maxDepth {
		p.fatalf(p.pos, "more than %d levels of nesting", maxDepth)
		return
	}
	open := p.pos
	index := p.d.beginEntry(parent, e)
	p.pos++
	p.parseElements(index, e.kind, open, closing)
	p.depth--
	p.d.endEntry(index)
	if e.kind == Object && !p.aborted {
		p.d.checkDuplicates(index, p.report)
	}
}

// parseElements reads the content between the brackets and the closing bracket.
func (p *jsonParser) parseElements(index uint32, kind Kind, open int, closing byte) {
	valueAllowed := true // at the beginning and after a comma
	for {
		p.skipSpace()
		switch c := p.peek(); {
		case p.aborted:
			return
		case p.pos >= len(p.src):
			openPos := p.d.position(uint32(open))
			p.fatalf(p.pos, "the document ends before the %q of line %d is closed", p.src[open], openPos.Line)
			return
		case c == closing:
			p.pos++
			return
		case c == '}' || c == ']':
			openPos := p.d.position(uint32(open))
			p.fatalf(p.pos, "%q does not match the %q of line %d", c, p.src[open], openPos.Line)
			return
		case c == ',':
			if valueAllowed {
				p.errorf(p.pos, "unexpected comma: no value precedes it")
			}
			valueAllowed = true
			p.pos++
			continue
		}
		if !valueAllowed {
			p.errorf(p.pos, "a comma is missing before this")
		}
		valueAllowed = false
		if kind == Object {
			p.parseMember(index)
		} else {
			p.parseValue(index, entry{})
		}
	}
}

// parseMember reads a key, a colon and a value.
func (p *jsonParser) parseMember(parent uint32) {
	e := entry{flags: flagKeyed, key: uint32(p.pos)}
	if p.peek() == '"' {
		e.key++
		text, decoded, _ := p.scanString()
		if e.keyLen = uint32(len(text)); decoded {
			e.key-- // diagnostics point at the quote, as for a key without escapes
			e.keyLen = p.d.addTexts(string(text))
			e.flags |= flagStoredKey
		}
	} else {
		word := p.scanWord()
		if len(word) == 0 {
			p.fatalf(p.pos, "found %q, expected a key in double quotes", rune(p.peek()))
			return
		}
		p.errorf(int(e.key), "the key %s needs double quotes", word)
		e.keyLen = uint32(len(word))
	}
	p.skipSpace()
	if p.peek() != ':' {
		if p.aborted || p.pos >= len(p.src) {
			p.fatalf(p.pos, "the document ends after a key")
			return
		}
		p.errorf(p.pos, "a colon is missing after the key")
	} else {
		p.pos++
	}
	p.skipSpace()
	if c := p.peek(); c == '}' || c == ',' {
		p.errorf(p.pos, "a value is missing after the colon")
		e.offset = uint32(p.pos)
		p.d.beginEntry(parent, e)
		return
	}
	p.parseValue(parent, e)
}

func (p *jsonParser) parseString(parent uint32, e entry) {
	e.kind = String
	text, decoded, hasDollar := p.scanString()
	if p.aborted {
		return
	}
	e.size, e.flags = uint32(len(text)), e.flags|flagQuoted
	switch {
	case hasDollar && bytes.Contains(text, []byte("${")):
		p.d.addExpanded(parent, e, string(text), p.env, p.report)
		return
	case decoded:
		e.size, e.flags = p.d.addTexts(string(text)), e.flags|flagStoredText
	}
	p.d.beginEntry(parent, e)
}

// addExpanded appends a string with its variables expanded. If the expansion fails, it reports the
// problem and the value is Invalid.
func (d *Document) addExpanded(parent uint32, e entry, original string, env Lookup, r *Report) {
	text, problem := expand(original, env)
	e.size = d.addTexts(text, original)
	e.flags |= flagStoredText | flagExpanded
	index := d.beginEntry(parent, e)
	if problem != "" {
		r.Errorf(Node{d, index}, "%s", problem)
		d.entries[index].kind = Invalid
	}
}

// scanString reads a string in double quotes. text aliases the source unless decoded is true.
// hasDollar reports whether the source of the string contains "$"; it ignores the escape \u0024.
func (p *jsonParser) scanString() (text []byte, decoded, hasDollar bool) {
	start := p.pos + 1
	for i := start; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '"':
			p.pos = i + 1
			return p.src[start:i], false, hasDollar
		case c == '\\':
			text, hasDollar = p.unescape(start, i, hasDollar)
			return text, true, hasDollar
		case c == '\n':
			p.fatalf(start-1, "the string is not closed on its line")
			return nil, false, false
		case c < ' ':
			p.errorf(i, "a control character in a string: write \\u%04x", c)
		case c == '$':
			hasDollar = true
		}
	}
	p.fatalf(start-1, "the string is not closed")
	return nil, false, false
}

// unescape reads a string that begins at start and whose first escape is at i. It returns the
// decoded text.
func (p *jsonParser) unescape(start, i int, hasDollar bool) ([]byte, bool) {
	text := append([]byte(nil), p.src[start:i]...)
	for i < len(p.src) {
		c := p.src[i]
		switch {
		case c == '"':
			p.pos = i + 1
			return text, hasDollar
		case c == '\n':
			p.fatalf(start-1, "the string is not closed on its line")
			return nil, false
		case c == '\\':
			var n int
			text, n = p.parseEscape(text, i)
			i += n
			continue
		case c < ' ':
			p.errorf(i, "a control character in a string: write \\u%04x", c)
		case c == '$':
			hasDollar = true
		}
		text = append(text, c)
		i++
	}
	p.fatalf(start-1, "the string is not closed")
	return nil, false
}

// parseEscape appends the character of the escape at i and returns the length of the escape.
func (p *jsonParser) parseEscape(text []byte, i int) ([]byte, int) {
	rest := p.src[i:]
	if len(rest) < 2 {
		return text, len(rest)
	}
	switch c := rest[1]; c {
	case '"', '\\', '/':
		return append(text, c), 2
	case 'b':
		return append(text, '\b'), 2
	case 'f':
		return append(text, '\f'), 2
	case 'n':
		return append(text, '\n'), 2
	case 'r':
		return append(text, '\r'), 2
	case 't':
		return append(text, '\t'), 2
	case 'u':
		return p.parseUnicodeEscape(text, i)
	}
	p.errorf(i, "unknown escape \\%c: write \\\\ for a backslash", rest[1])
	return append(text, '\\'), 1
}

// parseUnicodeEscape appends the code point of the \u escape at i, which may be a surrogate pair,
// and returns the length of the escape.
func (p *jsonParser) parseUnicodeEscape(text []byte, i int) ([]byte, int) {
	rest := p.src[i:]
	first, ok := parseHex4(rest[2:])
	if !ok {
		p.errorf(i, "\\u requires four hexadecimal digits")
		return append(text, '\\'), 1
	}
	if !utf16.IsSurrogate(first) {
		return utf8.AppendRune(text, first), 6
	}
	if len(rest) > 8 && rest[6] == '\\' && rest[7] == 'u' {
		if second, ok := parseHex4(rest[8:]); ok && utf16.DecodeRune(first, second) != utf8.RuneError {
			return utf8.AppendRune(text, utf16.DecodeRune(first, second)), 12
		}
	}
	p.errorf(i, "unpaired surrogate in a \\u escape")
	return utf8.AppendRune(text, utf8.RuneError), 6
}

func parseHex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(v), err == nil
}

// parseNumber reads a number (RFC 8259 section 6).
func (p *jsonParser) parseNumber(parent uint32, e entry) {
	start := p.pos
	for p.pos < len(p.src) && isWordByte(p.src[p.pos]) {
		p.pos++
	}
	text := p.src[start:p.pos]
	e.kind, e.size = Number, uint32(len(text))
	if !isNumber(text) {
		p.errorf(start, "%q is not a number", text)
		e.kind = Invalid
	}
	p.d.beginEntry(parent, e)
}

// parseWord reads true, false and null, and reports any other word.
func (p *jsonParser) parseWord(parent uint32, e entry) {
	start := p.pos
	text := p.scanWord()
	e.size = uint32(len(text))
	switch string(text) {
	case "true", "false":
		e.kind = Bool
	case "null":
		e.kind = Null
	case "":
		if start == len(p.src) {
			p.fatalf(start, "the document ends where a value is expected")
			return
		}
		p.fatalf(start, "found %q, expected a value", rune(p.peek()))
		return
	default:
		p.errorf(start, "found %s, expected a value; strings need double quotes", text)
	}
	p.d.beginEntry(parent, e)
}

// scanWord skips a run of word bytes and returns it.
func (p *jsonParser) scanWord() []byte {
	start := p.pos
	for p.pos < len(p.src) && isWordByte(p.src[p.pos]) {
		p.pos++
	}
	return p.src[start:p.pos]
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' ||
		c == '_' || c == '-' || c == '+' || c == '.' || c == '$' || c >= utf8.RuneSelf
}

// isNumber reports whether b matches the grammar of RFC 8259 section 6.
func isNumber(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	digits := func() bool {
		n := 0
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n > 0
	}
	if len(b) > 1 && b[0] == '0' && b[1] >= '0' && b[1] <= '9' || !digits() {
		return false
	}
	if len(b) > 0 && b[0] == '.' {
		b = b[1:]
		if !digits() {
			return false
		}
	}
	if len(b) > 0 && b[0]|0x20 == 'e' {
		b = b[1:]
		if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		if !digits() {
			return false
		}
	}
	return len(b) == 0
}
