package main

import (
	"regexp"
	"slices"
	"strings"
)

// The race detector slows tests down and allocates, so that tests of allocations and of
// large amounts of data skip themselves under it. They run in a second phase without it,
// instead of all other tests running twice.

// topTest is a test function.
type topTest struct{ pkg, name string }

// topName returns the name of the function that a test or subtest is of.
func topName(test string) string {
	top, _, _ := strings.Cut(test, "/")
	return top
}

// skippedPhase returns the phase that runs the tests which o's phase skipped.
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

// replaceSkips removes the skipped tests from o that second has run. If they skipped
// themselves again, second has them.
func (o *outcome) replaceSkips(second *outcome) {
	all := len(o.skips)
	o.skips = slices.DeleteFunc(o.skips, func(s skip) bool { return second.ran[topTest{s.pkg, topName(s.test)}] })
	o.counts.skipped -= all - len(o.skips)
	if second.counts == (counts{}) { // the build failed, or no test has the name any more
		second.counts.failed++
	}
}
