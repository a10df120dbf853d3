package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// roomOf returns the innermost room that contains dir.
func roomOf(dir string) (room, bool) {
	var inner room
	for _, r := range rooms() {
		if below(dir, r.dir) && len(r.dir) > len(inner.dir) {
			inner = r
		}
	}
	return inner, inner.dir != ""
}

// named reports whether ways lists the import as an exception.
func named(from, to string) bool {
	return slices.ContainsFunc(ways(), func(w way) bool { return below(from, w.from) && below(to, w.to) })
}

// plugOf returns the plugin directory that contains dir, or "" if none does.
func plugOf(dir string) string {
	elements := strings.Split(dir, "/")
	for _, pattern := range plugs() {
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

// checkFloors verifies the layer rule: a package imports only its own room and lower layers. Tests
// may import any package except cmd.
func checkFloors(p *pkg, report reporter) {
	from, placed := roomOf(p.dir)
	if !placed {
		report(p.files[0].syntax.Package,
			p.dir+" has no layer",
			"move it into a directory that has a layer, or add its directory to internal/archtest/house.go")
		return
	}
	for _, f := range p.files {
		for importPath, at := range f.imports {
			dir, ours := p.within(importPath)
			if !ours {
				continue
			}
			to, placed := roomOf(dir)
			switch {
			case !placed || to == from:
				// same room, or a package without a room, which is reported itself
			case f.test && to.dir == "cmd":
				report(at, "a test imports "+dir,
					"no package may import cmd: test the package that it uses, or run the program")
			case f.test || to.floor < from.floor || named(p.dir, dir):
			default:
				report(at,
					fmt.Sprintf("%s (%s, layer %d) imports %s (%s, layer %d)", p.dir, from.dir, from.floor, dir, to.dir, to.floor),
					"a package may import only its own directory tree and lower layers: declare the interface that you need here, or move the code up")
			}
		}
	}
}

// checkPlugs verifies that only cmd imports plugins. Tests and test/ may import any of them.
func checkPlugs(p *pkg, report reporter) {
	if below(p.dir, "cmd") || below(p.dir, "test") {
		return
	}
	for f := range p.code {
		for importPath, at := range f.imports {
			dir, ours := p.within(importPath)
			if !ours {
				continue
			}
			plug := plugOf(dir)
			switch own := plugOf(p.dir); {
			case plug == "" || plug == own || named(p.dir, dir):
			case own != "":
				report(at, fmt.Sprintf("plugin %s imports plugin %s", own, plug),
					"plugins must not import each other: move shared code to the directory of their interface")
			default:
				parent, _ := roomOf(plug)
				report(at, fmt.Sprintf("%s imports plugin %s", p.dir, plug),
					"only cmd may import a plugin: depend on the interface in "+parent.dir+" and list the plugin in cmd/weft/registry.go")
			}
		}
	}
}

// checkHomes verifies that only the owning packages import a dependency.
func checkHomes(p *pkg, report reporter) {
	for _, f := range p.files {
		testing := f.test || below(p.dir, "test")
		for importPath, at := range f.imports {
			if _, ours := p.within(importPath); ours {
				continue
			}
			h, found := homeOf(importPath)
			switch {
			case !found && standard(importPath):
			case !found:
				report(at, importPath+" has no owning package",
					"use the standard library, or add it to internal/archtest/house.go and its reason to docs/decisions/0005-dependencies.md")
			case belowAny(p.dir, h.dirs) || testing && h.test:
			default:
				report(at, fmt.Sprintf("%s imports %s, %s", p.dir, importPath, h.whereabouts()), h.why)
			}
		}
	}
}

func homeOf(importPath string) (home, bool) {
	for _, h := range homes() {
		if importPath == h.path || !h.exact && below(importPath, h.path) {
			return h, true
		}
	}
	return home{}, false
}

// whereabouts describes the owning packages of h.
func (h home) whereabouts() string {
	places := slices.Clone(h.dirs)
	if h.test {
		places = append(places, "tests")
	}
	if len(places) == 0 {
		return "which no package may import"
	}
	return "which is allowed only in " + strings.Join(places, ", ")
}

// standard reports whether an import path belongs to the standard library: its first element is not
// a domain name.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// checkPurity verifies that pure packages have no side effects: no sockets, files, logs, locks,
// goroutines, clocks or randomness.
func checkPurity(p *pkg, report reporter) {
	if !isPure(p.dir) {
		return
	}
	for f := range p.code {
		for importPath, at := range f.imports {
			if worldly(importPath) {
				report(at, fmt.Sprintf("pure package %s imports %s", p.dir, importPath),
					"take the value or a function as a parameter, and do the rest in a higher layer")
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(n.Pos(), "pure package "+p.dir+" starts a goroutine", "return what to do, and do it in a higher layer")
			case *ast.SelectorExpr:
				if from, name := p.member(n); from == "time" && clock(name) {
					report(n.Pos(), fmt.Sprintf("pure package %s uses time.%s", p.dir, name), "take the time as a parameter")
				}
			}
			return true
		})
	}
}

// isPure reports whether an entry of pure contains dir. Entries above the innermost room of dir do
// not count, so a room inside a pure directory needs its own entry.
func isPure(dir string) bool {
	inner, _ := roomOf(dir)
	return slices.ContainsFunc(pure(), func(root string) bool {
		return below(dir, root) && below(root, inner.dir)
	})
}

// worldly reports whether a package of the standard library, or a module that extends it, has side
// effects.
func worldly(importPath string) bool {
	switch importPath {
	case "net/netip", "net/url": // values only
		return false
	case "runtime/debug": // stack of a panic
		return false
	}
	return belowAny(importPath, []string{
		"net", "os", "sync", "log", "syscall", "runtime", "math/rand", "crypto/rand", "crypto/tls",
		"golang.org/x/sys", "golang.org/x/sync",
	})
}

// clock reports whether a function of package time reads the clock or waits.
func clock(name string) bool {
	switch name {
	case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker":
		return true
	}
	return false
}
