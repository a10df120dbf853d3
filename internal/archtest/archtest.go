// Package archtest verifies the architecture: it parses the source of a tree and reports where it
// breaks the rules of docs/ARCHITECTURE.md.
//
// Check parses the files itself. The go list command would be shorter, but the test cache tracks
// only the files that a test opens: a violation would stay hidden behind a cached "ok" until
// another file changed.
//
// A rule is a function of the parsed tree. Its data (layers, plugins, owning packages of
// dependencies) is in layers.go. The packages and the size of the binary are in binary.go.
// Exceptions are listed in layers.go or marked in the source:
//
//	//arch:long reason     a file or function may exceed the length limit
//	//arch:clock reason    a function of a test may sleep: it runs in a testing/synctest bubble, or
//	                       the reason says why real time must pass
package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"slices"
)

// A Violation is a position in the source that breaks a rule.
type Violation struct {
	File string // slash-separated, relative to the root of the tree
	Line int
	Rule string // name of the rule
	Text string // the problem, and how to fix it
}

// String returns the violation as "file:line: rule: text", which editors can jump to.
func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", v.File, v.Line, v.Rule, v.Text)
}

// rule checks one package and reports violations. Rules keep no state between packages.
type rule struct {
	name  string
	check func(p *pkg, report reporter)
}

// reporter records a violation at a position: the problem, then how to fix it.
type reporter func(pos token.Pos, problem, fix string)

// rules returns all rules, cheap ones first.
func rules() []rule {
	return []rule{
		{"layers", checkLayers},
		{"plugins", checkPlugins},
		{"owners", checkOwners},
		{"purity", checkPurity},
		{"comment", checkComment},
		{"init", checkInit},
		{"globals", checkGlobals},
		{"sleep", checkSleep},
		{"length", checkLength},
	}
}

// Check reads the Go module whose root is fsys and returns its violations, sorted by file and line.
// It skips directories that the go command ignores (testdata, vendor, a leading "." or "_") and
// nested modules. It returns an error if it cannot read or parse a file; source that does not
// type-check is not an error.
func Check(fsys fs.FS) ([]Violation, error) {
	tree, err := load(fsys)
	if err != nil {
		return nil, err
	}
	var violations []Violation
	for _, p := range tree.packages {
		for _, r := range rules() {
			r.check(p, func(pos token.Pos, problem, fix string) {
				position := tree.files.Position(pos)
				violations = append(violations, Violation{
					File: position.Filename,
					Line: position.Line,
					Rule: r.name,
					Text: problem + "; " + fix,
				})
			})
		}
	}
	slices.SortFunc(violations, func(a, b Violation) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Text, b.Text),
		)
	})
	return slices.Compact(violations), nil
}

// marker returns the reason of an "//arch:name reason" comment in the group, and whether the group
// has such a comment.
func marker(group *ast.CommentGroup, name string) (reason string, found bool) {
	if group == nil {
		return "", false
	}
	for _, comment := range group.List {
		if reason, found = cutMarker(comment.Text, name); found {
			return reason, true
		}
	}
	return "", false
}
