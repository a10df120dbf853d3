package http1

import (
	"bytes"
	"strings"
	"testing"
)

// Every byte value at every place of a word and behind every other, so that no
// borrow of the word-wise comparison goes unseen.
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
		{"unreserved and sub-delims, RFC 3986 2.2, 2.3", hostByte, "!$&'()*+,-.;=_~" + alphanumeric},
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

func TestAuthority(t *testing.T) {
	tests := []struct {
		s             string
		valid, ported bool
	}{
		{"example.com", true, false},
		{"example.com:80", true, true},
		{"example.com:", true, false}, // RFC 3986 3.2.3
		{"EXAMPLE.com:0", true, true},
		{"127.0.0.1:65535", true, true},
		{"my_service-1.ns.svc:8080", true, true},
		{"ex%41mple", true, false},
		{"[::1]", true, false},
		{"[2001:db8::7]:443", true, true},
		{"[::ffff:192.0.2.1]:1", true, true},
		{"", false, false},
		{":80", false, false},
		{"a:65536", false, false},
		{"a:999999999999999999999", false, false},
		{"a:+1", false, false},
		{"a:b", false, false},
		{"a:80:80", false, false},
		{"a b", false, false},
		{"a/b", false, false},
		{"a?b", false, false},
		{"a#b", false, false},
		{"user@a", false, false},
		{"user:secret@a", false, false},
		{"a\\b", false, false},
		{"a\x00", false, false},
		{"ä", false, false},
		{"a%4", false, false},
		{"a%4g", false, false},
		{"a%g4", false, false},
		{"::1", false, false},
		{"[::1", false, false},
		{"[::1]a", false, false},
		{"[::1]:", true, false},
		{"[]", false, false},
		{"[:]", false, false},
		{"[1.2.3.4]", false, false},
		{"[fe80::1%25eth0]", false, false},
		{"[v1.a:b]", false, false},
	}
	for _, tt := range tests {
		if got := isAuthority(tt.s); got != tt.valid {
			t.Errorf("isAuthority(%q) = %t, want %t", tt.s, got, tt.valid)
		}
		if got := isTunnelTarget(tt.s); got != tt.ported {
			t.Errorf("isTunnelTarget(%q) = %t, want %t", tt.s, got, tt.ported)
		}
	}
}
