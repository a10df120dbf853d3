package rbac

import "strings"

// isAmbiguous reports whether an application may take a path, which has no query,
// for another one than it is as sent: because it has empty segments, "." or "..",
// parameters behind ";", a backslash, a fragment, or because it encodes what needs no encoding
// (RFC 3986 6.2.2.2) or what would separate segments.
func isAmbiguous(path string) bool {
	for i := range len(path) {
		switch path[i] {
		case '\\', ';', '#':
			return true
		case '/':
			if isDots(path[i+1:]) || strings.HasPrefix(path[i+1:], "/") {
				return true
			}
		case '%':
			if i+2 >= len(path) || isOddlyEncoded(unhex(path[i+1])<<4|unhex(path[i+2])) {
				return true
			}
		}
	}
	return false
}

// isDots reports whether the first segment of rest is "." or "..".
func isDots(rest string) bool {
	segment, _, _ := strings.Cut(rest, "/")
	return segment == "." || segment == ".."
}

// isOddlyEncoded reports whether a byte is not one that has to be encoded in a
// segment, or one that applications treat as if it were not.
func isOddlyEncoded(c int) bool {
	switch {
	case c < 0: // no encoding at all
		return true
	case c < ' ', c == 0x7f:
		return true
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c < 0x80 && strings.IndexByte("-._~/\\;%?#", byte(c)) >= 0
}

// unhex returns the value of a hexadecimal digit; negative if it is none, and
// negative stays what is made of it.
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
