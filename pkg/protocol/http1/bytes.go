package http1

import (
	"math/bits"
	"unsafe"

	"github.com/weft-proxy/weft/internal/swar"
)

// Classes of bytes, as bits of byteClasses.
const (
	tokenByte  = 1 << iota // tchar (RFC 9110 5.6.2)
	valueByte              // VCHAR, obs-text, SP, HTAB (RFC 9110 5.5)
	targetByte             // visible ASCII except "#" (RFC 9112 3.2)
	hexByte                // HEXDIG
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
		letterOrDigit := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if letterOrDigit {
			t[c] |= tokenByte
		}
		if c >= 0x20 && c != 0x7f || c == '\t' {
			t[c] |= valueByte
		}
		if 0x21 <= c && c <= 0x7e && c != '#' {
			t[c] |= targetByte
		}
	}
	set(tokenByte, "!#$%&'*+-.^_`|~")
	set(hexByte, "0123456789abcdefABCDEF")
	return t
}

// unsafeString returns a string that shares b's bytes. The string is valid only while the bytes are
// neither changed nor reused. unsafeString and bytesOf are the package's only unsafe code; without
// them, each head would cost allocations.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// bytesOf returns the bytes of s, which the caller must not change.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// valueLen returns how many bytes at the start of b are allowed in a field value: all except
// control characters other than HTAB (RFC 9110 5.5).
func valueLen(b []byte) int {
	i := 0
	for len(b)-i >= 8 {
		w := swar.Load(b[i:])
		stop := swar.Below(w, 0x20) | swar.Equal(w, 0x7f)
		if stop == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(stop) / 8
		if b[i] != '\t' {
			return i
		}
		i++
	}
	for i < len(b) && byteClasses[b[i]]&valueByte != 0 {
		i++
	}
	return i
}

// targetLen returns how many bytes at the start of b are allowed in a request target: visible ASCII
// except "#", which would start a fragment.
func targetLen(b []byte) int {
	i := 0
	for len(b)-i >= 8 {
		w := swar.Load(b[i:])
		stop := swar.Below(w, 0x21) | swar.Equal(w, 0x7f) | swar.Equal(w, '#') | w&swar.HighBits
		if stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
		i += 8
	}
	for i < len(b) && byteClasses[b[i]]&targetByte != 0 {
		i++
	}
	return i
}

// tokenLen returns how many bytes at the start of b are allowed in a token. It checks single bytes,
// which is faster than eight at a time because names are short.
func tokenLen(b []byte) int {
	i := 0
	for i < len(b) && byteClasses[b[i]]&tokenByte != 0 {
		i++
	}
	return i
}

// markNonAlnumDash returns a word in which the highest bit of a byte is set if the byte of w is not
// a letter, a digit or "-". Few tokens contain such bytes.
func markNonAlnumDash(w uint64) uint64 {
	low := w &^ swar.HighBits
	letter := swar.InRange(low|0x20*swar.Ones, 'a', 'z')
	digit := swar.InRange(low, '0', '9')
	return swar.HighBits&^(letter|digit|swar.InRange(low, '-', '-')) | w&swar.HighBits
}

// isToken reports whether s is a token (RFC 9110 5.6.2).
func isToken(s string) bool {
	b := bytesOf(s)
	if len(b) < 8 {
		return len(b) > 0 && tokenLen(b) == len(b)
	}
	other := markNonAlnumDash(swar.Load(b[len(b)-8:])) // may overlap the last word of the loop
	for i := 0; i < len(b)-8; i += 8 {
		other |= markNonAlnumDash(swar.Load(b[i:]))
	}
	return other == 0 || tokenLen(b) == len(b)
}

// trimOWS returns s without optional whitespace around it (RFC 9110 5.6.3).
func trimOWS(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
