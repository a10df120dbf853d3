// Package urlpath normalizes request paths: it converts equivalent paths to one form, so that code
// that matches paths and code that serves them interpret them in the same way. It does no I/O. All
// functions take a request target in origin form (RFC 9112 3.2.1), "/path?query", and do not change
// its query. A common target, to which they apply no rule, costs no allocation.
package urlpath

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// ErrNUL means that a path contains an encoded NUL, which ends a string in many programs.
var ErrNUL = errors.New("the path has an encoded NUL")

// Normalize converts equivalent paths to one form, as Envoy's normalize_path does. It decodes
// percent-encoded unreserved characters (RFC 3986 6.2.2.2). It encodes visible ASCII characters
// that a path must not contain (3.3), except brackets. It replaces backslashes with slashes, as
// browsers do, and removes dot segments (6.2.2.3) with their parameters. Dot segments do not lead
// above the root. Normalize is idempotent. It does not change the case of the hexadecimal digits in
// an encoding. It keeps a percent sign that begins no encoding, unless a decoded character would
// complete an encoding: then it encodes the percent sign. The only error is ErrNUL.
func Normalize(target string) (string, error) {
	path, query := splitQuery(target)
	if !strings.ContainsAny(path, "%\\"+illegalChars) && !strings.Contains(path, "/.") {
		return target, nil
	}
	normalized, err := decode(path)
	if err != nil {
		return "", err
	}
	if normalized = removeDots(normalized); normalized == path {
		return target, nil
	}
	return normalized + query, nil
}

// MergeSlashes replaces consecutive slashes with one slash. A path of two or more slashes and
// nothing else becomes "//", as with Envoy's merge_slashes.
func MergeSlashes(target string) string {
	path, query := splitQuery(target)
	if !strings.Contains(path, "//") {
		return target
	}
	if strings.Trim(path, "/") == "" {
		return "//" + query
	}
	var b strings.Builder
	b.Grow(len(target))
	for i := range len(path) {
		if path[i] != '/' || i == 0 || path[i-1] != '/' {
			b.WriteByte(path[i])
		}
	}
	b.WriteString(query)
	return b.String()
}

// UnescapeSlashes decodes percent-encoded slashes and backslashes, and reports whether there are
// any.
func UnescapeSlashes(target string) (out string, found bool) {
	path, query := splitQuery(target)
	if !strings.Contains(path, "%") {
		return target, false
	}
	var b strings.Builder
	b.Grow(len(target))
	for i := 0; i < len(path); i++ {
		if c, ok := decodeOctet(path[i:]); ok && (c == '/' || c == '\\') {
			b.WriteByte(c)
			i += 2
			found = true
			continue
		}
		b.WriteByte(path[i])
	}
	if !found {
		return target, false
	}
	return b.String() + query, true
}

// splitQuery returns the path, and the query with its question mark.
func splitQuery(target string) (path, query string) {
	if i := strings.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i:]
	}
	return target, ""
}

// illegalChars are the visible ASCII characters that a path must not contain (RFC 3986 3.3), except
// the percent sign, the backslash, the characters that end a path, and brackets, which are common.
const illegalChars = "\"<>^`{|}"

// decode decodes unreserved characters, encodes illegal characters, and replaces backslashes with
// slashes.
func decode(path string) (string, error) {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(path)+8)
	strayPercent := -1 // index in out of the last percent sign that begins no encoding
	for i := 0; i < len(path); i++ {
		switch b := path[i]; {
		case b == '\\':
			out = append(out, '/')
		case b != '%' && strings.IndexByte(illegalChars, b) >= 0:
			out = append(out, '%', hex[b>>4], hex[b&15])
		case b != '%':
			out = append(out, b)
		default:
			c, ok := decodeOctet(path[i:])
			switch {
			case !ok:
				strayPercent = len(out)
				out = append(out, '%')
				continue
			case c == 0:
				return "", ErrNUL
			case isUnreserved(c):
				out = encodeStray(append(out, c), strayPercent, path[i+3:])
			default:
				out = append(out, path[i:i+3]...)
			}
			i += 2
		}
	}
	return string(out), nil
}

// encodeStray encodes the percent sign at out[strayPercent] if decoding the path again would find
// an encoding there. The encoding consists of the percent sign, the character decoded last, and
// possibly the first character of remaining. If strayPercent is negative, encodeStray does nothing.
func encodeStray(out []byte, strayPercent int, remaining string) []byte {
	var octet [3]byte
	switch {
	case strayPercent < 0 || len(out)-strayPercent > len(octet):
		return out
	case len(out)-strayPercent == len(octet):
		copy(octet[:], out[strayPercent:])
	case remaining == "":
		return out
	default:
		copy(octet[:], out[strayPercent:])
		octet[2] = remaining[0]
	}
	if _, ok := decodeOctet(string(octet[:])); !ok {
		return out
	}
	return slices.Insert(out, strayPercent+1, '2', '5')
}

// decodeOctet decodes "%XX" at the beginning of s.
func decodeOctet(s string) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	high, ok1 := hexDigit(s[1])
	low, ok2 := hexDigit(s[2])
	return high<<4 | low, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// isUnreserved reports whether c is an unreserved character (RFC 3986 2.3).
func isUnreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}

// removeDots removes the dot segments (RFC 3986 5.2.4) of a path that begins with a slash. A dot
// segment may have parameters (RFC 3986 3.3), as in "/..;x", which servlet containers remove before
// they resolve it.
func removeDots(path string) string {
	if !strings.Contains(path, "/.") {
		return path
	}
	out := make([]byte, 0, len(path))
	for len(path) > 0 {
		end := strings.IndexByte(path[1:], '/') + 1
		if end == 0 {
			end = len(path)
		}
		segment, last := path[:end], end == len(path)
		path = path[end:]
		name, _, _ := strings.Cut(segment, ";")
		switch name {
		case "/.", "/..":
			if name == "/.." {
				out = removeLastSegment(out)
			}
			if last {
				out = append(out, '/')
			}
		default:
			out = append(out, segment...)
		}
	}
	return string(out)
}

// removeLastSegment returns path without its last segment.
func removeLastSegment(path []byte) []byte {
	return path[:max(bytes.LastIndexByte(path, '/'), 0)]
}
