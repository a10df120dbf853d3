package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
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
	for _, problem := range belowBars(bars, report.Features) {
		t.Error(problem)
	}
}

// belowBars returns a message for each feature without a bar, or with a share below it.
func belowBars(bars map[string]int, features []compare.Feature) (problems []string) {
	for _, f := range features {
		bar, found := bars[f.Name]
		switch {
		case !found:
			problems = append(problems, fmt.Sprintf("%s has no feature %s; run make interop-envoy ENVOY=-update", barsFile, f.Name))
		case f.Share() < bar:
			problems = append(problems, fmt.Sprintf(
				"%s: %d %% of %d cases are equal or have only named differences, want at least %d %%; -args -features '^%s$' -differences prints the others",
				f.Name, f.Share(), f.Cases-f.Invalid, bar, f.Name))
		}
	}
	return problems
}

func TestBelowBars(t *testing.T) {
	features := []compare.Feature{
		{Name: "at", Count: compare.Count{Cases: 4, Named: 3}},
		{Name: "above", Count: compare.Count{Cases: 4, Named: 4}},
		{Name: "below", Count: compare.Count{Cases: 4, Named: 2}},
		{Name: "rejected", Count: compare.Count{Cases: 4, Named: 2, Rejected: 2}},
		{Name: "invalid", Count: compare.Count{Cases: 4, Invalid: 4}},
		{Name: "new", Count: compare.Count{Cases: 1}},
	}
	bars := map[string]int{"at": 75, "above": 75, "below": 75, "rejected": 75, "invalid": 100}
	got := belowBars(bars, features)
	if len(got) != 3 || !strings.HasPrefix(got[0], "below: 50 %") || !strings.HasPrefix(got[1], "rejected: 50 %") || !strings.Contains(got[2], "no feature new") {
		t.Errorf("belowBars = %q, want messages about below, rejected and new", got)
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
