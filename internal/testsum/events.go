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

// eventParser processes the output of one "go test -json": it counts tests, and prints a line for
// each package and the output of failed tests.
type eventParser struct {
	out io.Writer

	counts   counts
	packages int
	ran      map[topTest]bool
	skips    []skip
	failures []failure // failures that count, in the order in which they ended

	running map[string]*packageRun // by package
	builds  map[string][]string    // build output by ImportPath
}

// packageRun is a package whose tests run.
type packageRun struct {
	counts counts
	tests  map[string]*test // that have not ended
	output []string         // outside tests
}

// test is a test that has not ended.
type test struct {
	output        []string
	hasSubtests   bool
	subtestFailed bool
}

func newEventParser(out io.Writer) *eventParser {
	return &eventParser{out: out, ran: map[topTest]bool{}, running: map[string]*packageRun{}, builds: map[string][]string{}}
}

// handleLine processes one line of the stream. It prints lines that are not events unchanged.
func (t *eventParser) handleLine(line []byte) {
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
		t.handlePackageEvent(e)
	default:
		t.handleTestEvent(e)
	}
}

func (t *eventParser) handlePackageEvent(e event) {
	p := t.packageOf(e.Package)
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
		t.failPackage(e, p)
	}
}

// failPackage counts a failed package. Its tests that have not ended failed too.
func (t *eventParser) failPackage(e event, p *packageRun) {
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if runningTest := p.tests[name]; !runningTest.hasSubtests {
			p.counts.failed++
			t.report(e.Package, name+" (cut off)", runningTest.output)
			t.addFailure(failure{name: e.Package + " " + name + " (cut off)"}, runningTest.output)
		}
	}
	if output := t.builds[e.FailedBuild]; p.counts.failed == 0 {
		p.counts.failed++
		output = append(output, p.output...)
		t.report(e.Package, "", output)
		t.addFailure(failure{name: e.Package}, output)
	}
	t.counts.add(p.counts)
	t.printf("FAIL  %-52s %6.1f s  %s\n", e.Package, e.Elapsed, p.counts)
}

func (t *eventParser) handleTestEvent(e event) {
	p := t.packageOf(e.Package)
	current := p.tests[e.Test]
	if current == nil {
		current = &test{}
		p.tests[e.Test] = current
	}
	switch e.Action {
	case "run":
		t.ran[topTest{e.Package, topName(e.Test)}] = true
		if parent := p.parentOf(e.Test); parent != nil {
			parent.hasSubtests = true
		}
	case "output":
		if !isRunnerOutput(e.Output) {
			current.output = append(current.output, e.Output)
		}
	case "pass":
		if !current.hasSubtests {
			p.counts.passed++
		}
		delete(p.tests, e.Test)
	case "skip":
		p.counts.skipped++
		t.skips = append(t.skips, skip{e.Package, e.Test, strings.TrimSpace(strings.Join(current.output, ""))})
		delete(p.tests, e.Test)
	case "fail":
		if parent := p.parentOf(e.Test); parent != nil {
			parent.subtestFailed = true
		}
		if !current.subtestFailed {
			p.counts.failed++
			f := failure{name: e.Package + " " + e.Test}
			if mayBeFlaky(current.output) {
				f.pkg, f.test = e.Package, e.Test
			}
			t.addFailure(f, current.output)
		}
		t.report(e.Package, e.Test, current.output)
		delete(p.tests, e.Test)
	}
}

// finish counts packages that never ended, because the go command was stopped, as failed.
func (t *eventParser) finish() {
	for _, name := range slices.Sorted(maps.Keys(t.running)) {
		t.handlePackageEvent(event{Action: "output", Package: name, Output: "ended without a result\n"})
		t.handlePackageEvent(event{Action: "fail", Package: name})
	}
}

func (t *eventParser) packageOf(name string) *packageRun {
	p := t.running[name]
	if p == nil {
		p = &packageRun{tests: map[string]*test{}}
		t.running[name] = p
	}
	return p
}

// parentOf returns the parent of a subtest, or nil for a top-level test. The name of a subtest may
// contain a slash, so not each part of the name before a slash is the name of a test.
func (p *packageRun) parentOf(name string) *test {
	i := strings.LastIndexByte(name, '/')
	for ; i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if parent := p.tests[name[:i]]; parent != nil {
			return parent
		}
	}
	return nil
}

// addFailure records a failure for the summary.
func (t *eventParser) addFailure(f failure, output []string) {
	f.lines = failureReason(output)
	t.failures = append(t.failures, f)
}

func (t *eventParser) report(pkg, name string, output []string) {
	if len(output) == 0 {
		return // a parent whose subtests were reported
	}
	t.printf("----  %s %s\n", pkg, name)
	for line := range strings.Lines(strings.Join(output, "")) {
		t.printf("      %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func (t *eventParser) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, format, args...) // an error of the terminal cannot be reported anywhere
}

// isRunnerOutput reports whether a line of a test's output comes from go test itself.
func isRunnerOutput(line string) bool {
	line = strings.TrimLeft(line, " ")
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
}
