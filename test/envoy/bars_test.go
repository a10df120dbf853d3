package envoy

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/compare"
)

// barsFile has, for each feature, the minimum percentage of cases that are equal or have only named
// differences. Rejected cases count as different.
var barsFile = filepath.Join("testdata", "bars.json")

// checkBars verifies that no feature has fallen below its bar. With -update it writes new bars for
// the features of the report.
func checkBars(t *testing.T, report *compare.Report) {
	t.Helper()
	bars := map[string]int{}
	text, err := os.ReadFile(barsFile)
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && *update) {
		t.Fatal(err)
	}
	if err == nil {
		if err := json.Unmarshal(text, &bars); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		shares := map[string]int{}
		for _, f := range report.Features {
			shares[f.Name] = f.Share()
		}
		maps.Copy(bars, shares)
		writeBars(t, bars)
		return
	}
	for _, f := range report.Features {
		bar, found := bars[f.Name]
		if !found {
			t.Errorf("%s has no feature %s; run make interop-envoy ENVOY=-update", barsFile, f.Name)
		} else if f.Share() < bar {
			t.Errorf("%s: %d %% of %d cases are equal or have named differences, want at least %d %%; -features '^%s$' -differences prints the others",
				f.Name, f.Share(), f.Cases-f.Invalid, bar, f.Name)
		}
	}
}

func writeBars(t *testing.T, bars map[string]int) {
	t.Helper()
	text, err := json.MarshalIndent(bars, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(barsFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(barsFile, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
