package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A test that speaks with real servers and clocks may fail because the machine had no time
// for it. One that failed runs again, alone: if it passes it counts as passed and is said
// to be unsteady, at the end, where it cannot be overlooked. Not if many fail, for then
// something is broken, and not what is never a matter of time: races, panics, builds.

// unsteady is a test that failed, and passed when it ran again.
type unsteady struct {
	failure

	phase string
}

// runAgain runs those of a phase's failed tests again that may be, if they are at most
// mostAgain, and corrects its outcome.
func (r *runner) runAgain(ctx context.Context, o *outcome) {
	if len(o.failures) > r.mostAgain || o.err != nil {
		return
	}
	var left []failure
	for _, f := range o.failures {
		if !r.passes(ctx, &f, o.phase) {
			left = append(left, f)
			continue
		}
		o.counts.failed--
		o.counts.passed++
		o.unsteady = append(o.unsteady, unsteady{f, o.phase.name})
	}
	o.failures = left
}

// passes reports whether a test that failed passes when it runs again, alone.
func (r *runner) passes(ctx context.Context, f *failure, p phase) bool {
	if f.test == "" {
		return false
	}
	flags := slices.DeleteFunc(slices.Clone(p.args), func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	again := r.runOnce(ctx, phase{name: p.name + ", again", args: append(flags, "-count=1", "-run="+onlyTest(f.test), f.pkg)})
	return again.err == nil && again.counts.failed == 0 && again.counts.passed > 0
}

// onlyTest returns the pattern of go test -run that a test and no other matches.
func onlyTest(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// mayPass reports whether what a failed test wrote leaves it open that it passes another
// time.
func mayPass(output []string) bool {
	return !slices.ContainsFunc(output, func(text string) bool {
		return catastrophe.MatchString(text) || strings.Contains(text, "race detected during execution of test")
	})
}

// writeUnsteady writes which tests failed and passed, and why they failed.
func writeUnsteady(out io.Writer, tests []unsteady) {
	for _, u := range tests {
		_, _ = fmt.Fprintf(out, "UNSTEADY %s: %s: passed when it ran again, alone; before:\n", u.phase, u.name)
		for _, line := range u.lines {
			_, _ = fmt.Fprintf(out, "      %s\n", strings.TrimSpace(line))
		}
	}
}
