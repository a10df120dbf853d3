package configjson

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// messages returns, from the source, the longest constant part of each format that this package
// passes to Errorf and Warnf as a string literal.
func messages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "Errorf" && f.Sel.Name != "Warnf" || len(call.Args) < 1 {
				return true
			}
			for _, arg := range call.Args[:min(2, len(call.Args))] {
				if text, ok := arg.(*ast.BasicLit); ok {
					if part := constantPart(text.Value); part != "" {
						out = append(out, part)
					}
				}
			}
			return true
		})
	}
	if len(out) < 40 {
		t.Errorf("found %d messages, want at least 40", len(out))
	}
	return out
}

// constantPart returns the longest part of a format between its verbs.
func constantPart(literal string) string {
	text, err := strconv.Unquote(literal)
	if err != nil {
		return ""
	}
	longest := ""
	for _, part := range regexp.MustCompile(`%[qdsvc]`).Split(text, -1) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return strings.TrimSpace(longest)
}
