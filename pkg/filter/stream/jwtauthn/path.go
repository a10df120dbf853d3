package jwtauthn

import (
	"slices"
	"strconv"
	"strings"
)

// maxPathVariants is the maximum number of variants of a path. maxVariantPathBytes is the maximum
// length in bytes of a path with more than one variant.
const (
	maxPathVariants     = 32
	maxVariantPathBytes = 2048
)

// pathVariants returns the paths that an application may derive from target, without the query. The
// first is the path itself. The others result from resolving escapes, double slashes, parameters,
// backslashes and dot segments, in any combination and order. ok is false if there are too many
// variants, or if target is too long to find them.
func pathVariants(target string) (variants []string, ok bool) {
	raw, _, _ := strings.Cut(target, "?")
	variants = []string{raw}
	if !strings.ContainsAny(raw, "%\\;") && !strings.Contains(raw, "//") && !strings.Contains(raw, "/.") {
		return variants, true
	}
	if len(raw) > maxVariantPathBytes {
		return variants, false
	}
	for i := 0; i < len(variants); i++ {
		for _, resolve := range [...]func(string) string{unescape, unescapeSlashes, dropParameters, replaceBackslashes, mergeSlashes, resolveDots} {
			if p := resolve(variants[i]); !slices.Contains(variants, p) {
				variants = append(variants, p)
			}
		}
		if len(variants) > maxPathVariants {
			return variants, false
		}
	}
	return variants, true
}

// unescape decodes the escapes of a path except those of slashes and backslashes.
func unescape(path string) string {
	return replaceEscapes(path, func(c byte) bool { return c != '/' && c != '\\' })
}

// unescapeSlashes decodes the escapes of slashes and backslashes.
func unescapeSlashes(path string) string {
	return replaceEscapes(path, func(c byte) bool { return c == '/' || c == '\\' })
}

func replaceEscapes(path string, decodes func(c byte) bool) string {
	var b strings.Builder
	for {
		prefix, rest, found := strings.Cut(path, "%")
		b.WriteString(prefix)
		if !found {
			return b.String()
		}
		path = rest
		c, err := strconv.ParseUint(rest[:min(2, len(rest))], 16, 8)
		if err != nil || len(rest) < 2 || !decodes(byte(c)) {
			b.WriteByte('%')
			continue
		}
		b.WriteByte(byte(c))
		path = rest[2:]
	}
}

// dropParameters drops everything from ";" on in each segment.
func dropParameters(path string) string {
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

// replaceBackslashes replaces backslashes with slashes.
func replaceBackslashes(path string) string { return strings.ReplaceAll(path, "\\", "/") }

// mergeSlashes merges consecutive slashes.
func mergeSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// resolveDots resolves "." and ".." as in RFC 3986 5.2.4. An empty segment counts as a segment.
func resolveDots(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	result := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(result) > 0 {
				result = result[:len(result)-1]
			}
			if last {
				result = append(result, "")
			}
		default:
			result = append(result, s)
		}
	}
	return "/" + strings.Join(result, "/")
}
