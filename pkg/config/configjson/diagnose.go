package configjson

import (
	"iter"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// Diagnose returns a diagnostic for a path such as "static_resources.listeners[0].address". It is
// for packages that parse the parts of the file that this package copies. The diagnostic has the
// position of the innermost existing value on the path.
func (f *File) Diagnose(severity document.Severity, path, problem string) document.Diagnostic {
	main := f.documents[0]
	d := document.Diagnostic{Severity: severity, File: main.name, Path: path, Problem: problem}
	if path == "" {
		return d
	}
	at := main.root
	for name := range pathSteps(path) {
		next := childAt(at, name)
		if !next.Exists() {
			break
		}
		at = next
	}
	place := at.Position()
	d.Line, d.Column = place.Line, place.Column
	return d
}

// pathSteps yields the steps of a path: "a.b[0][x.y]" is a, b, [0], [x.y].
func pathSteps(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for path != "" {
			end := strings.IndexAny(path[1:], ".[") + 1
			if path[0] == '[' {
				end = strings.IndexByte(path, ']') + 1
			}
			if end <= 0 {
				end = len(path)
			}
			if !yield(path[:end]) {
				return
			}
			path = strings.TrimPrefix(path[end:], ".")
		}
	}
}

// childAt returns the value at one step of a path: a member, possibly in brackets, or the element
// "[0]" of a list.
func childAt(at document.Node, step string) document.Node {
	index, ok := strings.CutPrefix(step, "[")
	if !ok {
		// The path may use the other spelling of the key.
		return at.Get(step).Or(at.Get(lowerCamel(step)))
	}
	index = strings.TrimSuffix(index, "]")
	if at.Kind() == document.Object {
		return at.Get(index)
	}
	wanted, err := strconv.Atoi(index)
	if err != nil || at.Kind() != document.Array {
		return document.Node{}
	}
	for one := range at.All() {
		if wanted == 0 {
			return one
		}
		wanted--
	}
	return document.Node{}
}
