package frame

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// Size is the length of the string of every request and answer, in bytes.
const Size = 1 << 10

// Text is what tells the string of one request from that of another.
type Text struct {
	Hold  uint32 // answers are held back until that many requests have come; 0: none is
	Token uint64 // the sender's
}

// The string begins with both numbers in hexadecimal digits; the rest is the
// same in all.
const (
	holdDigits  = 8
	tokenDigits = 16
	headSize    = holdDigits + tokenDigits
)

// put writes the part that is not the same in all to the beginning of b.
func (t Text) put(b []byte) {
	putHex(b[:holdDigits], uint64(t.Hold))
	putHex(b[holdDigits:headSize], t.Token)
}

// Is tells whether the string is that of t, to its last byte.
func (p *Protocol) Is(text []byte, t Text) bool {
	if len(text) != Size {
		return false
	}
	var head [headSize]byte
	t.put(head[:])
	return bytes.Equal(text[:headSize], head[:]) &&
		bytes.Equal(text[headSize:], p.request[p.requestAt+headSize:][:Size-headSize])
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

// putHex fills b with the last digits of v.
func putHex(b []byte, v uint64) {
	for i := range slices.Backward(b) {
		b[i] = digits[v&15]
		v >>= 4
	}
}

// filler returns the string of the zero Text. No part of it is like the part that
// is some bytes before it or behind, so that one that is misplaced is seen.
func filler() string {
	b := make([]byte, Size)
	for i := range b {
		b[i] = 'a' + byte((i*i+i/7)%26)
	}
	Text{}.put(b)
	return string(b)
}
