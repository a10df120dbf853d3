package http1

import (
	"bytes"
	"strings"
	"testing"
)

// Checks every byte value at every position of a word and after every other value, so that no
// borrow of the word-wise comparison stays hidden.
func TestScanningByWordsEqualsScanningByBytes(t *testing.T) {
	scans := []struct {
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
	for _, s := range scans {
		t.Run(s.name, func(t *testing.T) {
			b := bytes.Repeat([]byte("a"), 19)
			for at := range len(b) - 1 {
				for first := range 256 {
					for second := range 256 {
						b[at], b[at+1] = byte(first), byte(second)
						want := 0
						for want < len(b) && classes[b[want]]&s.class != 0 {
							want++
						}
						if got := s.scan(b); got != want {
							t.Fatalf("%s(%q) = %d, want %d", s.name, b, got, want)
						}
					}
				}
				b[at], b[at+1] = 'a', 'a'
			}
		})
	}
}

func TestClassesAreThoseOfTheRFCs(t *testing.T) {
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
				got := classes[c]&tt.class != 0
				want := c < 0x80 && strings.IndexByte(tt.want, byte(c)) >= 0
				if got != want {
					t.Errorf("byte %q is of the class: %t, want %t", byte(c), got, want)
				}
			}
		})
	}
}
