package configjson

import (
	"testing"
	"testing/fstest"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// TestDiagnosePosition verifies that Diagnose returns the position of the innermost existing value.
func TestDiagnosePosition(t *testing.T) {
	const text = `node: {id: a}
static_resources:
  listeners:
  - name: one
  - name: two
    filterChains: [{name: c}]
  clusters:
  - typed: {envoy.http.Options: {x: 1}}
`
	caps := testCapabilities()
	f, diagnostics := Open("a.yaml", caps, Options{Files: memFS{fstest.MapFS{"a.yaml": {Data: []byte(text)}}}})
	if f == nil {
		t.Fatal(diagnostics)
	}
	for path, want := range map[string]string{
		"":                                "a.yaml: warning: is wrong",
		"node.id":                         "a.yaml:1:12: warning: node.id: is wrong",
		"static_resources.listeners":      "a.yaml:4:3: warning: static_resources.listeners: is wrong",
		"static_resources.listeners[1]":   "a.yaml:5:5: warning: static_resources.listeners[1]: is wrong",
		"static_resources.listeners[2].x": "a.yaml:4:3: warning: static_resources.listeners[2].x: is wrong",
		"static_resources.listeners[1].filter_chains[0].name":      "a.yaml:6:27: warning: static_resources.listeners[1].filter_chains[0].name: is wrong",
		"static_resources.listeners[0].filter_chains[0].filters":   "a.yaml:4:5: warning: static_resources.listeners[0].filter_chains[0].filters: is wrong",
		"static_resources.clusters[0].typed[envoy.http.Options].x": "a.yaml:8:37: warning: static_resources.clusters[0].typed[envoy.http.Options].x: is wrong",
		"static_resources.clusters[0].typed[envoy.http.Options]":   "a.yaml:8:33: warning: static_resources.clusters[0].typed[envoy.http.Options]: is wrong",
		"static_resources.clusters[0].typed[envoy":                 "a.yaml:8:12: warning: static_resources.clusters[0].typed[envoy: is wrong",
		"static_resources.listeners[0].name[x]":                    "a.yaml:4:11: warning: static_resources.listeners[0].name[x]: is wrong",
		"static_resources.clusters[0].load_assignment.endpoints2":  "a.yaml:8:5: warning: static_resources.clusters[0].load_assignment.endpoints2: is wrong",
	} {
		if got := f.Diagnose(document.Warning, path, "is wrong").Error(); got != want {
			t.Errorf("Diagnose(%q) = %q, want %q", path, got, want)
		}
	}
}
