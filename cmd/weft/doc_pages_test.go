//go:build !noxds

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// configBlock matches a complete configuration on a page of the documentation.
var configBlock = regexp.MustCompile("(?ms)^```(?:json|yaml) config=(\\S+)\n(.*?)^```$")

// TestConfigurationsOfDocPages verifies that the complete configurations on the pages load with no
// diagnostics except warnings about stat_prefix, which Envoy requires. A configuration that reads
// certificates finds them in the directory that CERTS names.
func TestConfigurationsOfDocPages(t *testing.T) {
	pki, dir := testpki.New(t), t.TempDir()
	for _, name := range []string{"shop", "orders"} {
		cert := pki.Issue(testpki.Spec{URIs: []string{"spiffe://shop/ns/default/sa/" + name}, DNS: []string{"localhost"}})
		cert.Write(t, dir, name)
	}
	if err := os.WriteFile(filepath.Join(dir, "mesh-ca.pem"), pki.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CERTS", dir)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	filters, err := filepath.Glob("../../docs/filters/*.md")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, page := range append(pages, filters...) {
		for _, match := range configBlock.FindAllStringSubmatch(readText(t, page), -1) {
			count++
			checkConfiguration(t, filepath.Base(page), match[1], match[2])
		}
	}
	if count < 12 {
		t.Errorf("the pages have %d configurations, want at least 12", count)
	}
}

func checkConfiguration(t *testing.T, page, name, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, merged, diagnostics := source{path: path}.openMerged()
	if file == nil || merged == nil {
		t.Errorf("%s: %s is rejected, want it accepted", page, name)
	}
	for _, d := range diagnostics {
		if d.Severity == document.Error || !strings.HasSuffix(d.Path, ".stat_prefix") {
			t.Errorf("%s: %v, want only warnings about stat_prefix", page, d.Error())
		}
	}
}

// TestReadmeListsEveryCommand verifies that the table of commands in README.md has a row for each
// subcommand.
func TestReadmeListsEveryCommand(t *testing.T) {
	readme := readText(t, filepath.Join(repositoryRoot, "README.md"))
	for _, c := range newCommand().Commands() {
		if c.Name() != "help" && !strings.Contains(readme, "\n| `weft "+c.Name()) {
			t.Errorf("the table of commands in README.md has no row for %s", c.Name())
		}
	}
}
