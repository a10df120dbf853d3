package http2

import (
	"unsafe"

	"github.com/weft-proxy/weft/internal/swar"
)

// Classes of bytes, as bits of byteClasses.
const (
	nameByte   = 1 << iota // tchar except capital letters (RFC 9110 5.6.2; RFC 9113 8.2.1)
	tokenByte              // tchar
	valueByte              // VCHAR, obs-text, SP, HTAB (RFC 9110 5.5)
	targetByte             // visible ASCII except "#" (RFC 3986 3.3, 3.4)
)

//nolint:gochecknoglobals // a constant table
var byteClasses = makeByteClasses()

func makeByteClasses() (t [256]uint8) {
	set := func(class uint8, bytes string) {
		for _, c := range []byte(bytes) {
			t[c] |= class
		}
	}
	for c := range 256 {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			t[c] |= nameByte | tokenByte
		}
		if 'A' <= c && c <= 'Z' {
			t[c] |= tokenByte
		}
		if c >= 0x20 && c != 0x7f || c == '\t' {
			t[c] |= valueByte
		}
		if 0x21 <= c && c <= 0x7e && c != '#' {
			t[c] |= targetByte
		}
	}
	set(nameByte|tokenByte, "!#$%&'*+-.^_`|~")
	return t
}

// allInClass reports whether every byte of s belongs to class.
func allInClass(s string, class uint8) bool {
	for i := range len(s) {
		if byteClasses[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

func isToken(s string) bool { return s != "" && allInClass(s, tokenByte) }

// hasOnlyValueBytes reports whether every byte of s may be in a field's value (valueByte). It
// checks eight bytes at a time.
func hasOnlyValueBytes(s string) bool {
	for len(s) >= 8 {
		w := swar.Load(s)
		if swar.Below(w, 0x20)|swar.Equal(w, 0x7f) != 0 && !allInClass(s[:8], valueByte) {
			return false
		}
		s = s[8:]
	}
	return allInClass(s, valueByte)
}

// isFieldValue reports whether s can be a field's value: it has no control characters except HTAB,
// and neither begins nor ends with SP or HTAB (RFC 9113 8.2.1).
func isFieldValue(s string) bool {
	return s == "" || !isBlank(s[0]) && !isBlank(s[len(s)-1]) && hasOnlyValueBytes(s)
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// trimOWS returns s without surrounding optional whitespace (RFC 9110 5.6.3).
func trimOWS(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// unsafeString returns a string that shares the bytes of b. The string is valid only while the
// bytes are neither changed nor reused. This is the package's only unsafe code.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// cloneBoth copies two strings into one allocation. It does not use a+b, which is a itself and not
// a copy if b is empty.
func cloneBoth(a, b string) (string, string) {
	both := unsafeString(append(append(make([]byte, 0, len(a)+len(b)), a...), b...))
	return both[:len(a)], both[len(a):]
}
