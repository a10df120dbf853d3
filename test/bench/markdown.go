package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// table builds a Markdown table; its columns after the first are right-aligned.
type table struct{ text strings.Builder }

func newTable(columns ...string) *table {
	t := &table{}
	t.row(columns...)
	t.text.WriteString("|---|" + strings.Repeat("---:|", len(columns)-1) + "\n")
	return t
}

func (t *table) row(cells ...string) {
	t.text.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// markdown returns report.md.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s in %.0f s", r.Time.Format("2006-01-02 15:04 UTC"), r.Seconds)
	if r.Commit != "" {
		fmt.Fprintf(&b, " at %s", r.Commit)
	}
	fmt.Fprintf(&b, " by `%s`.\n%s, %d CPUs, Linux %s, %s.\n", r.Command, r.Machine.CPU, r.Machine.CPUs, r.Machine.Kernel, r.Machine.Go)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		if version := r.Versions[name]; version != "" {
			fmt.Fprintf(&b, "%s: %s.\n", name, version)
		}
	}
	for _, skipped := range r.Skipped {
		fmt.Fprintf(&b, "SKIPPED %s.\n", skipped)
	}
	if len(r.Loads) > 0 {
		b.WriteString("\n### CPU time per request, µs: median (min–max)\n")
		// Each table has the rows that were measured on the same programs.
		for rest := r.Loads; len(rest) > 0; {
			n := 1
			for n < len(rest) && slices.Equal(rest[n].programs(), rest[0].programs()) {
				n++
			}
			b.WriteString(overview(rest[:n]))
			rest = rest[n:]
		}
	}
	for _, l := range r.Loads {
		fmt.Fprintf(&b, "\n### %s: %s\n\n%s", l.Name, l.Title, l.markdown())
	}
	if len(r.Idle) > 0 {
		b.WriteString("\n### Idle connections\n\n" + idleMarkdown(r.Idle))
	}
	if len(r.Inflight) > 0 {
		b.WriteString("\n### RPC, all calls in flight\n\n" + inflightMarkdown(r.Inflight))
	}
	if len(r.Streams) > 0 {
		b.WriteString("\n### Idle streams of HTTP/2\n\n" + streamsMarkdown(r.Streams))
	}
	if len(r.Scale) > 0 {
		b.WriteString("\n### A large configuration\n\n" + scaleMarkdown(r.Scale))
	}
	if len(r.BootstrapScale) > 0 {
		b.WriteString("\n### A large bootstrap file\n\n" + bootstrapScaleMarkdown(r.BootstrapScale))
	}
	if len(r.Verdicts) > 0 {
		b.WriteString("\n### Targets\n\n" + r.targets())
	}
	return b.String()
}

// overview returns a table with one line per row and one column per program; all rows have the same
// programs.
func overview(loads []*loadRow) string {
	if len(loads) == 0 {
		return ""
	}
	columns := append([]string{"row"}, loads[0].programs()...)
	if len(columns) == 1 {
		return "\nNo proxy was measured.\n"
	}
	t := newTable(columns...)
	for _, l := range loads {
		line := []string{l.Name}
		for _, c := range l.Cells {
			switch {
			case c.Proxy == direct:
			case c.Note != "":
				line = append(line, c.Note)
			default:
				line = append(line, l.cost(c.Rounds))
			}
		}
		t.row(line...)
	}
	return "\n" + t.text.String()
}

// programs returns the names of the measured programs, without direct.
func (r *loadRow) programs() []string {
	var names []string
	for _, c := range r.Cells {
		if c.Proxy != direct {
			names = append(names, c.Proxy)
		}
	}
	return names
}

// cost formats the CPU time per request: with one decimal for plaintext HTTP/1.1, and with two for
// the other protocols, most of whose times are smaller.
func (r *loadRow) cost(samples []sample) string {
	digits := 1
	if r.Protocol != "" {
		digits = 2
	}
	return summarize(samples, cpu).format(digits)
}

func (r *loadRow) markdown() string {
	t := newTable("", "CPU µs", "requests/s", "p50 µs", "p99 µs", "peak RSS MB", "PSS MB", "waits/request", "pre-emptions/request", "reconnects", "undisturbed rounds")
	for _, c := range r.Cells {
		if c.Note != "" {
			t.row(c.Proxy, c.Note)
			continue
		}
		reconnects := 0
		for _, s := range c.Rounds {
			reconnects += s.Reconnects
		}
		column := func(f func(sample) float64, digits int) string { return summarize(c.Rounds, f).format(digits) }
		process := func(f func(sample) float64, digits int) string {
			if c.Proxy == direct {
				return ""
			}
			return fmt.Sprintf("%.*f", digits, summarize(c.Rounds, f).Median)
		}
		cost := r.cost(c.Rounds)
		if c.Proxy == direct {
			cost = ""
		}
		t.row(c.Proxy, cost, column(rate, 0), column(p50, 0), column(p99, 0),
			process(peak, 1), process(pss, 1), process(waits, 2), process(preemptions, 3), fmt.Sprint(reconnects), undisturbedRounds(c.Rounds))
	}
	text := t.text.String()
	if r.Rate > 0 {
		text += r.halfMarkdown()
	}
	return text + r.syscallMarkdown()
}

// halfMarkdown formats the samples at half load.
func (r *loadRow) halfMarkdown() string {
	t := newTable("", "CPU µs", "p50 µs", "p99 µs", "undisturbed rounds")
	for _, c := range r.Cells {
		if len(c.Half) == 0 {
			continue
		}
		cost := r.cost(c.Half)
		if c.Proxy == direct {
			cost = ""
		}
		t.row(c.Proxy, cost, summarize(c.Half, p50).format(0), summarize(c.Half, p99).format(0), undisturbedRounds(c.Half))
	}
	return fmt.Sprintf("\nAt %.0f requests/s in an open loop:\n\n%s", r.Rate, t.text.String())
}

// syscallMarkdown formats the system calls per request, most frequent first. It returns "" if they
// were not counted.
func (r *loadRow) syscallMarkdown() string {
	t := newTable("", "all", "which")
	tool := ""
	for _, c := range r.Cells {
		if c.Tool == "" {
			continue
		}
		tool = c.Tool
		names := slices.Collect(maps.Keys(c.Syscalls))
		slices.SortFunc(names, func(a, b string) int {
			if c.Syscalls[a] != c.Syscalls[b] {
				return int(1000*c.Syscalls[b]) - int(1000*c.Syscalls[a])
			}
			return strings.Compare(a, b)
		})
		var frequent []string
		for _, name := range names {
			if name != "all" && c.Syscalls[name] >= 0.005 {
				frequent = append(frequent, fmt.Sprintf("%s %.2f", name, c.Syscalls[name]))
			}
		}
		t.row(c.Proxy, fmt.Sprintf("%.2f", c.Syscalls["all"]), strings.Join(frequent, ", "))
	}
	if tool == "" {
		return ""
	}
	return fmt.Sprintf("\nSystem calls per request, counted by %s:\n\n%s", tool, t.text.String())
}

// targets formats one line per verdict and a list of the missed targets.
func (r *report) targets() string {
	t := newTable("row", "program", "what", "median (min–max)", "at most", "", "rounds")
	var misses []string
	measured := 0
	for _, v := range r.Verdicts {
		value, limit := v.Value.format(2)+" "+v.Unit, fmt.Sprintf("%.2f %s", v.Target, v.Unit)
		switch v.Outcome {
		case unmeasured:
			value = ""
		case unbounded:
			limit = ""
		case missed:
			misses = append(misses, fmt.Sprintf("%s, %s: %s", v.Row, v.Proxy, v.What))
			measured++
		case met:
			measured++
		}
		t.row(v.Row, v.Proxy, v.What, value, limit, string(v.Outcome), v.Rounds)
	}
	fmt.Fprintf(&t.text, "\n%d of %d measured targets are missed.\n", len(misses), measured)
	for _, miss := range misses {
		fmt.Fprintf(&t.text, "- %s\n", miss)
	}
	return t.text.String()
}
