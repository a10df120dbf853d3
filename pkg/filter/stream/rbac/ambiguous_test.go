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
	f.Fuzz(func(t *testing.T, sent string) {
		if !strings.HasPrefix(sent, "/") || strings.Contains(sent, "?") || isAmbiguous(sent) {
			return
		}
		once, err := url.PathUnescape(sent)
		if err != nil {
			t.Fatalf("%q is no path: %v", sent, err)
		}
		if twice, err := url.PathUnescape(once); err != nil || twice != once {
			t.Errorf("%q decodes to %q, and that to %q (%v)", sent, once, twice, err)
		}
		if clean := pathpkg.Clean(once); clean != strings.TrimSuffix(once, "/") && once != "/" {
			t.Errorf("%q is %q when it is cleaned", sent, clean)
		}
		if strings.Count(once, "/") != strings.Count(sent, "/") || strings.ContainsAny(once, `\;`) {
			t.Errorf("%q has other segments when it is decoded: %q", sent, once)
		}
	})
}
