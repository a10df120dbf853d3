package configjson

import (
	"iter"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// Diagnose returns a diagnostic for a path such as "static_resources.listeners[0].address".
// Packages that parse copied parts of the file use it. The diagnostic has the position of the
// innermost existing value on the path.
func (f *File) Diagnose(severity document.Severity, path, problem string) document.Diagnostic {
	main := f.documents[0]
	d := document.Diagnostic{Severity: severity, File: main.name, Path: path, Problem: problem}
	if path == "" {
		return d
	}
	node := main.root
	for name := range pathSteps(path) {
		next := childAt(node, name)
		if !next.Exists() {
			break
		}
		node = next
	}
	position := node.Position()
	d.Line, d.Column = position.Line, position.Column
	return d
}

// pathSteps yields the steps of a path. The steps of "a.b[0][x.y]" are a, b, [0] and [x.y].
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
func childAt(node document.Node, step string) document.Node {
	index, ok := strings.CutPrefix(step, "[")
	if !ok {
		// The path may use the other spelling of the key.
		return node.Get(step).Or(node.Get(lowerCamel(step)))
	}
	index = strings.TrimSuffix(index, "]")
	if node.Kind() == document.Object {
		return node.Get(index)
	}
	remaining, err := strconv.Atoi(index)
	if err != nil || node.Kind() != document.Array {
		return document.Node{}
	}
	for element := range node.All() {
		if remaining == 0 {
			return element
		}
		remaining--
	}
	return document.Node{}
}
