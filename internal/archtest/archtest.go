// Package archtest holds the house to its plan: it reads the source of a tree
// and reports where it breaks the rules of docs/ARCHITECTURE.md.
//
// It parses files itself. The go list command would be shorter, but the test
// cache knows only the files that a test opens: a breach would stay hidden
// behind a cached "ok" until something else changed.
//
// A rule is a function of the parsed tree; what it is about (floors, plugs,
// homes of dependencies) is data in house.go. A breach that is right for once
// is written down, either there or at the place itself:
//
//	//arch:long reason     a file or function may be longer than the limit
//	//arch:clock reason    a test's function may sleep: it runs in a bubble of testing/synctest
package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"slices"
)

// A Breach is one place that breaks one rule.
type Breach struct {
	File string // slash-separated, from the root of the tree
	Line int
	Rule string // name of the rule
	Text string // what is wrong, and what to do about it
}

// String returns the breach in the form that editors jump to.
func (b Breach) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", b.File, b.Line, b.Rule, b.Text)
}

// A rule looks at one package and reports what it finds. Rules keep nothing
// between packages.
type rule struct {
	name  string
	check func(p *pkg, report reporter)
}

// reporter takes a breach at a place in the source: what is wrong, then what
// to do.
type reporter func(at token.Pos, wrong, instead string)

// rules returns every rule, cheap ones first.
func rules() []rule {
	return []rule{
		{"floors", checkFloors},
		{"plugs", checkPlugs},
		{"homes", checkHomes},
		{"purity", checkPurity},
		{"comment", checkComment},
		{"init", checkInit},
		{"globals", checkGlobals},
		{"sleep", checkSleep},
		{"length", checkLength},
	}
}

// Check reads the Go module whose root is fsys and returns its breaches in the
// order of files and lines. Folders that the go command ignores (testdata, a
// leading "." or "_") and nested modules are not read. The error is of reading
// or parsing; source that does not type-check is no error.
func Check(fsys fs.FS) ([]Breach, error) {
	tree, err := load(fsys)
	if err != nil {
		return nil, err
	}
	var breaches []Breach
	for _, p := range tree.packages {
		for _, r := range rules() {
			r.check(p, func(at token.Pos, wrong, instead string) {
				place := tree.files.Position(at)
				breaches = append(breaches, Breach{
					File: place.Filename,
					Line: place.Line,
					Rule: r.name,
					Text: wrong + "; " + instead,
				})
			})
		}
	}
	slices.SortFunc(breaches, func(a, b Breach) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Text, b.Text),
		)
	})
	return slices.Compact(breaches), nil
}

// marker returns the reason of an "//arch:name reason" comment in the group and
// whether there is such a comment.
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
