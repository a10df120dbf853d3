package jwtauthn

import (
	"net/url"
	pathpkg "path"
	"slices"
	"strings"
	"testing"
)

func TestPathVariants(t *testing.T) {
	for path, want := range map[string][]string{
		"":               {""},
		"*":              {"*"},
		"/a/b?c=//d":     {"/a/b"},
		"/%61":           {"/%61", "/a"},
		"/a//b":          {"/a//b", "/a/b"},
		"/a/./b/..":      {"/a/./b/..", "/a/"},
		"/../a":          {"/../a", "/a"},
		"/a%zz%":         {"/a%zz%"},
		"/a;b/c;d":       {"/a;b/c;d", "/a/c"},
		`/a\b`:           {`/a\b`, "/a/b"},
		"/a/b%2Fc/../d":  {"/a/b%2Fc/../d", "/a/b/c/../d", "/a/d", "/a/b/d"},
		"/a//../b":       {"/a//../b", "/a/../b", "/a/b", "/b"},
		"/%2e%2E/a":      {"/%2e%2E/a", "/../a", "/a"},
		"/a/%252e%252e/": {"/a/%252e%252e/", "/a/%2e%2e/", "/a/../", "/"},
	} {
		if got, ok := pathVariants(path); !ok || !slices.Equal(got, want) {
			t.Errorf("pathVariants(%q) = %q, %t; want %q", path, got, ok, want)
		}
	}
	for _, path := range []string{"/" + strings.Repeat("a/../", 500), "/%25252525252525252525252525252525252525252525252525252525252525252525252525252541"} {
		if got, ok := pathVariants(path); ok || got[0] != path {
			t.Errorf("pathVariants(%.20q…) = %d variants, %t; want false: too many", path, len(got), ok)
		}
	}
}

// FuzzPathVariants verifies that pathVariants is closed: cleaning or decoding a variant yields
// another variant.
func FuzzPathVariants(f *testing.F) {
	for _, seed := range []string{"/", "/a/b/", "/a%20b", "/.a/..b", "/a/%2e", "/%2525", "/a;b", "/a//b", `/\`, "/%", "/..", "*", "", "/a/b%2Fc;/../..%5cd"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, original string) {
		if !strings.HasPrefix(original, "/") || strings.Contains(original, "?") {
			return
		}
		variants, ok := pathVariants(original)
		if !ok {
			return
		}
		clean := func(path string) string {
			c := pathpkg.Clean(path)
			if last := path[strings.LastIndexByte(path, '/')+1:]; c != "/" && (last == "" || last == "." || last == "..") {
				c += "/"
			}
			return c
		}
		for _, path := range variants {
			if !strings.Contains(path, "?") && !slices.Contains(variants, clean(path)) {
				t.Errorf("%q has the variant %q, but not its cleaned form %q: %q", original, path, clean(path), variants)
			}
			if decoded, err := url.PathUnescape(path); err == nil && !slices.Contains(variants, decoded) {
				t.Errorf("%q has the variant %q, but not its decoded form %q: %q", original, path, decoded, variants)
			}
		}
	})
}
