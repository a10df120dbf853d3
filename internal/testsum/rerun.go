package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A test that uses real servers and clocks may fail on a busy machine. testsum runs such a test
// again, alone. If it passes, it counts as passed and is reported as flaky at the end. testsum
// does not run tests again if many failed, because something is broken then. It never reruns tests
// that failed with a race, a panic or a build failure. These are defects even if a second run
// passes.

// flaky is a test that failed and passed when it ran again.
type flaky struct {
	failure

	phase string
}

// rerunFailed runs the failed tests of a phase again and corrects its outcome. It does nothing if
// more than maxRerun tests failed, or the go command failed for another reason.
func (r *runner) rerunFailed(ctx context.Context, o *outcome) {
	if len(o.failures) > r.maxRerun || o.err != nil {
		return
	}
	var remaining []failure
	for _, f := range o.failures {
		if !r.passesAlone(ctx, &f, o.phase) {
			remaining = append(remaining, f)
			continue
		}
		o.counts.failed--
		o.counts.passed++
		o.flaky = append(o.flaky, flaky{f, o.phase.name})
	}
	o.failures = remaining
}

// passesAlone reports whether a failed test passes when it runs again, alone.
func (r *runner) passesAlone(ctx context.Context, f *failure, p phase) bool {
	if f.test == "" {
		return false
	}
	flags := slices.DeleteFunc(slices.Clone(p.args), func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	rerun := r.runOnce(ctx, phase{name: p.name + ", again", args: append(flags, "-count=1", "-run="+onlyTest(f.test), f.pkg)})
	return rerun.err == nil && rerun.counts.failed == 0 && rerun.counts.passed > 0
}

// onlyTest returns the pattern for go test -run that matches only the named test.
func onlyTest(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// mayBeFlaky reports whether a failed test may pass when it runs again, judging by its output.
func mayBeFlaky(output []string) bool {
	return !slices.ContainsFunc(output, func(text string) bool {
		return crashPattern.MatchString(text) || strings.Contains(text, "race detected during execution of test")
	})
}

// writeFlaky writes the flaky tests with the output of their failures.
func writeFlaky(out io.Writer, tests []flaky) {
	for _, u := range tests {
		_, _ = fmt.Fprintf(out, "FLAKY %s: %s: passed when rerun alone; first run:\n", u.phase, u.name)
		for _, line := range u.lines {
			_, _ = fmt.Fprintf(out, "      %s\n", strings.TrimSpace(line))
		}
	}
}
