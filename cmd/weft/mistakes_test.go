//go:build !noxds

package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateMistakes = flag.Bool("update-mistakes", false, "write the expected output for the files of testdata/mistakes")

// TestMistakesInEnvoyFiles verifies that all mistakes of a file are reported, each once, with
// line and column, in the terms of Envoy's documentation. The mistakes are in
// testdata/mistakes/NAME.yaml, the expected output in NAME.txt.
func TestMistakesInEnvoyFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files found", err)
	}
	goType := regexp.MustCompile(`\*?\b\w+v3\.\w+_|<nil>|map\[|proto:`)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			file, merged, diagnostics := source{path: path}.openMerged()
			if file != nil || merged != nil {
				t.Error("the file is accepted, want errors")
			}
			got := strings.ReplaceAll(diagnostics.Errors().Error(), path, filepath.Base(path)) + "\n"
			seen := map[string]bool{}
			for _, d := range diagnostics.Errors() {
				if seen[d.Error()] || d.Line == 0 {
					t.Errorf("reported twice, or without a line: %s", d.Error())
				}
				seen[d.Error()] = true
				if goType.MatchString(d.Text()) {
					t.Errorf("%s: the text contains a Go type", d.Error())
				}
			}
			golden := strings.TrimSuffix(path, ".yaml") + ".txt"
			if *updateMistakes {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("reported\n%s\nwant\n%s", got, want)
			}
		})
	}
}
