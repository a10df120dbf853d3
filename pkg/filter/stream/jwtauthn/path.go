package jwtauthn

import (
	"slices"
	"strconv"
	"strings"
)

// mostSpellings and longestOdd bound what is tried of a path, and how long a path may
// be, in bytes, of which more than one spelling is tried.
const (
	mostSpellings = 32
	longestOdd    = 2048
)

// pathVariants returns what a path, without its query, may mean to an application: itself
// first, then what comes of it by resolving escapes, doubled slashes, parameters,
// backslashes and dot segments, each or not, in any order, once or again. ok is false if
// there is too much that it may mean.
func pathVariants(target string) (all []string, ok bool) {
	raw, _, _ := strings.Cut(target, "?")
	all = []string{raw}
	if !strings.ContainsAny(raw, "%\\;") && !strings.Contains(raw, "//") && !strings.Contains(raw, "/.") {
		return all, true
	}
	if len(raw) > longestOdd {
		return all, false
	}
	for i := 0; i < len(all); i++ {
		for _, resolve := range [...]func(string) string{unescaped, slashesUnescaped, withoutParameters, withSlashes, withSingleSlashes, withoutDots} {
			if p := resolve(all[i]); !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
		if len(all) > mostSpellings {
			return all, false
		}
	}
	return all, true
}

// unescaped resolves the escapes of a path but those of slashes.
func unescaped(path string) string {
	return replaceEscapes(path, func(c byte) bool { return c != '/' && c != '\\' })
}

// slashesUnescaped resolves the others.
func slashesUnescaped(path string) string {
	return replaceEscapes(path, func(c byte) bool { return c == '/' || c == '\\' })
}

func replaceEscapes(path string, which func(c byte) bool) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(path, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		path = rest
		c, err := strconv.ParseUint(rest[:min(2, len(rest))], 16, 8)
		if err != nil || len(rest) < 2 || !which(byte(c)) {
			b.WriteByte('%')
			continue
		}
		b.WriteByte(byte(c))
		path = rest[2:]
	}
}

// withoutParameters drops what is behind ";" in each segment.
func withoutParameters(path string) string {
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

// withSlashes takes backslashes for slashes.
func withSlashes(path string) string { return strings.ReplaceAll(path, "\\", "/") }

// withSingleSlashes takes several slashes for one.
func withSingleSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// withoutDots resolves "." and ".." as RFC 3986 5.2.4 does: an empty segment is one.
func withoutDots(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	kept := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return "/" + strings.Join(kept, "/")
}
