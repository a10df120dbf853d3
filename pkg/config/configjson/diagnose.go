package configjson

import (
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
	for name := range strings.SplitSeq(strings.ReplaceAll(path, "[", ".["), ".") {
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

// below is a step of a path from a value: a member, or "[0]" of a list.
func below(at document.Node, step string) document.Node {
	index, ok := strings.CutPrefix(step, "[")
	if !ok {
		// Who reads it may call a member by another form of its name.
		return at.Get(step).Or(at.Get(lowerCamel(step)))
	}
	wanted, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
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
