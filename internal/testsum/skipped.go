package main

import (
	"regexp"
	"slices"
	"strings"
)

// The race detector slows tests down and allocates, so tests of allocations and of large amounts of
// data skip themselves under it. A second phase without the race detector runs only these tests.

// topTest identifies a test function.
type topTest struct{ pkg, name string }

// topName returns the name of the function of a test or subtest.
func topName(test string) string {
	top, _, _ := strings.Cut(test, "/")
	return top
}

// skippedPhase returns the phase that runs the tests that o's phase skipped.
func (o *outcome) skippedPhase() phase {
	var packages, tests []string
	for _, s := range o.skips {
		packages = append(packages, s.pkg)
		tests = append(tests, regexp.QuoteMeta(topName(s.test)))
	}
	slices.Sort(packages)
	slices.Sort(tests)
	then := o.phase.then
	pattern := "^(" + strings.Join(slices.Compact(tests), "|") + ")$"
	return phase{name: then.name, args: slices.Concat(then.args, []string{"-run=" + pattern}, slices.Compact(packages))}
}

// replaceSkips removes from o the skipped tests that ran in secondRun. Tests that skipped
// themselves again are skips of secondRun.
func (o *outcome) replaceSkips(secondRun *outcome) {
	skipCount := len(o.skips)
	o.skips = slices.DeleteFunc(o.skips, func(s skip) bool { return secondRun.ran[topTest{s.pkg, topName(s.test)}] })
	o.counts.skipped -= skipCount - len(o.skips)
	if secondRun.counts == (counts{}) { // the build failed, or no test matched
		secondRun.counts.failed++
	}
}
