package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// packageTreeOf returns the innermost package tree that contains dir.
func packageTreeOf(dir string) (packageTree, bool) {
	var innermost packageTree
	for _, t := range packageTrees() {
		if isWithin(dir, t.dir) && len(t.dir) > len(innermost.dir) {
			innermost = t
		}
	}
	return innermost, innermost.dir != ""
}

// isException reports whether importExceptions lists the import.
func isException(from, to string) bool {
	return slices.ContainsFunc(importExceptions(), func(e importException) bool { return isWithin(from, e.from) && isWithin(to, e.to) })
}

// pluginOf returns the plugin directory that contains dir, or "" if none does.
func pluginOf(dir string) string {
	elements := strings.Split(dir, "/")
	for _, pattern := range plugins() {
		n := strings.Count(pattern, "/") + 1
		if len(elements) < n {
			continue
		}
		root := path.Join(elements[:n]...)
		if matched, err := path.Match(pattern, root); err != nil {
			panic("archtest: malformed pattern " + pattern)
		} else if matched {
			return root
		}
	}
	return ""
}

// checkLayers verifies the layer rule: a package imports only its own tree and lower layers. Tests
// may import any package except cmd.
func checkLayers(p *pkg, report reporter) {
	from, found := packageTreeOf(p.dir)
	if !found {
		report(p.files[0].syntax.Package,
			p.dir+" has no layer",
			"move it into a directory that has a layer, or add its directory to internal/archtest/layers.go")
		return
	}
	for _, f := range p.files {
		for importPath, pos := range f.imports {
			dir, inModule := p.moduleDir(importPath)
			if !inModule {
				continue
			}
			to, found := packageTreeOf(dir)
			switch {
			case !found || to == from:
				// the same tree, or a package without a layer, which is reported separately
			case f.test && to.dir == "cmd":
				report(pos, "a test imports "+dir,
					"no package may import cmd: test the package that it uses, or run the program")
			case f.test || to.layer < from.layer || isException(p.dir, dir):
			default:
				report(pos,
					fmt.Sprintf("%s (%s, layer %d) imports %s (%s, layer %d)", p.dir, from.dir, from.layer, dir, to.dir, to.layer),
					"a package may import only its own directory tree and lower layers: declare the interface that you need here, or move the code up")
			}
		}
	}
}

// checkPlugins verifies that only cmd imports plugins. Tests and test/ may import any of them.
func checkPlugins(p *pkg, report reporter) {
	if isWithin(p.dir, "cmd") || isWithin(p.dir, "test") {
		return
	}
	for f := range p.nonTestFiles {
		for importPath, pos := range f.imports {
			dir, inModule := p.moduleDir(importPath)
			if !inModule {
				continue
			}
			imported := pluginOf(dir)
			switch importing := pluginOf(p.dir); {
			case imported == "" || imported == importing || isException(p.dir, dir):
			case importing != "":
				report(pos, fmt.Sprintf("plugin %s imports plugin %s", importing, imported),
					"plugins must not import each other: move shared code to the directory of their interface")
			default:
				parent, _ := packageTreeOf(imported)
				report(pos, fmt.Sprintf("%s imports plugin %s", p.dir, imported),
					"only cmd may import a plugin: depend on the interface in "+parent.dir+" and list the plugin in cmd/weft/registry.go")
			}
		}
	}
}

// checkOwners verifies that only the owning packages import a dependency.
func checkOwners(p *pkg, report reporter) {
	for _, f := range p.files {
		inTest := f.test || isWithin(p.dir, "test")
		for importPath, pos := range f.imports {
			if _, inModule := p.moduleDir(importPath); inModule {
				continue
			}
			owner, found := ownerOf(importPath)
			switch {
			case !found && isStandardLibrary(importPath):
			case !found:
				report(pos, importPath+" has no owning package",
					"use the standard library, or add it to internal/archtest/layers.go and its reason to docs/decisions/0005-dependencies.md")
			case isWithinAny(p.dir, owner.dirs) || inTest && owner.allowTests:
			default:
				report(pos, fmt.Sprintf("%s imports %s, %s", p.dir, importPath, owner.importers()), owner.reason)
			}
		}
	}
}

func ownerOf(importPath string) (dependencyOwner, bool) {
	for _, o := range dependencyOwners() {
		if importPath == o.path || !o.exact && isWithin(importPath, o.path) {
			return o, true
		}
	}
	return dependencyOwner{}, false
}

// importers describes who may import the dependency, for a report.
func (o dependencyOwner) importers() string {
	allowed := slices.Clone(o.dirs)
	if o.allowTests {
		allowed = append(allowed, "tests")
	}
	if len(allowed) == 0 {
		return "which no package may import"
	}
	return "which is allowed only in " + strings.Join(allowed, ", ")
}

// isStandardLibrary reports whether an import path belongs to the standard library: its first
// element is not a domain name.
func isStandardLibrary(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// checkPurity verifies that pure packages have no side effects: no sockets, files, logs, locks,
// goroutines, clocks or randomness.
func checkPurity(p *pkg, report reporter) {
	if !isPure(p.dir) {
		return
	}
	for f := range p.nonTestFiles {
		for importPath, pos := range f.imports {
			if hasSideEffects(importPath) {
				report(pos, fmt.Sprintf("pure package %s imports %s", p.dir, importPath),
					"take the value or a function as a parameter, and do the rest in a higher layer")
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(n.Pos(), "pure package "+p.dir+" starts a goroutine", "return what to do, and do it in a higher layer")
			case *ast.SelectorExpr:
				if from, name := p.selector(n); from == "time" && readsClock(name) {
					report(n.Pos(), fmt.Sprintf("pure package %s uses time.%s", p.dir, name), "take the time as a parameter")
				}
			}
			return true
		})
	}
}

// isPure reports whether an entry of purePackages contains dir. Entries above the innermost package
// tree of dir do not apply, so a tree inside a pure directory needs its own entry.
func isPure(dir string) bool {
	innermost, _ := packageTreeOf(dir)
	return slices.ContainsFunc(purePackages(), func(root string) bool {
		return isWithin(dir, root) && isWithin(root, innermost.dir)
	})
}

// hasSideEffects reports whether a package of the standard library, or a module that extends it,
// has side effects.
func hasSideEffects(importPath string) bool {
	switch importPath {
	case "net/netip", "net/url": // values only
		return false
	case "runtime/debug": // stack of a panic
		return false
	}
	return isWithinAny(importPath, []string{
		"net", "os", "sync", "log", "syscall", "runtime", "math/rand", "crypto/rand", "crypto/tls",
		"golang.org/x/sys", "golang.org/x/sync",
	})
}

// readsClock reports whether a function of package time reads the clock or waits.
func readsClock(name string) bool {
	switch name {
	case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker":
		return true
	}
	return false
}
