package protocol

import (
	"strings"
	"testing"
)

// TestAuthorityBytes verifies isRegNameByte (unreserved and sub-delims, RFC 3986 2.2, 2.3) and
// isHexDigit (HEXDIG in either case, RFC 5234 B.1).
func TestAuthorityBytes(t *testing.T) {
	const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for c := range 256 {
		if got, want := isRegNameByte(byte(c)), strings.IndexByte("!$&'()*+,-.;=_~"+alphanumeric, byte(c)) >= 0; got != want {
			t.Errorf("isRegNameByte(%q) = %t, want %t", byte(c), got, want)
		}
		if got, want := isHexDigit(byte(c)), strings.IndexByte("0123456789ABCDEFabcdef", byte(c)) >= 0; got != want {
			t.Errorf("isHexDigit(%q) = %t, want %t", byte(c), got, want)
		}
	}
}

func TestAuthority(t *testing.T) {
	tests := []struct {
		s              string
		valid, hasPort bool
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
		if got := IsAuthority(tt.s); got != tt.valid {
			t.Errorf("IsAuthority(%q) = %t, want %t", tt.s, got, tt.valid)
		}
		if got := IsTunnelTarget(tt.s); got != tt.hasPort {
			t.Errorf("IsTunnelTarget(%q) = %t, want %t", tt.s, got, tt.hasPort)
		}
	}
}
