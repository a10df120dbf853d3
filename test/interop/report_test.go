package interop

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// report holds the outcome of each scenario.
type report struct {
	mu   sync.Mutex
	rows []row // guarded by mu; in the order of their first result
}

// row is a scenario between two peers.
type row struct {
	scenario string
	pair     string
	outcome  map[callPath]string
}

// add records the outcome of a subtest that is ending.
func (r *report) add(t *testing.T, scenario string, p pair, path callPath) {
	outcome := "ok"
	if t.Failed() {
		outcome = "FAILED"
	} else if t.Skipped() {
		outcome = "skipped"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range r.rows {
		if row.scenario == scenario && row.pair == p.String() {
			row.outcome[path] = outcome
			return
		}
	}
	r.rows = append(r.rows, row{scenario, p.String(), map[callPath]string{path: outcome}})
}

// write writes the report as Markdown, if a scenario was run.
func (r *report) write(path string) error {
	if len(r.rows) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	head := "# Interoperability\n\n" +
		"Results of test/interop: each scenario without Weft between the two programs (direct),\n" +
		"with one (once) and with two (through). README.md there explains the names; `-`: not run.\n\n"
	return os.WriteFile(path, []byte(head+r.String()+"\n"+r.sums()), 0o644)
}

// String returns a Markdown table with aligned cells.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	line := func(cells ...string) {
		_, _ = fmt.Fprintf(&out, "| %-30s | %-30s | %-8s | %-8s | %-8s |\n", cells[0], cells[1], cells[2], cells[3], cells[4]) // writes to memory do not fail
	}
	line("scenario", "consumer to provider", string(direct), string(oneWeft), string(twoWefts))
	line("---", "---", "---", "---", "---")
	rows := slices.Clone(r.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.pair, b.pair) })
	for _, row := range rows {
		line(row.scenario, row.pair, cmp.Or(row.outcome[direct], "-"), cmp.Or(row.outcome[oneWeft], "-"), cmp.Or(row.outcome[twoWefts], "-"))
	}
	return out.String()
}

// sums returns how often each outcome occurred.
func (r *report) sums() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{}
	for _, row := range r.rows {
		for _, outcome := range row.outcome {
			counts[outcome]++
		}
	}
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[outcome], outcome))
	}
	return strings.Join(parts, ", ") + "\n"
}
