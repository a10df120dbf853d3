package archtest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the reports of the rules into testdata")

// TestArchitecture verifies that this module follows its rules.
func TestArchitecture(t *testing.T) {
	violations, err := Check(os.DirFS(filepath.Join("..", "..")))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

// TestRules runs Check on every archive of testdata: a small tree with allowed code and deliberate
// violations. Its file "want" lists all expected reports.
func TestRules(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]bool{}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			for _, rule := range runArchive(t, name) {
				reported[rule] = true
			}
		})
	}
	for _, r := range rules() {
		if !reported[r.name] {
			t.Errorf("no archive breaks the rule %q", r.name)
		}
	}
}

// runArchive compares the reports for an archive with its file "want" and returns the broken rules.
func runArchive(t *testing.T, name string) (brokenRules []string) {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{"go.mod": &fstest.MapFile{Data: []byte("module example.com/proxy\n")}}
	var want []byte
	wantIndex := -1
	for i, f := range archive.Files {
		if f.Name == "want" {
			want, wantIndex = f.Data, i
			continue
		}
		tree[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	violations, err := Check(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, v := range violations {
		brokenRules = append(brokenRules, v.Rule)
		got.WriteString(v.String() + "\n")
	}
	if *update {
		if wantIndex < 0 {
			archive.Files = append(archive.Files, txtar.File{Name: "want"})
			wantIndex = len(archive.Files) - 1
		}
		archive.Files[wantIndex].Data = got.Bytes()
		if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return brokenRules
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	return brokenRules
}

func TestCheckReturnsReadErrors(t *testing.T) {
	module := &fstest.MapFile{Data: []byte("module example.com/proxy\n")}
	tests := map[string]struct {
		tree fstest.MapFS
		want string
	}{
		"no go.mod":      {fstest.MapFS{}, "not the root of a module"},
		"no module line": {fstest.MapFS{"go.mod": &fstest.MapFile{Data: []byte("go 1.26\n")}}, "no module line"},
		"syntax error":   {fstest.MapFS{"go.mod": module, "cmd/a.go": &fstest.MapFile{Data: []byte("package\n")}}, "cmd/a.go:1:"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Check(test.tree); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check = %v, want an error with %q", err, test.want)
			}
		})
	}
}
