// Package urlpath owns the forms of a request's path that mean the same: it makes one of
// them, so that those who compare paths and those who serve them read the same. It is
// pure. All functions take a request target in origin form (RFC 9112 3.2.1), "/path?query",
// leave its query alone, and return the target itself, without an allocation, where there
// is nothing to change.
package urlpath

import (
	"bytes"
	"errors"
	"strings"
)

// ErrMalformed says that a percent sign is not followed by two hexadecimal digits. What it means
// is anybody's guess, and after one round of decoding it may mean something else.
var ErrMalformed = errors.New("the path has a malformed percent-encoding")

// Normalize decodes what needs no encoding (RFC 3986 6.2.2.2), takes backslashes for
// slashes, as browsers do, and removes dot segments (6.2.2.3); those that lead above the
// root lead to it. What is normal stays as it is if it is normalized again. An encoding
// that stays keeps its case.
func Normalize(target string) (string, error) {
	path, query := cut(target)
	if !strings.ContainsAny(path, `%\`) && !strings.Contains(path, "/.") {
		return target, nil
	}
	plain, err := decode(path)
	if err != nil {
		return "", err
	}
	if plain = removeDots(plain); plain == path {
		return target, nil
	}
	return plain + query, nil
}

// MergeSlashes makes one slash of several in a row.
func MergeSlashes(target string) string {
	path, query := cut(target)
	if !strings.Contains(path, "//") {
		return target
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

// UnescapeSlashes decodes the slashes and backslashes that are encoded, and reports
// whether there are any.
func UnescapeSlashes(target string) (out string, found bool) {
	path, query := cut(target)
	if !strings.Contains(path, "%") {
		return target, false
	}
	var b strings.Builder
	b.Grow(len(target))
	for i := 0; i < len(path); i++ {
		if c, ok := octet(path[i:]); ok && (c == '/' || c == '\\') {
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

// cut returns the path, and the query with its question mark.
func cut(target string) (path, query string) {
	if i := strings.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i:]
	}
	return target, ""
}

// decode decodes unreserved characters and makes slashes of backslashes.
func decode(path string) (string, error) {
	var b strings.Builder
	b.Grow(len(path))
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '\\':
			b.WriteByte('/')
		case '%':
			c, ok := octet(path[i:])
			switch {
			case !ok:
				return "", ErrMalformed
			case unreserved(c):
				b.WriteByte(c)
			default:
				b.WriteString(path[i : i+3])
			}
			i += 2
		default:
			b.WriteByte(path[i])
		}
	}
	return b.String(), nil
}

// octet returns what "%XX" at the beginning of text stands for.
func octet(text string) (c byte, ok bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	high, ok1 := digit(text[1])
	low, ok2 := digit(text[2])
	return high<<4 | low, ok1 && ok2
}

func digit(c byte) (byte, bool) {
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

// unreserved is RFC 3986 2.3.
func unreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}

// removeDots is RFC 3986 5.2.4 for a path that begins with a slash.
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
		switch segment {
		case "/.", "/..":
			if segment == "/.." {
				out = parent(out)
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

// parent cuts the last segment off.
func parent(path []byte) []byte {
	return path[:max(bytes.LastIndexByte(path, '/'), 0)]
}
