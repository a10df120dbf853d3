package document

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v4"
)

// yamlDiagnostic returns a diagnostic for a syntax error. The YAML parser reports where it stopped,
// which can be the end of the file for a construct that is not closed. The diagnostic therefore
// points at the beginning of the construct.
func (d *Document) yamlDiagnostic(err error) Diagnostic {
	if errors.Is(err, io.EOF) {
		return Diagnostic{File: d.name, Line: 1, Column: 1, Problem: "the document is empty"}
	}
	loadErr, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return Diagnostic{File: d.name, Line: 1, Column: 1, Problem: err.Error()}
	}
	mark, problem := loadErr.Mark, loadErr.Message
	switch loadErr.ContextMsg {
	case "while parsing a flow sequence", "while parsing a flow mapping":
		mark = loadErr.ContextMark
		if i := d.offset(mark.Line, mark.Column); int(i) < len(d.src) {
			problem = "the \"" + string(d.src[i]) + "\" that begins here is not closed: " + problem
		}
	case "while scanning a simple key":
		mark = loadErr.ContextMark
	case "while scanning a quoted scalar":
		if problem == "found unexpected end of stream" {
			mark = loadErr.ContextMark
		}
	}
	offset := d.offset(mark.Line, mark.Column)
	if last := len(bytes.TrimRight(d.src, " \t\r\n")) - 1; int(offset) > last { // the parser stopped at the end of the file
		offset = uint32(max(last, 0)) //nolint:gosec // documents are smaller than 4 GiB
	}
	pos := d.position(offset)
	return Diagnostic{File: d.name, Line: pos.Line, Column: pos.Column, Problem: problem}
}
