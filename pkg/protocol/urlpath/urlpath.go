// Package urlpath owns the forms of a request's path that mean the same: it makes one of
// them, so that those who compare paths and those who serve them read the same. It is
// pure. All functions take a request target in origin form (RFC 9112 3.2.1), "/path?query",
// leave its query alone, and return the target itself, without an allocation, where there
// is nothing to change.
package urlpath

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// ErrNUL says that a path has an encoded NUL, which ends a text for many programs.
var ErrNUL = errors.New("the path has an encoded NUL")

// Normalize makes one form of the paths that mean the same, as Envoy's normalize_path does.
// It decodes what needs no encoding (RFC 3986 6.2.2.2), encodes what may not stand in a
// path as it is (3.3), takes backslashes for slashes, as browsers do, and removes dot
// segments (6.2.2.3), with their parameters; those that lead above the root lead to it. What
// is normal stays as it is if it is normalized again. An encoding that stays keeps its case.
// A percent sign that begins no encoding stays, unless decoding makes one of it: then it is
// encoded. The only error is ErrNUL.
func Normalize(target string) (string, error) {
	path, query := splitQuery(target)
	if !strings.ContainsAny(path, "%\\"+illegalChars) && !strings.Contains(path, "/.") {
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

// MergeSlashes makes one slash of several in a row. A path of slashes alone, but for "/",
// becomes "//", as Envoy's merge_slashes has it.
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

// UnescapeSlashes decodes the slashes and backslashes that are encoded, and reports
// whether there are any.
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

// illegalChars are the visible ASCII characters that a path may not hold as they are (RFC 3986
// 3.3), but for the percent sign and those that end a path, and for brackets, which are
// common.
const illegalChars = "\"<>^`{|}"

// decode decodes unreserved characters, encodes illegal ones, and makes slashes of
// backslashes.
func decode(path string) (string, error) {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(path)+8)
	stray := -1 // place in out of the last percent sign that begins no encoding
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
				stray = len(out)
				out = append(out, '%')
				continue
			case c == 0:
				return "", ErrNUL
			case isUnreserved(c):
				out = encodeStray(append(out, c), stray, path[i+3:])
			default:
				out = append(out, path[i:i+3]...)
			}
			i += 2
		}
	}
	return string(out), nil
}

// encodeStray encodes the percent sign at stray if it begins an encoding together with the
// character that was decoded last, and the first of rest if need be: who decodes the path
// once more must not find another one. A stray below 0 is none.
func encodeStray(out []byte, stray int, rest string) []byte {
	var three [3]byte
	switch {
	case stray < 0 || len(out)-stray > len(three):
		return out
	case len(out)-stray == len(three):
		copy(three[:], out[stray:])
	case rest == "":
		return out
	default:
		copy(three[:], out[stray:])
		three[2] = rest[0]
	}
	if _, ok := decodeOctet(string(three[:])); !ok {
		return out
	}
	return slices.Insert(out, stray+1, '2', '5')
}

// decodeOctet returns what "%XX" at the beginning of text stands for.
func decodeOctet(text string) (c byte, ok bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	high, ok1 := hexDigit(text[1])
	low, ok2 := hexDigit(text[2])
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

// isUnreserved is RFC 3986 2.3.
func isUnreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}

// removeDots is RFC 3986 5.2.4 for a path that begins with a slash. A dot segment may have
// parameters (RFC 3986 3.3), as in "/..;x", which servers of servlets remove before they
// resolve it.
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

// removeLastSegment cuts the last segment off.
func removeLastSegment(path []byte) []byte {
	return path[:max(bytes.LastIndexByte(path, '/'), 0)]
}
