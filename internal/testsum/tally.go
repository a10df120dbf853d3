package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of "go test -json" (go doc test2json).
type event struct {
	Action     string
	Package    string
	Test       string
	Elapsed    float64 // seconds
	Output     string
	ImportPath string // in build-output: "pkg [pkg.test]"
	// FailedBuild is the ImportPath whose build failure made the package fail.
	FailedBuild string
}

// counts holds the number of tests by result. A test with subtests is not counted in addition to
// them when it passes, or fails only because of them. A package that failed without a failed test
// (build, TestMain, a data race after the last test) counts as one failure.
type counts struct{ passed, failed, skipped int }

func (c *counts) add(d counts) {
	c.passed += d.passed
	c.failed += d.failed
	c.skipped += d.skipped
}

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// skip is a test that skipped itself.
type skip struct{ pkg, test, reason string }

// tally processes the output of one "go test -json": it counts tests, and prints a line for each
// package and the output of failed tests.
type tally struct {
	out io.Writer

	counts   counts
	packages int
	ran      map[topTest]bool
	skips    []skip
	failures []failure // failures that count, in the order in which they ended

	running map[string]*running // by package
	builds  map[string][]string // build output by ImportPath
}

// running is a package whose tests run.
type running struct {
	counts counts
	tests  map[string]*test // that have not ended
	output []string         // outside tests
}

// test is a test that has not ended.
type test struct {
	output       []string
	parent       bool // it has subtests
	failureBelow bool // a subtest failed
}

func newTally(out io.Writer) *tally {
	return &tally{out: out, ran: map[topTest]bool{}, running: map[string]*running{}, builds: map[string][]string{}}
}

// line processes one line of the stream. It prints lines that are not events unchanged.
func (t *tally) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		t.printf("%s\n", line)
		return
	}
	switch {
	case e.Action == "build-output":
		t.builds[e.ImportPath] = append(t.builds[e.ImportPath], e.Output)
	case e.Package == "":
		// build-fail: the package's own event reports it
	case e.Test == "":
		t.ofPackage(e)
	default:
		t.ofTest(e)
	}
}

func (t *tally) ofPackage(e event) {
	p := t.of(e.Package)
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "skip":
		delete(t.running, e.Package)
		t.counts.add(p.counts)
		if p.counts == (counts{}) {
			return // no tests
		}
		t.packages++
		t.printf("ok    %-52s %6.1f s  %s\n", e.Package, e.Elapsed, p.counts)
	case "fail":
		delete(t.running, e.Package)
		t.packages++
		t.fail(e, p)
	}
}

// fail counts a failed package. Its tests that have not ended failed too.
func (t *tally) fail(e event, p *running) {
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if open := p.tests[name]; !open.parent {
			p.counts.failed++
			t.report(e.Package, name+" (cut off)", open.output)
			t.note(failure{name: e.Package + " " + name + " (cut off)"}, open.output)
		}
	}
	if output := t.builds[e.FailedBuild]; p.counts.failed == 0 {
		p.counts.failed++
		output = append(output, p.output...)
		t.report(e.Package, "", output)
		t.note(failure{name: e.Package}, output)
	}
	t.counts.add(p.counts)
	t.printf("FAIL  %-52s %6.1f s  %s\n", e.Package, e.Elapsed, p.counts)
}

func (t *tally) ofTest(e event) {
	p := t.of(e.Package)
	current := p.tests[e.Test]
	if current == nil {
		current = &test{}
		p.tests[e.Test] = current
	}
	switch e.Action {
	case "run":
		t.ran[topTest{e.Package, topName(e.Test)}] = true
		if above := p.above(e.Test); above != nil {
			above.parent = true
		}
	case "output":
		if !ceremony(e.Output) {
			current.output = append(current.output, e.Output)
		}
	case "pass":
		if !current.parent {
			p.counts.passed++
		}
		delete(p.tests, e.Test)
	case "skip":
		p.counts.skipped++
		t.skips = append(t.skips, skip{e.Package, e.Test, strings.TrimSpace(strings.Join(current.output, ""))})
		delete(p.tests, e.Test)
	case "fail":
		if above := p.above(e.Test); above != nil {
			above.failureBelow = true
		}
		if !current.failureBelow {
			p.counts.failed++
			f := failure{name: e.Package + " " + e.Test}
			if mayPass(current.output) {
				f.pkg, f.test = e.Package, e.Test
			}
			t.note(f, current.output)
		}
		t.report(e.Package, e.Test, current.output)
		delete(p.tests, e.Test)
	}
}

// end counts packages that never ended, because the go command was stopped, as failed.
func (t *tally) end() {
	for _, name := range slices.Sorted(maps.Keys(t.running)) {
		t.ofPackage(event{Action: "output", Package: name, Output: "ended without a result\n"})
		t.ofPackage(event{Action: "fail", Package: name})
	}
}

func (t *tally) of(name string) *running {
	p := t.running[name]
	if p == nil {
		p = &running{tests: map[string]*test{}}
		t.running[name] = p
	}
	return p
}

// above returns the parent of a subtest, or nil for a top-level test.
func (p *running) above(name string) *test {
	i := strings.LastIndexByte(name, '/')
	for ; i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if above := p.tests[name[:i]]; above != nil {
			return above // names may contain a slash
		}
	}
	return nil
}

// note records a failure for the summary.
func (t *tally) note(f failure, output []string) {
	f.lines = reasonsOf(output)
	t.failures = append(t.failures, f)
}

func (t *tally) report(pkg, name string, output []string) {
	if len(output) == 0 {
		return // a parent whose subtests were reported
	}
	t.printf("----  %s %s\n", pkg, name)
	for line := range strings.Lines(strings.Join(output, "")) {
		t.printf("      %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func (t *tally) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, format, args...) // there is no place to report that the terminal is gone
}

// ceremony reports whether a line of a test's output comes from go test itself.
func ceremony(line string) bool {
	line = strings.TrimLeft(line, " ")
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
}
