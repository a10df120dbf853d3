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
	maxReasonLines      = 10  // of one failure
	maxMessageLines     = 5   // of one message of a test
	maxTotalReasonLines = 50  // of all failures
	maxReasonWidth      = 400 // bytes of a line
)

// failure is a failed test, package or step with the first lines of its output.
type failure struct {
	name      string // "unit: example.com/pkg TestX"
	lines     []string
	pkg, test string // of the test that may run again; "": none
}

// crashPattern matches the line with which the runtime starts to report why it ends a process.
var crashPattern = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|SIG[A-Z]+: )`)

// positionPattern matches the source position at the start of a message of package testing, a
// compiler or vet.
var positionPattern = regexp.MustCompile(`^\s*\S+\.go:\d+(:\d+)?: `)

// failureReason returns at most maxReasonLines lines of a failed test's output: those from the
// report of the runtime, else the first lines of the first messages, which may include t.Log
// output, else the first lines of the output.
func failureReason(output []string) []string {
	var all []string
	for line := range strings.Lines(strings.Join(output, "")) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			all = append(all, shorten(line))
		}
	}
	for i, line := range all {
		if crashPattern.MatchString(line) {
			return firstLines(all[i:], maxReasonLines)
		}
	}
	var messageLines []string
	remaining := 0 // lines to take from the current message
	for _, line := range all {
		if positionPattern.MatchString(line) {
			remaining = maxMessageLines
		}
		if remaining > 0 {
			messageLines = append(messageLines, line)
			remaining--
		}
	}
	if len(messageLines) == 0 {
		messageLines = all
	}
	return firstLines(messageLines, maxReasonLines)
}

// shorten truncates a line that is too long, between two characters.
func shorten(line string) string {
	if len(line) <= maxReasonWidth {
		return line
	}
	end := maxReasonWidth
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}

func firstLines(lines []string, n int) []string { return lines[:min(n, len(lines))] }

// writeFailures writes the failures with their output.
func writeFailures(out io.Writer, failures []failure) {
	if len(failures) == 0 {
		return
	}
	maxLines := max(1, maxTotalReasonLines/len(failures)-1)
	_, _ = fmt.Fprintln(out, "\n== failures")
	for _, f := range failures {
		_, _ = fmt.Fprintf(out, "----  %s\n", f.name)
		for _, line := range firstLines(f.lines, maxLines) {
			_, _ = fmt.Fprintf(out, "      %s\n", strings.TrimSpace(line))
		}
	}
}
