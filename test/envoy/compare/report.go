package compare

import (
	"fmt"
	"io"
	"strings"

	"github.com/weft-proxy/weft/test/envoy/cases"
)

// Result is the result of a case that ran in both proxies.
type Result struct {
	ID          string       `json:"id"`
	Feature     string       `json:"feature"`
	Label       string       `json:"label"`
	Differences []Difference `json:"differences,omitempty"`

	c           *cases.Case
	envoy, weft View
}

// NewResult compares the views of a case and names the differences.
func NewResult(feature string, c *cases.Case, envoy, weft View) *Result {
	r := &Result{ID: c.ID, Feature: feature, Label: strings.ToValidUTF8(c.Label, "?"), c: c, envoy: envoy, weft: weft}
	r.Differences = Compare(c, envoy, weft)
	all := AllNamed()
	for i := range r.Differences {
		for _, n := range all {
			if n.matches(r, r.Differences[i]) {
				r.Differences[i].Name = n.Name
				break
			}
		}
	}
	return r
}

// Equal reports whether the proxies behaved equally.
func (r *Result) Equal() bool { return len(r.Differences) == 0 }

// Named reports whether the proxies behaved equally, apart from named differences.
func (r *Result) Named() bool {
	for _, d := range r.Differences {
		if d.Name == "" {
			return false
		}
	}
	return true
}

// Rejection is a group whose configuration a proxy rejects. Its cases do not run.
type Rejection struct {
	Group   string `json:"group"`
	Feature string `json:"feature"`
	Cases   int    `json:"cases"`
	Envoy   string `json:"envoy,omitempty"` // message of Envoy; "" if it accepts the group
	Weft    string `json:"weft,omitempty"`  // message of Weft; "" if it accepts the group
}

// Count counts cases.
type Count struct {
	Cases    int `json:"cases"`
	Equal    int `json:"equal"`
	Named    int `json:"named"`    // equal, or only with named differences
	Rejected int `json:"rejected"` // Weft rejects the group, and Envoy accepts it
	Invalid  int `json:"invalid"`  // Envoy rejects the group, so there is nothing to compare
}

// Share returns the percentage of cases that are equal or have only named differences, rounded
// down. Cases that Envoy rejects do not count.
func (c Count) Share() int { return c.percent(c.Named) }

// EqualShare returns the percentage of cases that are equal, rounded down. Cases that Envoy rejects
// do not count.
func (c Count) EqualShare() int { return c.percent(c.Equal) }

func (c Count) percent(n int) int {
	if c.Cases == c.Invalid {
		return 100
	}
	return 100 * n / (c.Cases - c.Invalid)
}

func (c *Count) add(d Count) {
	c.Cases += d.Cases
	c.Equal += d.Equal
	c.Named += d.Named
	c.Rejected += d.Rejected
	c.Invalid += d.Invalid
}

// Feature is the result of all groups of a feature.
type Feature struct {
	Name string `json:"name"`
	Count
}

// AreaCount is the result of all groups of an area.
type AreaCount struct {
	Area cases.Area `json:"area"`
	Count
}

// Report is the result of a run.
type Report struct {
	Areas      []AreaCount `json:"areas"`    // in the order of cases.Areas, without those that have no case
	Features   []Feature   `json:"features"` // in the order of the groups
	Total      Count       `json:"total"`
	Rejections []Rejection `json:"rejections"`
	Results    []*Result   `json:"results"`
}

// NewReport counts results. The order of features is that of groups.
func NewReport(groups []*cases.Group, results []*Result, rejections []Rejection) *Report {
	r := &Report{Rejections: rejections, Results: results}
	counts := map[string]*Count{}
	areas := map[cases.Area]*Count{}
	areaOf := map[string]cases.Area{}
	for _, g := range groups {
		if counts[g.Feature] == nil {
			counts[g.Feature] = &Count{}
			areaOf[g.Feature] = g.Area
			r.Features = append(r.Features, Feature{Name: g.Feature})
		}
		counts[g.Feature].Cases += len(g.Cases)
	}
	for _, result := range results {
		c := counts[result.Feature]
		if result.Equal() {
			c.Equal++
		}
		if result.Named() {
			c.Named++
		}
	}
	for _, rejection := range rejections {
		if rejection.Envoy != "" {
			counts[rejection.Feature].Invalid += rejection.Cases
		} else {
			counts[rejection.Feature].Rejected += rejection.Cases
		}
	}
	for i := range r.Features {
		r.Features[i].Count = *counts[r.Features[i].Name]
		r.Total.add(r.Features[i].Count)
		area := areaOf[r.Features[i].Name]
		if areas[area] == nil {
			areas[area] = &Count{}
		}
		areas[area].add(r.Features[i].Count)
	}
	for _, area := range cases.Areas() {
		if areas[area] != nil {
			r.Areas = append(r.Areas, AreaCount{area, *areas[area]})
		}
	}
	return r
}

// WriteTable writes the counts by feature as text, and how often each named difference occurred.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	row := func(name string, c Count) {
		_, _ = fmt.Fprintf(&b, "%-34s %6d %6d %15d %9d %8d %6d%% %5d%%\n",
			name, c.Cases, c.Equal, c.Named, c.Rejected, c.Invalid, c.EqualShare(), c.Share()) // writes to memory do not fail
	}
	heading := func(name string) {
		_, _ = fmt.Fprintf(&b, "%-34s %6s %6s %15s %9s %8s %7s %6s\n", name, "cases", "equal", "equal or named", "rejected", "invalid", "equal", "share")
	}
	heading("feature")
	for _, f := range r.Features {
		row(f.Name, f.Count)
	}
	b.WriteString("\n")
	heading("area")
	for _, a := range r.Areas {
		row(string(a.Area), a.Count)
	}
	row("total", r.Total)
	b.WriteString("\n")
	count := map[string]int{}
	for _, result := range r.Results {
		seen := map[string]bool{}
		for _, d := range result.Differences {
			if d.Name != "" && !seen[d.Name] {
				seen[d.Name] = true
				count[d.Name]++
			}
		}
	}
	for _, n := range AllNamed() {
		_, _ = fmt.Fprintf(&b, "%6d cases: %s\n", count[n.Name], n.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown returns a table with the shares of each area, for docs/envoy.md.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString("| area | cases | equal | equal or named | rejected |\n|---|---|---|---|---|\n")
	row := func(name string, c Count) {
		_, _ = fmt.Fprintf(&b, "| %s | %d | %d %% | %d %% | %d |\n", name, c.Cases-c.Invalid, c.EqualShare(), c.Share(), c.Rejected) // writes to memory do not fail
	}
	for _, a := range r.Areas {
		row(string(a.Area), a.Count)
	}
	row("all", r.Total)
	return b.String()
}

// WriteDifferences writes the results with differences that have no name, and the rejections by
// Weft alone.
func (r *Report) WriteDifferences(w io.Writer) error {
	var b strings.Builder
	for _, result := range r.Results {
		if result.Named() {
			continue
		}
		_, _ = fmt.Fprintf(&b, "%s %s\n", result.ID, shorten(result.Label, 150)) // writes to memory do not fail
		for _, d := range result.Differences {
			if d.Name == "" {
				_, _ = fmt.Fprintf(&b, "    %s\n        envoy %s\n        weft  %s\n", d.Aspect, values(d.Envoy), values(d.Weft))
			}
		}
	}
	for _, rejection := range r.Rejections {
		if rejection.Envoy == "" {
			_, _ = fmt.Fprintf(&b, "%s rejected by weft, %d cases: %s\n", rejection.Group, rejection.Cases, shorten(rejection.Weft, 400))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func values(list []string) string {
	if list == nil {
		return "-"
	}
	return shorten(fmt.Sprintf("%q", list), 260)
}

func shorten(text string, limit int) string {
	if len(text) > limit {
		return text[:limit] + "…"
	}
	return text
}
