package configjson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReferenceIsCurrent compares the pages of docs/reference with the struct tags; -update writes
// them.
func TestReferenceIsCurrent(t *testing.T) {
	const dir = "../../../docs/reference"
	docs := ReferenceDocs()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if _, ok := docs[filepath.Base(path)]; !ok {
			t.Errorf("%s is not a page of the reference: remove it", path)
		}
	}
	for name, want := range docs {
		path := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s differs from the struct tags; run go test -update (-want +got):\n%s", path, diff)
		}
	}
}

// TestReferencePagesAreReadable verifies that every page has sections and at most 25 KiB.
func TestReferencePagesAreReadable(t *testing.T) {
	const maxBytes = 25 << 10
	for name, text := range ReferenceDocs() {
		if len(text) > maxBytes {
			t.Errorf("%s has %d bytes, want at most %d: split it", name, len(text), maxBytes)
		}
		if !strings.Contains(text, "\n## ") {
			t.Errorf("%s has no sections, want at least one", name)
		}
	}
}

// TestReferenceOfMOSNKeysIsCurrent compares the tables of docs/mosn.md with the struct tags;
// -update writes them.
func TestReferenceOfMOSNKeysIsCurrent(t *testing.T) {
	const path, begin, end = "../../../docs/mosn.md", "<!-- begin keys -->\n", "\n<!-- end keys -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasBegin := strings.Cut(string(text), begin)
	got, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s has no marks %q and %q", path, begin, end)
	}
	want := MOSNTables()
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differs from the struct tags; run go test -update (-want +got):\n%s", path, diff)
	}
}
