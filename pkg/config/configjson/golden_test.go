package configjson

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// loadArchive loads config.json or config.yaml from an archive of testdata; its file "want"
// contains the expected diagnostics. The comment of the archive describes the case. Lines of the
// comment set options: "lenient", "lint", "http2" (supports Http2 as well) and "nodns" (does not
// support STRICT_DNS).
func loadArchive(t *testing.T, path string) (*config.Snapshot, document.Diagnostics, *txtar.Archive) {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	main := ""
	for _, f := range a.Files {
		files[f.Name] = &fstest.MapFile{Data: f.Data}
		if strings.HasPrefix(f.Name, "config.") {
			main = f.Name
		}
	}
	options := strings.Split(string(a.Comment), "\n")
	caps := testCapabilities()
	if slices.Contains(options, "http2") {
		caps.Protocols = append(caps.Protocols, config.HTTP2)
	}
	if slices.Contains(options, "nodns") {
		caps.ClusterTypes = []config.ClusterType{config.ClusterStatic}
	}
	s, diags := Load(main, caps, Options{
		Lenient: slices.Contains(options, "lenient"),
		Lint:    slices.Contains(options, "lint"),
		Env: func(name string) (string, bool) {
			value, set := map[string]string{"ADDRESS": "127.0.0.1:8080", "TRIES": "3"}[name]
			return value, set
		},
		Files: memFS{files},
	})
	return s, diags, a
}

// compare compares the diagnostics with the archive's "want".
func compare(t *testing.T, path string, a *txtar.Archive, diags document.Diagnostics) {
	t.Helper()
	got := ""
	if len(diags) > 0 {
		got = diags.Error() + "\n"
	}
	index := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "want" })
	if *update {
		if index < 0 {
			a.Files = append(a.Files, txtar.File{Name: "want"})
			index = len(a.Files) - 1
		}
		a.Files[index].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(a), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if index < 0 {
		t.Fatal("the archive has no \"want\": run with -update and review it")
	}
	if diff := cmp.Diff(string(a.Files[index].Data), got); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
}

func TestRejectedFiles(t *testing.T) {
	for path := range archives(t, "testdata/rejected/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			s, diags, a := loadArchive(t, path)
			if s != nil || !diags.Failed() {
				t.Errorf("Load returns a snapshot: %t, reports %v; want no snapshot and an error", s != nil, diags)
			}
			compare(t, path, a, diags)
		})
	}
}

func TestAcceptedFiles(t *testing.T) {
	for path := range archives(t, "testdata/accepted/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			s, diags, a := loadArchive(t, path)
			if s == nil || diags.Failed() {
				t.Errorf("Load returns a snapshot: %t, reports %v; want a snapshot and no error", s != nil, diags)
			}
			compare(t, path, a, diags)
		})
	}
}

func archives(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil || len(list) == 0 {
		t.Fatalf("Glob(%s) = %v, %v, want files", pattern, list, err)
	}
	out := map[string]bool{}
	for _, path := range list {
		out[path] = true
	}
	return out
}

// TestEveryMessageHasATestCase verifies that the archives contain every message that messages
// finds.
func TestEveryMessageHasATestCase(t *testing.T) {
	var content strings.Builder
	for _, path := range slices.Sorted(maps.Keys(archives(t, "testdata/*/*.txtar"))) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content.Write(data)
	}
	for _, message := range messages(t) {
		if !strings.Contains(content.String(), message) {
			t.Errorf("no archive of testdata contains the message %q", message)
		}
	}
}
