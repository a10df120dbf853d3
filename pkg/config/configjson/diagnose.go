package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

// Diagnose returns a diagnostic for a path such as "static_resources.listeners[0].address".
// Packages that parse copied parts of the file use it. The diagnostic has the position of the
// innermost existing value on the path.
func (f *File) Diagnose(severity document.Severity, path, problem string) document.Diagnostic {
	main := f.documents[0]
	d := document.Diagnostic{Severity: severity, File: main.name, Path: path, Problem: problem}
	if path == "" {
		return d
	}
	position := document.At(main.root, path).Position()
	d.Line, d.Column = position.Line, position.Column
	return d
}
