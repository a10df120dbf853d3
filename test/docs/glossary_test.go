package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestGlossaryNamesExist verifies that the repository has the names in backticks on the glossary
// page: identifiers and keys of the configuration outside tests, and directories. It skips the
// column "not".
func TestGlossaryNamesExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := declaredNames(t)
	count := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \|`).FindAllStringSubmatch(string(page), -1) {
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1]+row[2], -1) {
			count++
			if !nameExists(names, name[1]) {
				t.Errorf("the row %q names %s, which is not an identifier, a configuration key or a directory", row[1], name[1])
			}
		}
	}
	if count < 30 {
		t.Errorf("found only %d names, want at least 30", count)
	}
}

// nameExists reports whether names contains name, or a name that matches it as a pattern. In a
// pattern, "*" and "…" match letters and digits, and the X of "onX" and "OnX" matches a capitalized
// word. A name with a slash is a directory.
func nameExists(names map[string]bool, name string) bool {
	if strings.Contains(name, "/") {
		info, err := os.Stat(filepath.Join(root, name))
		return err == nil && info.IsDir()
	}
	pattern := strings.NewReplacer("*", `\w+`, "…", `\w+`, "OnX", `On[A-Z]\w*`, "onX", `on[A-Z]\w*`, ".", `\.`).Replace(name)
	if pattern == name {
		return names[name]
	}
	form := regexp.MustCompile("^" + pattern + "$")
	for n := range names {
		if form.MatchString(n) {
			return true
		}
	}
	return false
}

// declaredNames returns the names that the Go files other than tests declare: functions, methods,
// types, fields, and variables and constants declared with var and const. It also returns each of
// them as package.Name, selectors like "sync.Pool", and the values of key tags.
func declaredNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				addNames(names, file.Name.Name, n)
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// addNames adds the names that a node of a file in the package declares or selects.
func addNames(names map[string]bool, pkg string, n ast.Node) {
	declare := func(identifiers ...*ast.Ident) {
		for _, i := range identifiers {
			names[i.Name], names[pkg+"."+i.Name] = true, true
		}
	}
	switch n := n.(type) {
	case *ast.FuncDecl:
		declare(n.Name)
	case *ast.TypeSpec:
		declare(n.Name)
	case *ast.ValueSpec:
		declare(n.Names...)
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			names[x.Name+"."+n.Sel.Name] = true
		}
	case *ast.InterfaceType:
		for _, method := range n.Methods.List {
			declare(method.Names...)
		}
	case *ast.StructType:
		for _, field := range n.Fields.List {
			declare(field.Names...)
			if field.Tag == nil {
				continue
			}
			tag, _ := strconv.Unquote(field.Tag.Value) // the parser accepts only valid literals
			for key := range strings.SplitSeq(reflect.StructTag(tag).Get("key"), ",") {
				names[key] = true
			}
		}
	}
}
