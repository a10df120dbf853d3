package main

import (
	"path/filepath"
	"testing"

	"github.com/weft-proxy/weft/test/subject"
)

// TestFileAndControlPlaneAreCompared verifies that Weft configured by a file and by a control plane
// both respond and are compared.
func TestFileAndControlPlaneAreCompared(t *testing.T) {
	if testing.Short() {
		t.Skip("this test builds Weft")
	}
	weft := filepath.Join(t.TempDir(), "weft")
	if err := subject.Weft(filepath.Join("..", ".."), weft); err != nil {
		t.Fatal(err)
	}
	env := newTestEnvironment(t, "-bin", "weft="+weft, "-proxies", "weft,relay", "-rows", "xds-1k-64", "-rounds", "2",
		"-seconds", "0.1", "-warmup", "0", "-patience", "0", "-half=false")
	report, err := env.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cells := report.Loads[0].Cells
	if len(cells) != 2 || cells[0].Proxy != "weft" || cells[1].Proxy != "weft+xds" {
		t.Fatalf("measured: %+v, want weft and weft+xds", cells)
	}
	for _, c := range cells {
		for i, s := range c.Rounds {
			if s.Requests == 0 || s.CPU == 0 {
				t.Errorf("%s, round %d: %+v, want requests and CPU time", c.Proxy, i+1, s)
			}
		}
	}
	if v := report.Verdicts; len(v) != 1 || v[0].Proxy != "weft+xds" || v[0].Value.Median <= 0 || v[0].Target != 1.02 {
		t.Errorf("verdicts: %+v, want one for weft+xds with the target 1.02", v)
	}
}
