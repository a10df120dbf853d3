package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Limits of the failure output at the end, where a truncated log still has it. All failures
// together should fit on a screen; with many failures each has fewer lines, but at least one.
const (
	reasonLines  = 10  // of one failure
	messageLines = 5   // of one message of a test
	reasonsLines = 50  // of all failures
	reasonWidth  = 400 // bytes of a line
)

// failure is a failed test, package or step with the first lines of its output.
type failure struct {
	name      string // "unit: example.com/pkg TestX"
	lines     []string
	pkg, test string // of the test that may run again; "": none
}

// catastrophe matches the line with which the runtime starts to report why it ends a process.
var catastrophe = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|SIG[A-Z]+: )`)

// position matches the source position at the start of a message of package testing, a compiler or
// vet.
var position = regexp.MustCompile(`^\s*\S+\.go:\d+(:\d+)?: `)

// reasonsOf returns at most reasonLines lines of a failed test's output: those from the report of
// the runtime, else the first lines of the first messages, which may include t.Log output, else the
// first lines of the output.
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
	left := 0 // remaining lines of the current message
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

// shorten truncates a line that is too long, between two characters.
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

// writeFailures writes the failures with their output.
func writeFailures(out io.Writer, failures []failure) {
	if len(failures) == 0 {
		return
	}
	most := max(1, reasonsLines/len(failures)-1)
	_, _ = fmt.Fprintln(out, "\n== failures")
	for _, f := range failures {
		_, _ = fmt.Fprintf(out, "----  %s\n", f.name)
		for _, line := range first(f.lines, most) {
			_, _ = fmt.Fprintf(out, "      %s\n", strings.TrimSpace(line))
		}
	}
}
