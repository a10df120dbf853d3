package frame

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// Size is the length of the string of every request and response, in bytes.
const Size = 1 << 10

// Text holds the values that distinguish the string of one request from that of another.
type Text struct {
	Hold  uint32 // the origin responds when this many requests have arrived; 0: immediately
	Token uint64 // chosen by the sender
}

// The string begins with both values in hexadecimal; the rest is the same in every string.
const (
	holdDigits  = 8
	tokenDigits = 16
	prefixSize  = holdDigits + tokenDigits
)

// put writes both values to the beginning of b.
func (t Text) put(b []byte) {
	putHex(b[:holdDigits], uint64(t.Hold))
	putHex(b[holdDigits:prefixSize], t.Token)
}

// HasText reports whether text is the complete string of t.
func (p *Protocol) HasText(text []byte, t Text) bool {
	if len(text) != Size {
		return false
	}
	var head [prefixSize]byte
	t.put(head[:])
	return bytes.Equal(text[:prefixSize], head[:]) &&
		bytes.Equal(text[prefixSize:], p.request[p.requestTextOffset+prefixSize:][:Size-prefixSize])
}

// ReadHold returns Text.Hold of the string of a request.
func ReadHold(text []byte) (uint32, error) {
	if len(text) != Size {
		return 0, fmt.Errorf("a string of %d bytes, want %d", len(text), Size)
	}
	hold := uint32(0)
	for _, c := range text[:holdDigits] {
		digit := bytes.IndexByte([]byte(digits), c)
		if digit < 0 {
			return 0, fmt.Errorf("a string that begins with %s, want %d digits", strconv.Quote(string(text[:holdDigits])), holdDigits)
		}
		hold = hold<<4 | uint32(digit)
	}
	return hold, nil
}

const digits = "0123456789abcdef"

// putHex fills b with the last len(b) hexadecimal digits of v.
func putHex(b []byte, v uint64) {
	for i := range slices.Backward(b) {
		b[i] = digits[v&15]
		v >>= 4
	}
}

// filler returns the string of the zero Text. The pattern does not repeat within a short distance,
// so that a misplaced part is detected.
func filler() string {
	b := make([]byte, Size)
	for i := range b {
		b[i] = 'a' + byte((i*i+i/7)%26)
	}
	Text{}.put(b)
	return string(b)
}
