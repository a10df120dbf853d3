package rbac

import "strings"

// isAmbiguous reports whether an application may interpret path differently than the rules. This is
// the case if path has empty segments, "." or "..", parameters after ";", a backslash, a fragment,
// or an escape for which isAmbiguousEscape returns true. path has no query.
func isAmbiguous(path string) bool {
	for i := range len(path) {
		switch path[i] {
		case '\\', ';', '#':
			return true
		case '/':
			if startsWithDotSegment(path[i+1:]) || strings.HasPrefix(path[i+1:], "/") {
				return true
			}
		case '%':
			if i+2 >= len(path) || isAmbiguousEscape(unhex(path[i+1])<<4|unhex(path[i+2])) {
				return true
			}
		}
	}
	return false
}

// startsWithDotSegment reports whether the first segment of rest is "." or "..".
func startsWithDotSegment(rest string) bool {
	segment, _, _ := strings.Cut(rest, "/")
	return segment == "." || segment == ".."
}

// isAmbiguousEscape reports whether an escape of the byte c makes a path ambiguous: c needs no
// escape (RFC 3986 6.2.2.2), has a meaning in paths, or is a control character. A negative c stands
// for a malformed escape.
func isAmbiguousEscape(c int) bool {
	switch {
	case c < 0: // a malformed escape
		return true
	case c < ' ', c == 0x7f:
		return true
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c < 0x80 && strings.IndexByte("-._~/\\;%?#", byte(c)) >= 0
}

// unhex returns the value of a hexadecimal digit. If c is not a hexadecimal digit, the result is
// so low that a byte computed from it stays negative.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1 << 16
}
