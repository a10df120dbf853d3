package main

import (
	"regexp"
	"slices"
	"strings"
)

// The race detector slows tests down and allocates, so that tests of allocations and of
// large amounts of data skip themselves under it. They run in a second phase without it,
// instead of all other tests running twice.

// skippedPhase returns the phase that runs the tests which o's phase skipped.
func (o *outcome) skippedPhase() phase {
	var packages, tests []string
	for _, s := range o.skips {
		top, _, _ := strings.Cut(s.test, "/")
		packages = append(packages, s.pkg)
		tests = append(tests, regexp.QuoteMeta(top))
	}
	slices.Sort(packages)
	slices.Sort(tests)
	then := o.phase.then
	pattern := "^(" + strings.Join(slices.Compact(tests), "|") + ")$"
	return phase{name: then.name, args: slices.Concat(then.args, []string{"-run=" + pattern}, slices.Compact(packages))}
}

// replaceSkips takes the tests that second ran out of o's skipped ones. Those that skipped
// themselves again are second's.
func (o *outcome) replaceSkips(second *outcome) {
	o.counts.skipped -= len(o.skips)
	o.skips = nil
	if second.counts == (counts{}) { // the build failed, or no test has the name any more
		second.counts.failed++
	}
}
