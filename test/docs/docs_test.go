// Package docs tests the documentation: it builds and runs the code of pages and checks links.
package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// codeBlock matches a fenced block that names its file.
var codeBlock = regexp.MustCompile("(?ms)^```go file=(\\S+)\n(.*?)^```$")

// TestAddAFilter builds and tests the filter of docs/add-a-filter.md with an overlay, without
// writing it into the tree.
func TestAddAFilter(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/add-a-filter.md"))
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	var packages []string
	for _, match := range codeBlock.FindAllSubmatch(page, -1) {
		name, code := string(match[1]), match[2]
		file := filepath.Join(t.TempDir(), path.Base(name))
		if err := os.WriteFile(file, code, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "gofmt", "-d", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s is not formatted: %v\n%s", name, err, out)
		}
		replace[filepath.Join(base, filepath.FromSlash(name))] = file
		packages = append(packages, "./"+path.Dir(name))
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	if len(packages) != 1 || len(replace) != 2 {
		t.Fatalf("the page has %d files in %v, want a package and its test", len(replace), packages)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// Two steps: go test runs a binary in the directory of its package, which does not exist.
	binary := filepath.Join(t.TempDir(), "page.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, packages[0])
	build.Dir = base
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-test.v").CombinedOutput()
	if err != nil {
		t.Fatalf("the tests of the page: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: TestRequireHeader ") {
		t.Errorf("the test of the page did not run:\n%s", out)
	}
}
