package rbac

import (
	"net/url"
	pathpkg "path"
	"strings"
	"testing"
)

// FuzzAmbiguousPaths verifies that decoding a second time, and cleaning, do not change a
// path that is not ambiguous.
func FuzzAmbiguousPaths(f *testing.F) {
	for _, seed := range []string{"/", "/a/b/", "/a%20b", "/%e4", "/.a/..b", "/a/%2e", "/%2525", "/a;b", "/a//b", `/\`, "/%", "/..", "*", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "?") || isAmbiguous(path) {
			return
		}
		once, err := url.PathUnescape(path)
		if err != nil {
			t.Fatalf("%q is not a path: %v", path, err)
		}
		if twice, err := url.PathUnescape(once); err != nil || twice != once {
			t.Errorf("%q decodes to %q, and that to %q (%v), want the same path twice", path, once, twice, err)
		}
		if clean := pathpkg.Clean(once); clean != strings.TrimSuffix(once, "/") && once != "/" {
			t.Errorf("%q is cleaned to %q, want no change", path, clean)
		}
		if strings.Count(once, "/") != strings.Count(path, "/") || strings.ContainsAny(once, `\;`) {
			t.Errorf("%q decodes to other segments: %q, want the same segments", path, once)
		}
	})
}
