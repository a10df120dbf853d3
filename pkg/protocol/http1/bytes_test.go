package http1

import (
	"bytes"
	"strings"
	"testing"
)

// TestWordwiseScanMatchesBytewise checks every byte value at every position of a word and after
// every other byte value, because a borrow could affect the next byte of the word.
func TestWordwiseScanMatchesBytewise(t *testing.T) {
	tests := []struct {
		name  string
		class uint8
		scan  func([]byte) int
	}{
		{"valueLen", valueByte, valueLen},
		{"targetLen", targetByte, targetLen},
		{"tokenLen", tokenByte, tokenLen},
		{"isToken", tokenByte, func(b []byte) int {
			n := tokenLen(b)
			if isToken(string(b)) != (n == len(b)) {
				return -1
			}
			return n
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := bytes.Repeat([]byte("a"), 19)
			for i := range len(b) - 1 {
				for first := range 256 {
					for second := range 256 {
						b[i], b[i+1] = byte(first), byte(second)
						want := 0
						for want < len(b) && byteClasses[b[want]]&tt.class != 0 {
							want++
						}
						if got := tt.scan(b); got != want {
							t.Fatalf("%s(%q) = %d, want %d", tt.name, b, got, want)
						}
					}
				}
				b[i], b[i+1] = 'a', 'a'
			}
		})
	}
}

func TestByteClassesMatchRFCs(t *testing.T) {
	const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	tests := []struct {
		name  string
		class uint8
		want  string
	}{
		{"tchar, RFC 9110 5.6.2", tokenByte, "!#$%&'*+-.^_`|~" + alphanumeric},
		{"HEXDIG, RFC 5234 B.1, in either case", hexByte, "0123456789ABCDEFabcdef"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for c := range 256 {
				got := byteClasses[c]&tt.class != 0
				want := c < 0x80 && strings.IndexByte(tt.want, byte(c)) >= 0
				if got != want {
					t.Errorf("byte %q is of the class: %t, want %t", byte(c), got, want)
				}
			}
		})
	}
}
