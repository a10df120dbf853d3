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

// areaBarsFile has the minimum shares of each area.
var areaBarsFile = filepath.Join("testdata", "areas.json")

// areaBar has minimum percentages of the cases of an area.
type areaBar struct {
	Equal int `json:"equal"`
	Named int `json:"named"` // equal, or only with named differences
}

// checkBars verifies that no feature has fallen below its bar. With -update it writes new bars for
// the features of the report.
func checkBars(t *testing.T, report *compare.Report) {
	t.Helper()
	bars := readBars[int](t, barsFile)
	if *update {
		shares := map[string]int{}
		for _, f := range report.Features {
			shares[f.Name] = f.Share()
		}
		maps.Copy(bars, shares)
		writeBars(t, barsFile, bars)
		return
	}
	for _, problem := range belowBars(bars, report.Features) {
		t.Error(problem)
	}
}

// checkAreas verifies that no area has fallen below its bars. With -update it writes new bars, and
// the results in docs/envoy.md. The report is that of all features.
func checkAreas(t *testing.T, report *compare.Report) {
	t.Helper()
	if *update {
		bars := map[string]areaBar{}
		for _, a := range report.Areas {
			bars[string(a.Area)] = areaBar{Equal: a.EqualShare(), Named: a.Share()}
		}
		writeBars(t, areaBarsFile, bars)
		writeResults(t, report)
		return
	}
	for _, problem := range belowAreaBars(readBars[areaBar](t, areaBarsFile), report.Areas) {
		t.Error(problem)
	}
}

// belowAreaBars returns a message for each area with a share below its bar.
func belowAreaBars(bars map[string]areaBar, areas []compare.AreaCount) (problems []string) {
	for _, a := range areas {
		if bar := bars[string(a.Area)]; a.EqualShare() < bar.Equal || a.Share() < bar.Named {
			problems = append(problems, fmt.Sprintf("%s: %d %% of the cases are equal, and %d %% are equal or have only named differences; want at least %d %% and %d %%",
				a.Area, a.EqualShare(), a.Share(), bar.Equal, bar.Named))
		}
	}
	return problems
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

func TestBelowAreaBars(t *testing.T) {
	areas := []compare.AreaCount{
		{Area: "at", Count: compare.Count{Cases: 4, Equal: 2, Named: 3}},
		{Area: "fewer equal", Count: compare.Count{Cases: 4, Equal: 1, Named: 3}},
		{Area: "fewer named", Count: compare.Count{Cases: 4, Equal: 2, Named: 2}},
		{Area: "new", Count: compare.Count{Cases: 1}},
	}
	bar := areaBar{Equal: 50, Named: 75}
	got := belowAreaBars(map[string]areaBar{"at": bar, "fewer equal": bar, "fewer named": bar}, areas)
	if len(got) != 2 || !strings.HasPrefix(got[0], "fewer equal: 25 %") || !strings.HasPrefix(got[1], "fewer named: 50 %") {
		t.Errorf("belowAreaBars = %q, want messages about fewer equal and fewer named", got)
	}
}

// readBars reads a file of bars. With -update the file may be missing.
func readBars[V any](t *testing.T, path string) map[string]V {
	t.Helper()
	bars := map[string]V{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && *update {
		return bars
	}
	if err == nil {
		err = json.Unmarshal(text, &bars)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bars
}

func writeBars[V any](t *testing.T, path string, bars map[string]V) {
	t.Helper()
	text, err := json.MarshalIndent(bars, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
