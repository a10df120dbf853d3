package urlpath

import (
	"errors"
	"strings"
	"testing"
)

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"/":                      "/",
		"/a/b?c=/../d":           "/a/b?c=/../d",
		"/a/../b":                "/b",
		"/a/./b/.":               "/a/b/",
		"/a/b/..":                "/a/",
		"/../../a":               "/a",
		"/..":                    "/",
		"/.":                     "/",
		"/a/%2e%2E/b":            "/b",
		"/a/.%2e/admin?x=%2e":    "/admin?x=%2e",
		`/a/..\admin`:            "/admin",
		"/a//../b":               "/a/b",
		"/%61dmin":               "/admin",
		"/%7euser/%2D%5f":        "/~user/-_",
		"/a%2fb":                 "/a%2fb",
		"/a%5Cb":                 "/a%5Cb",
		"/a%20b":                 "/a%20b",
		"/%252e%252e/a":          "/%252e%252e/a",
		"/.a/..b/c.":             "/.a/..b/c.",
		"/...":                   "/...",
		"/org.Shop/buy":          "/org.Shop/buy",
		"/a?%zz":                 "/a?%zz",
		"/%C3%BC":                "/%C3%BC",
		"//a":                    "//a",
		"/a/%2e%2e%2fadmin":      "/a/..%2fadmin",
		"/a/b/../../../c/./d/..": "/c/",
		"/a%01b%7f":              "/a%01b%7f",
		"/x%2500":                "/x%2500",
		"/a?%00":                 "/a?%00",
		"/%":                     "/%",
		"/%2":                    "/%2",
		"/%zz%41":                "/%zzA",
		"/100%/a":                "/100%/a",
		"/%2%65%2%65/x":          "/%252e%252e/x",
		"/a/..;/b":               "/b",
		"/a/..;x=1;y/b?c":        "/b?c",
		"/a/.;x/b":               "/a/b",
		"/a/b/..;/..;x":          "/",
		"/a/.;":                  "/a/",
		"/a/..;?x/..;/":          "/?x/..;/",
		"/a/%2e%2E;/b":           "/b",
		`/a\..;\b`:               "/b",
		"/a/..;%2fb":             "/",
		"/a/...;/b":              "/a/...;/b",
		"/a/..%3b/b":             "/a/..%3b/b",
		"/a;/.b;/;../c":          "/a;/.b;/;../c",
		"/%%32%65":               "/%252e",
		"/%%32e":                 "/%252e",
		"/%2%66":                 "/%252f",
		"/%%41":                  "/%A",
		"/%%34%31":               "/%2541",
		"/a\"<>^`{|}[b]?\"":      "/a%22%3C%3E%5E%60%7B%7C%7D[b]?\"",
	} {
		got, err := Normalize(in)
		if got != want || err != nil {
			t.Errorf("Normalize(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"/%00", "/a%00b", "/a/..%00/?x"} {
		if got, err := Normalize(in); !errors.Is(err, ErrNUL) {
			t.Errorf("Normalize(%q) = %q, %v, want %v", in, got, err, ErrNUL)
		}
	}
}

func TestMergeSlashes(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "//": "//", "///": "//", "///a": "/a", "/a//": "/a/", "/a//b///c?d=//": "/a/b/c?d=//", "/a/b": "/a/b", "///?//": "//?//",
	} {
		if got := MergeSlashes(in); got != want {
			t.Errorf("MergeSlashes(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUnescapeSlashes(t *testing.T) {
	for _, tt := range []struct {
		in, want string
		found    bool
	}{
		{"/a", "/a", false},
		{"/a%20b?c=%2f", "/a%20b?c=%2f", false},
		{"/a%2fb%5Cc?d=%2F", `/a/b\c?d=%2F`, true},
		{"/a%2Fb", "/a/b", true},
		{"/a%252f", "/a%252f", false},
		{"/a%2", "/a%2", false},
	} {
		if got, found := UnescapeSlashes(tt.in); got != tt.want || found != tt.found {
			t.Errorf("UnescapeSlashes(%q) = %q, %v, want %q, %v", tt.in, got, found, tt.want, tt.found)
		}
	}
}

func TestNormalPathDoesNotAllocate(t *testing.T) {
	const in = "/shop/items/4711?color=blue"
	if n := testing.AllocsPerRun(100, func() {
		out, _ := Normalize(in)
		out, _ = UnescapeSlashes(out)
		if MergeSlashes(out) != in {
			t.Error("a normalized path changed")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzNormalize verifies that Normalize is idempotent and keeps the query, and that a normalized
// path is absolute and has no dot segment, backslash or encoded dot.
func FuzzNormalize(f *testing.F) {
	for _, seed := range []string{"/", "/a/../b", "/%2e%2e/a", `/\..\a`, "/%2%65", "/a/.?b", "/%252e", "//..//.", "/a/..;b/.;", "/a/%2e%2e%2f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if !strings.HasPrefix(in, "/") {
			return
		}
		normalized, err := Normalize(in)
		if err != nil {
			return
		}
		if again, err := Normalize(normalized); again != normalized || err != nil {
			t.Errorf("Normalize(%q) = %q, and Normalize of the result = %q, %v; want the same", in, normalized, again, err)
		}
		path, query, _ := strings.Cut(normalized, "?")
		if _, wantQuery, _ := strings.Cut(in, "?"); query != wantQuery {
			t.Errorf("the query of %q differs from the query of %q", normalized, in)
		}
		for segment := range strings.SplitSeq(path, "/") {
			if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
				t.Errorf("Normalize(%q) = %q, want no dot segment", in, normalized)
			}
		}
		if !strings.HasPrefix(path, "/") || strings.Contains(path, `\`) || strings.Contains(strings.ToLower(path), "%2e") {
			t.Errorf("Normalize(%q) = %q, want an absolute path without backslash and encoded dot", in, normalized)
		}
		merged := MergeSlashes(normalized)
		if MergeSlashes(merged) != merged {
			t.Errorf("MergeSlashes(%q) = %q, which another MergeSlashes changes", normalized, merged)
		}
	})
}
