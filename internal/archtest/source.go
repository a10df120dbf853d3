package archtest

import (
	"fmt"
	"go/ast"
	"strings"
)

// checkComment verifies that every package has a package comment of the standard form, which begins
// with "Package <name>". External test packages need none, and the comment of a command may begin
// with any words.
func checkComment(p *pkg, report reporter) {
	if strings.HasSuffix(p.name, "_test") {
		return
	}
	prefix := "Package " + p.name + " "
	if p.name == "main" {
		prefix = ""
	}
	for _, f := range p.files {
		if f.syntax.Doc != nil && strings.HasPrefix(f.syntax.Doc.Text(), prefix) {
			return
		}
	}
	report(p.files[0].syntax.Package, "package "+p.name+" has no package comment of the standard form",
		fmt.Sprintf("start one file with %q and describe what the package owns", "// "+prefix+"…"))
}

// checkInit verifies that no package has an init function.
func checkInit(p *pkg, report reporter) {
	for _, f := range p.files {
		for _, decl := range f.syntax.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if ok && function.Recv == nil && function.Name.Name == "init" {
				report(function.Pos(), "func init", "write a constructor and call it, or list the value in cmd/weft/registry.go")
			}
		}
	}
}

// checkLength verifies that files and functions are short, unless a marker gives a reason. For
// tests it only measures files, because functions of tests contain tables.
func checkLength(p *pkg, report reporter) {
	for _, f := range p.files {
		if ast.IsGenerated(f.syntax) {
			continue
		}
		reason, hasMarker := f.lengthMarker()
		switch {
		case hasMarker && reason == "":
			report(f.syntax.Package, "//arch:long without a reason", "add the reason")
		case !hasMarker && f.lines > fileLimit:
			report(f.syntax.Package, fmt.Sprintf("the file has %d lines, more than %d", f.lines, fileLimit),
				"split it by topic, or write //arch:long and the reason above the package clause")
		}
		if f.test {
			continue
		}
		for _, decl := range f.syntax.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok {
				p.checkFunctionLength(function, report)
			}
		}
	}
}

func (p *pkg) checkFunctionLength(function *ast.FuncDecl, report reporter) {
	reason, hasMarker := marker(function.Doc, "long")
	lines := p.line(function.End()) - p.line(function.Pos()) + 1
	switch {
	case hasMarker && reason == "":
		report(function.Pos(), "//arch:long without a reason", "add the reason")
	case !hasMarker && lines > functionLimit:
		report(function.Pos(), fmt.Sprintf("func %s has %d lines, more than %d", function.Name.Name, lines, functionLimit),
			"split it into its steps, or write //arch:long and the reason above it")
	}
}

// lengthMarker returns the //arch:long marker above the package clause.
func (f *file) lengthMarker() (reason string, found bool) {
	for _, group := range f.syntax.Comments {
		if group.End() > f.syntax.Package {
			return "", false
		}
		if reason, found = marker(group, "long"); found {
			return reason, true
		}
	}
	return "", false
}
