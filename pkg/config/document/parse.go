package document

import (
	"bytes"
	"math"
	"path"
	"strings"
	"unicode/utf8"
)

// Format is how a document is written.
type Format uint8

// The formats. JSON includes comments (// and /* */) and trailing commas.
const (
	Sniff Format = iota // by the extension, else by the first character
	JSON
	YAML
)

// Lookup returns the value of an environment variable and whether it is set;
// os.LookupEnv is one.
type Lookup func(name string) (value string, set bool)

// Options say how a document is read. The zero value is ready.
type Options struct {
	Format Format
	Env    Lookup // nil: no variable is set
}

// Parse reads a document into a tree and returns its root. The name is what
// diagnostics call the file; its extension chooses the format: .json, .jsonc and
// .hujson, .yaml and .yml. Any other is JSON if it begins with a bracket, and
// YAML otherwise.
//
// Problems go to r. What could be read around them is in the tree, so that more
// of them are found; the zero Node is returned when nothing could be. data
// must not change as long as the tree is used.
func Parse(name string, data []byte, o Options, r *Report) Node {
	d := &Document{name: name, src: bytes.TrimPrefix(data, []byte("\ufeff"))}
	if len(d.src) > math.MaxInt32 {
		r.Add(Diagnostic{File: name, Problem: "the file is larger than 2 GB"})
		return Node{}
	}
	if !utf8.Valid(d.src) {
		pos := d.position(uint32(firstInvalid(d.src)))
		r.Add(Diagnostic{File: name, Line: pos.Line, Column: pos.Column, Problem: "this byte is not UTF-8"})
		return Node{}
	}
	env := o.Env
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	if o.Format == YAML || o.Format == Sniff && sniff(name, d.src) == YAML {
		return parseYAML(d, env, r)
	}
	return parseJSON(d, env, r)
}

// firstInvalid returns the offset of the first byte that is no UTF-8.
func firstInvalid(src []byte) int {
	for i := 0; i < len(src); {
		c, size := utf8.DecodeRune(src[i:])
		if c == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(src)
}

// sniff chooses the format by name, else by the first character that is neither
// space nor part of a comment.
func sniff(name string, src []byte) Format {
	switch strings.ToLower(path.Ext(name)) {
	case ".json", ".jsonc", ".hujson":
		return JSON
	case ".yaml", ".yml":
		return YAML
	}
	src = bytes.TrimLeft(src, " \t\r\n")
	if bytes.HasPrefix(src, []byte("{")) || bytes.HasPrefix(src, []byte("[")) ||
		bytes.HasPrefix(src, []byte("//")) || bytes.HasPrefix(src, []byte("/*")) {
		return JSON
	}
	return YAML
}
