package document

import (
	"bytes"
	"math"
	"path"
	"strings"
	"unicode/utf8"
)

// Format is the syntax of a document.
type Format uint8

// The formats. JSON includes comments (// and /* */) and trailing commas.
const (
	AutoDetect Format = iota // by the extension or, if it is not known, by the first character
	JSON
	YAML
)

// Lookup returns the value of an environment variable and whether it is set; os.LookupEnv
// implements it.
type Lookup func(name string) (value string, set bool)

// Options configure Parse. The zero value is ready to use.
type Options struct {
	Format Format
	Env    Lookup // nil: all variables are unset
}

// Parse reads a document into a tree and returns its root. Diagnostics use name as the file name;
// its extension selects the format: .json, .jsonc and .hujson, .yaml and .yml. Any other document
// is JSON if it begins with a bracket or a JSON comment, and YAML otherwise.
//
// Parse reports problems to r and continues after them to find more; the tree contains everything
// that it could read. It returns the zero Node if it could read nothing. The caller must not change
// data while it uses the tree.
func Parse(name string, data []byte, o Options, r *Report) Node {
	d := &Document{name: name, src: bytes.TrimPrefix(data, []byte("\ufeff"))}
	if len(d.src) > math.MaxInt32 {
		r.Add(Diagnostic{File: name, Problem: "the file is larger than 2 GB"})
		return Node{}
	}
	if !utf8.Valid(d.src) {
		pos := d.position(uint32(firstInvalid(d.src)))
		r.Add(Diagnostic{File: name, Line: pos.Line, Column: pos.Column, Problem: "the byte is not valid UTF-8"})
		return Node{}
	}
	env := o.Env
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	if o.Format == YAML || o.Format == AutoDetect && detectFormat(name, d.src) == YAML {
		return parseYAML(d, env, r)
	}
	return parseJSON(d, env, r)
}

// firstInvalid returns the offset of the first byte that is not valid UTF-8.
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

// detectFormat selects the format by the extension of name or, if it is not known, by the first
// character that is not white space.
func detectFormat(name string, src []byte) Format {
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
