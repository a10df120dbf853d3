package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a diagnostic refuses the document.
type Severity uint8

// The severities.
const (
	Error   Severity = iota // the document is refused
	Warning                 // the document is accepted
)

// String returns "error" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Diagnostic is one problem of a document. It is an error.
type Diagnostic struct {
	Severity Severity
	File     string
	Line     int    // from 1; 0: the problem is the file's as a whole
	Column   int    // from 1, in characters
	Path     string // servers[0].listeners[2].address; "" for the document itself

	// Problem is one clause; for a value of the wrong kind it is empty, and
	// Found and Expected say it.
	Problem  string
	Found    string
	Expected string
	Near     string // the nearest known name, "" for none
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

// Text returns what the problem is, without where.
func (d Diagnostic) Text() string {
	text := d.Problem
	if text == "" {
		text = "found " + d.Found + ", expected " + d.Expected
	}
	if d.Near != "" {
		text += fmt.Sprintf("; did you mean %q?", d.Near)
	}
	return text
}

// Diagnostics are the problems of one reading, by file and position.
type Diagnostics []Diagnostic

// Failed reports whether one of them is an error.
func (d Diagnostics) Failed() bool {
	return slices.ContainsFunc(d, func(x Diagnostic) bool { return x.Severity == Error })
}

// Errors returns those that are errors.
func (d Diagnostics) Errors() Diagnostics { return d.only(Error) }

// Warnings returns those that are warnings.
func (d Diagnostics) Warnings() Diagnostics { return d.only(Warning) }

func (d Diagnostics) only(s Severity) Diagnostics {
	var out Diagnostics
	for _, x := range d {
		if x.Severity == s {
			out = append(out, x)
		}
	}
	return out
}

// Err returns the errors among them as one error with a line for each, nil if
// there is none.
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

// reportLimit is how many diagnostics a Report keeps: a generated file that is
// wrong everywhere is wrong in few ways.
const reportLimit = 1000

// Report collects the problems of one reading, however many documents it spans.
// The zero value is ready. It belongs to one goroutine.
type Report struct {
	list    Diagnostics
	files   []string // in order of their first problem
	errors  int
	dropped int
}

// Diagnostics returns what was collected, by file and position.
func (r *Report) Diagnostics() Diagnostics {
	list := slices.Clone(r.list)
	slices.SortStableFunc(list, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(slices.Index(r.files, a.File), slices.Index(r.files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	if r.dropped > 0 {
		list = append(list, Diagnostic{
			Severity: Error,
			File:     list[len(list)-1].File,
			Problem:  fmt.Sprintf("and %d more", r.dropped),
		})
	}
	return list
}

// Errors returns how many errors were reported so far. Comparing two of its
// results tells whether what ran between them went well.
func (r *Report) Errors() int { return r.errors }

// Add appends a diagnostic whose position is known already.
func (r *Report) Add(d Diagnostic) {
	if d.Severity == Error {
		r.errors++
	}
	if r.full() {
		r.dropped++
		return
	}
	if !slices.Contains(r.files, d.File) {
		r.files = append(r.files, d.File)
	}
	r.list = append(r.list, d)
}

// Errorf reports an error at a value.
func (r *Report) Errorf(at Node, format string, args ...any) {
	r.at(at, at.Position(), Diagnostic{Problem: fmt.Sprintf(format, args...)})
}

// Warnf reports a warning at a value.
func (r *Report) Warnf(at Node, format string, args ...any) {
	r.at(at, at.Position(), Diagnostic{Severity: Warning, Problem: fmt.Sprintf(format, args...)})
}

// Expect reports that a value is not what was expected, in words: "a duration
// like \"10s\"".
func (r *Report) Expect(at Node, expected string) {
	r.at(at, at.Position(), Diagnostic{Found: at.Found(), Expected: expected})
}

// Unknown reports a name that is none of those known: what is "filter",
// "cluster" and the like.
func (r *Report) Unknown(at Node, what, name string, known []string) {
	if r.full() {
		known = nil // looking through it would cost more than it is worth
	}
	r.at(at, at.Position(), Diagnostic{
		Problem:  fmt.Sprintf("unknown %s %q", what, name),
		Found:    fmt.Sprintf("%q", name),
		Expected: "a known " + what,
		Near:     Near(name, known),
	})
}

// full reports whether diagnostics are only counted by now.
func (r *Report) full() bool { return len(r.list) >= reportLimit }

// Unbuilt refuses by name what the schema knows and Weft does not do yet.
func (r *Report) Unbuilt(at Node, what string) {
	r.at(at, at.Position(), Diagnostic{
		Problem:  what + " is not supported yet",
		Found:    what,
		Expected: "its absence",
	})
}

// unknownKey reports a member whose key is none of those known.
func (r *Report) unknownKey(member Node, known []string, s Severity) {
	r.at(member, member.KeyPosition(), Diagnostic{
		Severity: s,
		Problem:  fmt.Sprintf("unknown key %q", member.Key()),
		Found:    fmt.Sprintf("%q", member.Key()),
		Expected: "a known key",
		Near:     Near(member.Key(), known),
	})
}

func (r *Report) at(n Node, p Position, d Diagnostic) {
	if r.full() {
		r.Add(d) // without working out the path
		return
	}
	d.File, d.Line, d.Column, d.Path = p.File, p.Line, p.Column, n.Path()
	r.Add(d)
}
