package configjson

import (
	"iter"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// Diagnose returns a diagnostic about what the file says at a path, as
// "static_resources.listeners[0].address": it is for those who read parts of the file that
// this package takes as they stand. Its place is that of the innermost value of the path
// that there is.
func (f *File) Diagnose(severity document.Severity, path, problem string) document.Diagnostic {
	main := f.documents[0]
	d := document.Diagnostic{Severity: severity, File: main.name, Path: path, Problem: problem}
	if path == "" {
		return d
	}
	at := main.root
	for name := range stepsOf(path) {
		next := below(at, name)
		if !next.Exists() {
			break
		}
		at = next
	}
	place := at.Position()
	d.Line, d.Column = place.Line, place.Column
	return d
}

// stepsOf yields the steps of a path: "a.b[0][x.y]" is a, b, [0], [x.y].
func stepsOf(path string) iter.Seq[string] {
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

// below is a step of a path from a value: a member, which may stand in brackets, or "[0]"
// of a list.
func below(at document.Node, step string) document.Node {
	index, ok := strings.CutPrefix(step, "[")
	if !ok {
		// Who reads it may call a member by another form of its name.
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
