package envoy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/compare"
)

// page is docs/envoy.md.
var page = filepath.Join(root, "docs", "envoy.md")

// TestPage verifies that docs/envoy.md has the named differences. With -update it writes them.
func TestPage(t *testing.T) {
	text := readPage(t)
	want := replaceSection(t, text, "differences", compare.Markdown())
	if text == want {
		return
	}
	if !*update {
		t.Fatalf("%s does not match the table in test/envoy/compare/named.go; run go test ./test/envoy -run Page -update", page)
	}
	writePage(t, want)
}

// writeResults writes the shares of a run of all features to docs/envoy.md.
func writeResults(t *testing.T, report *compare.Report) {
	t.Helper()
	writePage(t, replaceSection(t, readPage(t), "results", report.Markdown()))
}

// replaceSection returns text with another content between the comments that begin and end a
// section.
func replaceSection(t *testing.T, text, section, content string) string {
	t.Helper()
	begin, end := "<!-- begin "+section+" -->\n", "<!-- end "+section+" -->\n"
	head, rest, found := strings.Cut(text, begin)
	_, tail, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	return head + begin + content + end + tail
}

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writePage(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
