package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// ruleCase is a rule and the script that verifies it.
type ruleCase struct {
	name   string // the rule
	rfc    string // RFC and section that state the rule
	setup  func(s *setup)
	script script
	// wholeWritesOnly means that the script is not run byte by byte, because its result depends on
	// the timing or on bytes that arrive together.
	wholeWritesOnly bool
	// defect is the reason why Weft fails the case; "": the case runs. Otherwise the case is
	// skipped.
	defect string
}

// caseTable holds the cases about one subject.
type caseTable struct {
	subject string
	cases   []ruleCase
}

func caseTables() []caseTable {
	return []caseTable{
		{"messages", messageCases()},
		{"connection fields", connectionFieldCases()},
		{"framing of requests", requestFramingCases()},
		{"framing of responses", responseFramingCases()},
		{"chunked coding", chunkCases()},
		{"trailer sections", trailerCases()},
		{"syntax of requests", requestSyntaxCases()},
		{"syntax of responses", responseSyntaxCases()},
		{"targets and Host", targetCases()},
		{"methods", methodCases()},
		{"interim responses and expectations", interimCases()},
		{"responses without a body", noBodyCases()},
		{"upgrades and tunnels", tunnelCases()},
		{"HTTP/1.0", oldVersionCases()},
		{"persistence and pipelining", persistenceCases()},
		{"unread bodies and early responses", earlyCases()},
		{"disconnects", disconnectCases()},
		{"limits", limitCases()},
		{"forwarding fields", forwardingCases()},
	}
}

// TestHTTP1 verifies the rules of every table twice: with whole writes, and byte by byte. Its log
// ends with the results.
func TestHTTP1(t *testing.T) {
	var report report
	for _, table := range caseTables() {
		t.Run(table.subject, func(t *testing.T) {
			for _, c := range table.cases {
				t.Run(c.name, func(t *testing.T) {
					start := time.Now()
					defer func() { report.add(table.subject, c, outcomeOf(t), time.Since(start)) }()
					c.run(t)
				})
			}
		})
	}
	t.Log(report.String())
}

func (c ruleCase) run(t *testing.T) {
	if c.defect != "" {
		t.Skip("defect: " + c.defect)
	}
	c.runScript(t, false)
	if !c.wholeWritesOnly && !t.Failed() {
		t.Run("byte by byte", func(t *testing.T) { c.runScript(t, true) })
	}
}

func (c ruleCase) runScript(t *testing.T, byteByByte bool) {
	h := newHarness(t, c.setup)
	h.byteByByte = byteByByte
	for i, do := range c.script {
		do(h)
		if t.Failed() {
			t.Fatalf("failed at step %d of %d", i+1, len(c.script))
		}
	}
}

func outcomeOf(t *testing.T) string {
	switch {
	case t.Skipped():
		return "DEFECT"
	case t.Failed():
		return "FAIL"
	}
	return "pass"
}

// report collects the results in the order of the tables.
type report struct {
	lines   []string
	counts  map[string]int
	subject string
}

func (r *report) add(subject string, c ruleCase, outcome string, elapsed time.Duration) {
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	r.counts[outcome]++
	if subject != r.subject {
		r.subject = subject
		r.lines = append(r.lines, "", subject)
	}
	duration := ""
	if elapsed > 100*time.Millisecond {
		duration = fmt.Sprintf("  (%d ms)", elapsed.Milliseconds())
	}
	r.lines = append(r.lines, fmt.Sprintf("  %-6s  %-16s  %s%s", outcome, c.rfc, c.name, duration))
}

func (r *report) String() string {
	return fmt.Sprintf("HTTP/1.1 as an intermediary: %d passed, %d failed, %d known defects\n%s",
		r.counts["pass"], r.counts["FAIL"], r.counts["DEFECT"], strings.Join(r.lines, "\n"))
}
