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

// TestConfigurationsOfTheSecurityPage verifies that the complete configurations of docs/security.md
// load with no diagnostics except warnings about stat_prefix, which Envoy requires.
func TestConfigurationsOfTheSecurityPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```(?:json|yaml) config=(\\S+)\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(found) != 2 {
		t.Fatalf("the page has %d configurations, want 2", len(found))
	}
	pki, dir := testpki.New(t), t.TempDir()
	orders := pki.Issue(testpki.Spec{URIs: []string{"spiffe://shop/ns/default/sa/orders"}})
	orders.Write(t, dir, "orders")
	if err := os.WriteFile(filepath.Join(dir, "mesh-ca.pem"), pki.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CERTS", dir)
	for _, one := range found {
		path := filepath.Join(t.TempDir(), string(one[1]))
		if err := os.WriteFile(path, one[2], 0o600); err != nil {
			t.Fatal(err)
		}
		file, whole, diagnostics := source{path: path}.openMerged()
		if file == nil || whole == nil {
			t.Errorf("%s is rejected", one[1])
		}
		for _, d := range diagnostics {
			if d.Severity == document.Error || !strings.HasSuffix(d.Path, ".stat_prefix") {
				t.Error(d.Error())
			}
		}
	}
}
