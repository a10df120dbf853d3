package envoy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/compare"
)

// TestPage verifies that docs/envoy.md has the named differences. With -update it writes them.
func TestPage(t *testing.T) {
	const begin, end = "<!-- begin differences -->\n", "<!-- end differences -->\n"
	path := filepath.Join(root, "docs", "envoy.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), begin)
	_, tail, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no %q and %q", path, begin, end)
	}
	want := head + begin + compare.Markdown() + end + tail
	if string(text) == want {
		return
	}
	if !*update {
		t.Fatalf("%s does not match the table in test/envoy/compare/named.go; run go test ./test/envoy -run Page -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
