package swar

import (
	"math/bits"
	"slices"
	"testing"
)

// TestLowestMark compares the lowest byte that each function marks with the one that a loop finds.
// It puts each byte value at each position.
func TestLowestMark(t *testing.T) {
	for c := range 256 {
		for position := range 8 {
			text := []byte("mmmmmmmm")
			text[position] = byte(c)
			if position < 7 {
				text[position+1] = byte(c - 1) // the byte after a match, which Below and Equal may mark wrongly
			}
			w := Load(text)
			if fromString := Load(string(text)); w != fromString {
				t.Fatalf("Load(%q) = %x of the bytes, %x of the string", text, w, fromString)
			}
			for _, test := range []struct {
				name    string
				mark    uint64
				matches func(b byte) bool
			}{
				{"Below 0x20", Below(w, 0x20), func(b byte) bool { return b < 0x20 }},
				{"Below 128", Below(w, 128), func(b byte) bool { return b < 128 }},
				{"Equal 0x7f", Equal(w, 0x7f), func(b byte) bool { return b == 0x7f }},
				{"Equal 0", Equal(w, 0), func(b byte) bool { return b == 0 }},
				{"InRange", InRange(w&^HighBits, '0', '9'), func(b byte) bool { b &= 0x7f; return '0' <= b && b <= '9' }},
			} {
				want := 8
				for i, b := range slices.Backward(text) {
					if test.matches(b) {
						want = i
					}
				}
				if got := bits.TrailingZeros64(test.mark) / 8; got != want {
					t.Errorf("%s of %q marks byte %d first, want %d", test.name, text, got, want)
				}
			}
		}
	}
}
