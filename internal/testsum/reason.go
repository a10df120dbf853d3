package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// What is repeated of failures at the end, where a log that was cut at its top
// still has it. All of them together are to fit on a screen; one of very many has
// fewer lines, but never none.
const (
	reasonLines  = 10  // of one failure
	messageLines = 5   // of one message of a test
	reasonsLines = 50  // of all failures
	reasonWidth  = 400 // bytes of a line
)

// failure is a test, a package or a step that failed, and the first that it said
// of it.
type failure struct {
	name      string // as "unit: example.com/pkg TestX"
	lines     []string
	pkg, test string // what may run again; "": nothing
}

// catastrophe is how the runtime begins to tell why it ends a test's process.
var catastrophe = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|SIG[A-Z]+: )`)

// position is how package testing, a compiler and vet begin one.
var position = regexp.MustCompile(`^\s*\S+\.go:\d+(:\d+)?: `)

// reasonsOf returns the lines of a failed test's output that tell most about why,
// at most reasonLines of them: how the process began to end; or the first lines of
// the first messages, which it cannot tell from remarks of t.Log; or the first
// lines of all.
func reasonsOf(output []string) []string {
	var all []string
	for line := range strings.Lines(strings.Join(output, "")) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			all = append(all, shorten(line))
		}
	}
	for i, line := range all {
		if catastrophe.MatchString(line) {
			return first(all[i:], reasonLines)
		}
	}
	var told []string
	left := 0 // lines that the message may still have
	for _, line := range all {
		if position.MatchString(line) {
			left = messageLines
		}
		if left > 0 {
			told = append(told, line)
			left--
		}
	}
	if len(told) == 0 {
		told = all
	}
	return first(told, reasonLines)
}

// shorten cuts a line that is too long, between two characters.
func shorten(line string) string {
	if len(line) <= reasonWidth {
		return line
	}
	end := reasonWidth
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}

func first(lines []string, most int) []string { return lines[:min(most, len(lines))] }

// writeFailures writes what failed, and why.
func writeFailures(out io.Writer, failures []failure) {
	if len(failures) == 0 {
		return
	}
	most := max(1, reasonsLines/len(failures)-1)
	_, _ = fmt.Fprintln(out, "\n== what failed")
	for _, f := range failures {
		_, _ = fmt.Fprintf(out, "----  %s\n", f.name)
		for _, line := range first(f.lines, most) {
			_, _ = fmt.Fprintf(out, "      %s\n", strings.TrimSpace(line))
		}
	}
}
