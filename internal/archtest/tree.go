package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// tree is a parsed module.
type tree struct {
	files    *token.FileSet
	packages []*pkg // by directory, then name
}

// pkg holds the files of one directory that share a package clause, whatever their build
// constraints.
type pkg struct {
	dir     string // slash-separated, relative to the module's root; "." for the root
	name    string
	module  string // module path
	files   []*file
	fileSet *token.FileSet // shared by the tree
	info    *types.Info    // objects of identifiers, resolved within the package
	types   *types.Package
	bubbles map[types.Object]bool // functions that run their argument in fake time; set by checkSleep
}

// file is one source file.
type file struct {
	syntax *ast.File
	test   bool // named _test.go
	lines  int
}

// nonTestFiles yields the files that are not tests.
func (p *pkg) nonTestFiles(yield func(*file) bool) {
	for _, f := range p.files {
		if !f.test && !yield(f) {
			return
		}
	}
}

// moduleDir returns the directory of an import path relative to the module's root, and whether the
// path belongs to this module.
func (p *pkg) moduleDir(importPath string) (dir string, ok bool) {
	if importPath == p.module {
		return ".", true
	}
	return strings.CutPrefix(importPath, p.module+"/")
}

func load(fsys fs.FS) (*tree, error) {
	module, err := modulePath(fsys)
	if err != nil {
		return nil, err
	}
	t := &tree{files: token.NewFileSet()}
	byKey := map[[2]string]*pkg{} // by directory and name
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && (isIgnored(entry.Name()) || isNestedModule(fsys, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || isIgnored(entry.Name()) {
			return nil
		}
		f, err := t.parse(fsys, name)
		if err != nil {
			return err
		}
		dir, clause := path.Dir(name), f.syntax.Name.Name
		p := byKey[[2]string{dir, clause}]
		if p == nil {
			p = &pkg{dir: dir, name: clause, module: module, fileSet: t.files}
			byKey[[2]string{dir, clause}] = p
			t.packages = append(t.packages, p)
		}
		p.files = append(p.files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, p := range t.packages {
		p.resolve()
	}
	return t, nil
}

func (t *tree) parse(fsys fs.FS, name string) (*file, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(t.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &file{
		syntax: syntax,
		test:   strings.HasSuffix(name, "_test.go"),
		lines:  t.files.File(syntax.FileStart).LineCount(),
	}, nil
}

// resolve finds the objects that the identifiers of p refer to. Imported packages are empty
// placeholders, so their objects have no types. That is enough to distinguish a package's variable
// from a local of the same name.
func (p *pkg) resolve() {
	p.info = &types.Info{
		Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{},
	}
	checker := types.Config{
		Importer: importer{},
		Error:    func(error) {}, // the compiler reports errors
	}
	syntax := make([]*ast.File, 0, len(p.files))
	for _, f := range p.files {
		syntax = append(syntax, f.syntax)
	}
	p.types, _ = checker.Check(p.dir, p.fileSet, syntax, p.info) // Error ignores the errors
}

// importer returns an empty package for every path.
type importer struct{}

func (importer) Import(importPath string) (*types.Package, error) {
	empty := types.NewPackage(importPath, guessName(importPath))
	empty.MarkComplete()
	return empty, nil
}

// guessName returns the likely package name of an import path: the last element without a major
// version.
func guessName(importPath string) string {
	base := path.Base(importPath)
	if rest, isMajor := strings.CutPrefix(base, "v"); isMajor {
		if _, err := strconv.Atoi(rest); err == nil {
			base = path.Base(path.Dir(importPath))
		}
	}
	base, _, _ = strings.Cut(base, ".") // gopkg.in/NAME.v1
	return base
}

// line returns the line number of a position.
func (p *pkg) line(pos token.Pos) int { return p.fileSet.Position(pos).Line }

// imports yields the imports of f with their paths.
func (f *file) imports(yield func(importPath string, pos token.Pos) bool) {
	for _, spec := range f.syntax.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic("archtest: malformed import path " + spec.Path.Value)
		}
		if !yield(importPath, spec.Pos()) {
			return
		}
	}
}

// selector returns the import path and the name that a package selector refers to ("time", "Now"),
// or "" if e is anything else.
func (p *pkg) selector(e ast.Expr) (importPath, name string) {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	ident, ok := selector.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	imported, ok := p.info.Uses[ident].(*types.PkgName)
	if !ok {
		return "", ""
	}
	return imported.Imported().Path(), selector.Sel.Name
}

// modulePath returns the path of the module line in go.mod.
func modulePath(fsys fs.FS) (string, error) {
	text, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", fmt.Errorf("archtest: not the root of a module: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "module" {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("archtest: go.mod has no module line")
}

// isIgnored reports whether the go command ignores a directory or file of this name.
func isIgnored(base string) bool {
	return base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

// isNestedModule reports whether dir is the root of another module.
func isNestedModule(fsys fs.FS, dir string) bool {
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

// isWithin reports whether dir is root or below it.
func isWithin(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/")
}

// isWithinAny reports whether dir is one of the roots or below one.
func isWithinAny(dir string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return isWithin(dir, root) })
}

func cutMarker(comment, name string) (reason string, found bool) {
	rest, found := strings.CutPrefix(comment, "//arch:"+name)
	if !found || rest != "" && rest[0] != ' ' {
		return "", false
	}
	return strings.TrimSpace(rest), true
}
