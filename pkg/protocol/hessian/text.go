package hessian

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weft-proxy/weft/internal/swar"
)

// Text consumes a value that is a string or can be represented as text. Null is nil; a bool, an int
// or a long is formatted like %v, and a double by strconv.FormatFloat with 'g' and -1. Java
// readers, too, accept scalars where they expect a string.
//
// The text of a string is valid UTF-8 and never nil. In the body, a string consists of UTF-16 code
// units of one to three bytes each (Hessian 2.0 serialization 4.12); a character beyond U+FFFF is
// two surrogates of three bytes each. Text combines surrogate pairs, even across two chunks, and
// replaces an unpaired surrogate with U+FFFD. Like the common readers, it accepts overlong code
// units and rejects four-byte sequences, so that filters compare the text that the receiver gets.
//
// The text borrows the body if its bytes are contiguous there, and otherwise storage of d. The text
// is valid until Reset.
func (d *Decoder) Text() ([]byte, error) {
	if d.next() == String {
		return d.readString()
	}
	start := d.pos
	t, v, err := d.readScalar(ruleWantText)
	if err != nil {
		return nil, err
	}
	from := len(d.text)
	switch t.kind {
	case Null:
		return nil, nil
	case Bool:
		d.text = strconv.AppendBool(d.text, t.base == 1)
	case Int, Long:
		d.text = strconv.AppendInt(d.text, t.number(v), 10)
	case Double:
		d.text = strconv.AppendFloat(d.text, d.double(t, v), 'g', -1, 64)
	default: // a date, or a reference of the Draft dialect
		d.pos = start
		return nil, d.ruleError(ruleWantText)
	}
	return d.text[from:len(d.text):len(d.text)], nil
}

// readString is Text for a string.
func (d *Decoder) readString() ([]byte, error) {
	if d.values++; d.values > d.limits.Values {
		return nil, d.limitError(limitValues, d.limits.Values)
	}
	if text := d.readShortString(); text != nil {
		return text, nil
	}
	c, err := d.readChunk(String, 0)
	if err != nil {
		return nil, err
	}
	if c.isLast && c.isUTF8() {
		return c.data[:len(c.data):len(c.data)], nil
	}
	textStart := len(d.text)
	var high rune
	for {
		d.text, high = c.appendText(d.text, high)
		if c.isLast {
			break
		}
		if c, err = d.readChunk(String, c.length); err != nil {
			return nil, err
		}
	}
	if high != 0 {
		d.text = utf8.AppendRune(d.text, utf8.RuneError)
	}
	if textStart == len(d.text) {
		return c.data[:0:0], nil // d.text may be nil; the text must not be
	}
	return d.text[textStart:len(d.text):len(d.text)], nil
}

// readShortString consumes a string of the most common form, ASCII with its length in the tag, and
// returns its text. For other values it consumes nothing and returns nil.
func (d *Decoder) readShortString() []byte {
	text, end := d.shortAt(d.pos)
	if text == nil || !isASCII(text) {
		return nil
	}
	d.pos = end
	return text
}

// shortAt returns the text of the string at offset, if its length is in the tag, and the offset
// after it. Otherwise the text is nil. The result is valid only if the text is ASCII, which the
// caller checks.
func (d *Decoder) shortAt(offset int) (text []byte, end int) {
	if offset >= len(d.b) || d.b[offset] > 0x1f {
		return nil, 0
	}
	length := int(d.b[offset])
	end = offset + 1 + length
	if end > len(d.b) || length > d.limits.Length {
		return nil, 0
	}
	return d.b[offset+1 : end : end], end
}

type chunk struct {
	data     []byte // borrows the body
	length   int    // in code units or bytes, including previous chunks
	allASCII bool   // every code unit of a string is one byte
	isLast   bool
}

// readChunk consumes a chunk of a string or binary. previousLength is the length of the previous
// chunks.
func (d *Decoder) readChunk(kind Kind, previousLength int) (chunk, error) {
	if d.pos >= len(d.b) {
		return chunk{}, d.truncatedError()
	}
	rest := d.b[d.pos:]
	t := &d.tags[rest[0]]
	if t.kind != kind {
		return chunk{}, d.ruleError(ruleChunk)
	}
	length, head := int(rest[0]-t.base), 1
	switch {
	case t.form == formLengthInTag:
	case t.form == formLengthShort && len(rest) >= 2:
		length, head = length<<8|int(rest[1]), 2
	case t.form != formLengthShort && len(rest) >= 3:
		length, head = int(binary.BigEndian.Uint16(rest[1:])), 3
	default:
		return chunk{}, d.truncatedError()
	}
	if previousLength+length > d.limits.Length {
		return chunk{}, d.limitError(limitLength, d.limits.Length)
	}
	if len(rest)-head < length {
		return chunk{}, d.truncatedError() // a code unit has at least one byte
	}
	c := chunk{length: previousLength + length, isLast: t.form != formLengthChunk}
	size := length
	if kind == String {
		var rule string
		size, c.allASCII, rule = textSize(rest[head:], length)
		if rule == ruleTruncated {
			return chunk{}, d.truncatedError()
		}
		if rule != "" {
			d.pos += head + size
			return chunk{}, d.ruleError(rule)
		}
	}
	c.data = rest[head : head+size]
	d.pos += head + size
	return c, nil
}

// isUTF8 reports whether the bytes of the chunk are its text in UTF-8.
func (c *chunk) isUTF8() bool { return c.allASCII || utf8.Valid(c.data) }

// appendText appends the text of a chunk. high is the unpaired high surrogate at the end of the
// previous chunk, or 0; appendText returns the one of this chunk.
func (c *chunk) appendText(dst []byte, high rune) ([]byte, rune) {
	if high == 0 && c.isUTF8() {
		return append(dst, c.data...), 0
	}
	for b := c.data; len(b) > 0; {
		unit, size := unitOf(b)
		b = b[size:]
		if high != 0 {
			// A low surrogate completes the pair. Before any other unit, the high surrogate is
			// unpaired.
			r := utf16.DecodeRune(high, unit)
			high = 0
			dst = utf8.AppendRune(dst, r)
			if r != utf8.RuneError {
				continue
			}
		}
		if 0xd800 <= unit && unit <= 0xdbff {
			high = unit
			continue
		}
		dst = utf8.AppendRune(dst, unit) // an unpaired surrogate becomes U+FFFD
	}
	return dst, high
}

// unitOf returns the first code unit of b and its size in bytes. textSize must have accepted b.
func unitOf(b []byte) (unit rune, size int) {
	switch {
	case b[0] < 0x80:
		return rune(b[0]), 1
	case b[0] < 0xe0:
		return rune(b[0]&0x1f)<<6 | rune(b[1]&0x3f), 2
	default:
		return rune(b[0]&0x0f)<<12 | rune(b[1]&0x3f)<<6 | rune(b[2]&0x3f), 3
	}
}

// textSize returns the size in bytes of the first n code units of b, and whether all are ASCII. If
// rule is not empty, the byte at size violates it; ruleTruncated means that b is too short.
func textSize(b []byte, n int) (size int, ascii bool, rule string) {
	if n <= len(b) && isASCII(b[:n]) {
		return n, true, ""
	}
	i := 0
	for ; n > 0 && i < len(b); n-- {
		switch c := b[i]; {
		case c < 0x80:
			run := 1
			if n >= 8 && len(b)-i >= 8 {
				run = bits.TrailingZeros64(swar.Load(b[i:])&swar.HighBits|1<<63) / 8 // length of the ASCII bytes, at most 7
			}
			i, n = i+run, n-run+1
		case c&0xe0 == 0xc0:
			i += 2
		case c&0xf0 == 0xe0:
			i += 3
		default:
			return i, false, ruleText
		}
	}
	if n > 0 || i > len(b) {
		return len(b), false, ruleTruncated
	}
	return i, false, ""
}

type bytestring interface{ []byte | string }

// load32 loads the first four bytes of b as a little-endian number.
func load32[T bytestring](b T) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// isASCII reports whether all of b is ASCII. Because arguments can be long, it checks 64 bytes at a
// time; the last words may overlap.
func isASCII[T bytestring](b T) bool {
	n := len(b)
	switch {
	case n >= 8:
	case n >= 4:
		return (load32(b)|load32(b[n-4:]))&(swar.HighBits>>32) == 0
	default:
		var all byte
		for i := range n {
			all |= b[i]
		}
		return all < 0x80
	}
	last := swar.Load(b[n-8:])
	for ; len(b) >= 64; b = b[64:] {
		if (swar.Load(b[:8])|swar.Load(b[8:16])|swar.Load(b[16:24])|swar.Load(b[24:32])|
			swar.Load(b[32:40])|swar.Load(b[40:48])|swar.Load(b[48:56])|swar.Load(b[56:64]))&swar.HighBits != 0 {
			return false
		}
	}
	for ; len(b) >= 8; b = b[8:] {
		last |= swar.Load(b)
	}
	return last&swar.HighBits == 0
}
