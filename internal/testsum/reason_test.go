package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReasonsOfOutput(t *testing.T) {
	tests := map[string]struct {
		output string
		want   []string
	}{
		"an assertion before the logs of others": {
			output: "    restart_test.go:270: lost: 3 times\n    peer_test.go:57: the last that it wrote:\n" + strings.Repeat("        log\n", 40),
			want: []string{"    restart_test.go:270: lost: 3 times", "    peer_test.go:57: the last that it wrote:",
				"        log", "        log", "        log", "        log"},
		},
		"a long message leaves room for the next": {
			output: "    a_test.go:1: a\n" + strings.Repeat("        diff\n", 20) + "    a_test.go:2: b\n",
			want: []string{"    a_test.go:1: a", "        diff", "        diff", "        diff", "        diff",
				"    a_test.go:2: b"},
		},
		"many messages are truncated": {
			output: strings.Repeat("    a_test.go:1: a\n", 12),
			want:   slices.Repeat([]string{"    a_test.go:1: a"}, maxReasonLines),
		},
		"lines without a position are left out": {
			output: "2026/11/21 a log line\n    a_test.go:1: a\n",
			want:   []string{"    a_test.go:1: a"},
		},
		"a panic goes before messages": {
			output: "    a_test.go:1: a\npanic: on purpose\n\ngoroutine 1 [running]:\n",
			want:   []string{"panic: on purpose", "goroutine 1 [running]:"},
		},
		"a data race goes before messages": {
			output: "==================\nWARNING: DATA RACE\nRead at 0x1 by goroutine 7:\n    a_test.go:1: a\n",
			want:   []string{"WARNING: DATA RACE", "Read at 0x1 by goroutine 7:", "    a_test.go:1: a"},
		},
		"an error of the compiler": {
			output: "# example.com/a\na/a_test.go:5:30: undefined: x\n",
			want:   []string{"a/a_test.go:5:30: undefined: x"},
		},
		"no message at all": {
			output: "exit status 3\nFAIL\texample.com/a\n",
			want:   []string{"exit status 3", "FAIL\texample.com/a"},
		},
		"a long line is truncated between characters": {
			output: "    a_test.go:1: " + strings.Repeat("€", maxReasonWidth) + "\n",
			want:   []string{"    a_test.go:1: " + strings.Repeat("€", (maxReasonWidth-17)/3) + "…"},
		},
		"no output": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, failureReason([]string{test.output})); diff != "" {
				t.Errorf("failureReason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailureOutputIsLimited(t *testing.T) {
	for _, failures := range []int{0, 1, 3, 5, 24} {
		var all []failure
		for i := range failures {
			all = append(all, failure{name: fmt.Sprintf("unit: example.com/a Test%d", i), lines: slices.Repeat([]string{"    a_test.go:1: a"}, maxReasonLines)})
		}
		var out bytes.Buffer
		writeFailures(&out, all)
		if got := strings.Count(out.String(), "\n"); got > maxTotalReasonLines+2 {
			t.Errorf("%d failures take %d lines, want at most %d", failures, got, maxTotalReasonLines+2)
		}
		for _, f := range all {
			if want := "----  " + f.name + "\n      a_test.go:1: a\n"; !strings.Contains(out.String(), want) {
				t.Errorf("%d failures are written without %q", failures, want)
			}
		}
	}
}
