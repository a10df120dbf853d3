package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a diagnostic rejects the document.
type Severity uint8

// The severities.
const (
	Error   Severity = iota // the document is rejected
	Warning                 // the document is accepted
)

// String returns "error" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Diagnostic is one problem of a document. It implements error.
type Diagnostic struct {
	Severity Severity
	File     string
	Line     int    // from 1; 0: the problem concerns the file as a whole
	Column   int    // from 1, in characters
	Path     string // servers[0].listeners[2].address; "" for the document itself

	// Problem is one clause. It is empty for a value of the wrong kind, which Found and Expected
	// describe.
	Problem    string
	Found      string
	Expected   string
	Suggestion string // the nearest known name; "": none
}

// Error returns the diagnostic as one line:
//
//	file:line:column: path: problem; did you mean "near"?
func (d Diagnostic) Error() string {
	var b strings.Builder
	b.WriteString(d.File)
	if d.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
	}
	b.WriteString(": ")
	if d.Severity == Warning {
		b.WriteString("warning: ")
	}
	if d.Path != "" {
		b.WriteString(d.Path)
		b.WriteString(": ")
	}
	b.WriteString(d.Text())
	return b.String()
}

// Text returns the problem without its location.
func (d Diagnostic) Text() string {
	text := d.Problem
	if text == "" {
		text = "found " + d.Found + ", expected " + d.Expected
	}
	if d.Suggestion != "" {
		text += fmt.Sprintf("; did you mean %q?", d.Suggestion)
	}
	return text
}

// Diagnostics are the problems of one or several documents, ordered by file and position.
type Diagnostics []Diagnostic

// Failed reports whether d contains an error.
func (d Diagnostics) Failed() bool {
	return slices.ContainsFunc(d, func(x Diagnostic) bool { return x.Severity == Error })
}

// Errors returns the diagnostics of severity Error.
func (d Diagnostics) Errors() Diagnostics { return d.withSeverity(Error) }

// Warnings returns the diagnostics of severity Warning.
func (d Diagnostics) Warnings() Diagnostics { return d.withSeverity(Warning) }

func (d Diagnostics) withSeverity(s Severity) Diagnostics {
	var out Diagnostics
	for _, x := range d {
		if x.Severity == s {
			out = append(out, x)
		}
	}
	return out
}

// Err returns the errors of d as one error with a line for each, or nil if there are none.
func (d Diagnostics) Err() error {
	errs := d.Errors()
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// Error returns one line for each diagnostic.
func (d Diagnostics) Error() string {
	lines := make([]string, len(d))
	for i, x := range d {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// maxDiagnostics is the maximum number of diagnostics of each severity that a Report keeps. More
// problems occur in generated files and are usually repetitions.
const maxDiagnostics = 1000

// Report collects the problems of one or several documents. The zero value is ready to use. A
// Report is not safe for concurrent use.
type Report struct {
	list   Diagnostics
	files  []string         // in order of their first problem
	counts [Warning + 1]int // numbers of diagnostics by severity, including dropped ones
}

// Diagnostics returns the collected diagnostics, ordered by file and position.
func (r *Report) Diagnostics() Diagnostics {
	list := slices.Clone(r.list)
	slices.SortStableFunc(list, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(slices.Index(r.files, a.File), slices.Index(r.files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	for severity, n := range r.counts {
		if dropped := n - maxDiagnostics; dropped > 0 {
			list = append(list, Diagnostic{
				Severity: Severity(severity),
				File:     list[len(list)-1].File,
				Problem:  fmt.Sprintf("and %d more", dropped),
			})
		}
	}
	return list
}

// Errors returns the number of errors so far. A caller compares two results to see whether the code
// between the calls reported an error.
func (r *Report) Errors() int { return r.counts[Error] }

// Add appends a diagnostic whose position is set.
func (r *Report) Add(d Diagnostic) {
	r.counts[d.Severity]++
	if r.counts[d.Severity] > maxDiagnostics {
		return
	}
	if !slices.Contains(r.files, d.File) {
		r.files = append(r.files, d.File)
	}
	r.list = append(r.list, d)
}

// Errorf reports an error at a value.
func (r *Report) Errorf(n Node, format string, args ...any) {
	r.addAt(n, n.Position(), Diagnostic{Problem: fmt.Sprintf(format, args...)})
}

// Warnf reports a warning at a value.
func (r *Report) Warnf(n Node, format string, args ...any) {
	r.addAt(n, n.Position(), Diagnostic{Severity: Warning, Problem: fmt.Sprintf(format, args...)})
}

// Expect reports a value that is not as expected. expected describes the accepted values: "a
// duration like \"10s\"".
func (r *Report) Expect(n Node, expected string) {
	r.addAt(n, n.Position(), Diagnostic{Found: n.Describe(), Expected: expected})
}

// Unknown reports a name that is not in known. label says what the name refers to, such as "filter"
// or "cluster".
func (r *Report) Unknown(n Node, label, name string, known []string) {
	if r.limitReached(Error) {
		known = nil // the diagnostic is dropped: do not compute a suggestion
	}
	r.addAt(n, n.Position(), Diagnostic{
		Problem:    fmt.Sprintf("unknown %s %q", label, name),
		Found:      fmt.Sprintf("%q", name),
		Expected:   "a known " + label,
		Suggestion: Suggest(name, known),
	})
}

// limitReached reports whether the Report only counts further diagnostics of a severity.
func (r *Report) limitReached(s Severity) bool { return r.counts[s] >= maxDiagnostics }

// Unsupported reports a feature that the schema defines and Weft does not support yet.
func (r *Report) Unsupported(n Node, feature string) {
	r.addAt(n, n.Position(), Diagnostic{
		Problem:  feature + " is not supported yet",
		Found:    feature,
		Expected: "its absence",
	})
}

// unknownKey reports a member whose key is not in known.
func (r *Report) unknownKey(member Node, known []string, s Severity) {
	r.addAt(member, member.KeyPosition(), Diagnostic{
		Severity:   s,
		Problem:    fmt.Sprintf("unknown key %q", member.Key()),
		Found:      fmt.Sprintf("%q", member.Key()),
		Expected:   "a known key",
		Suggestion: Suggest(member.Key(), known),
	})
}

func (r *Report) addAt(n Node, p Position, d Diagnostic) {
	if r.limitReached(d.Severity) {
		r.Add(d) // drops d, which needs no path
		return
	}
	d.File, d.Line, d.Column, d.Path = p.File, p.Line, p.Column, n.Path()
	r.Add(d)
}
