package document

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// The YAML package tells the line of a syntax error in words, and often of what surrounds
// it: of the mapping that an item does not belong to, for one, and counted from 0 where the
// parser found it and not the scanner. So the place is found out here, by how far the
// parser has read when it gives up.

// yamlProblem makes a diagnostic of a syntax error.
func (d *Document) yamlProblem(err error) Diagnostic {
	if errors.Is(err, io.EOF) {
		return Diagnostic{File: d.name, Line: 1, Column: 1, Problem: "the document is empty"}
	}
	problem, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, words, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil && words != "" {
			line, problem = n, words
		}
	}
	at := d.placeOf(problem, line)
	if strings.HasPrefix(problem, "did not find expected ',' or") && int(at) < len(d.src) {
		problem = "the \"" + string(d.src[at]) + "\" that begins here is not closed: " + problem
	}
	pos := d.position(at)
	return Diagnostic{File: d.name, Line: pos.Line, Column: pos.Column, Problem: problem}
}

// placeOf returns where a problem lies; line is where the YAML package says that it does.
func (d *Document) placeOf(problem string, line int) uint32 {
	begin := d.lineBegin(line)
	text, _, _ := bytes.Cut(d.src[begin:], []byte("\n"))
	within := func(i int) uint32 {
		if i < 0 {
			i = len(text) - len(bytes.TrimLeft(text, " "))
		}
		return begin + uint32(i) //nolint:gosec // documents are smaller than 4 GiB
	}
	read := d.src[:d.yamlRead()]
	back := func(chars string, most int) (uint32, bool) {
		from := max(len(read)-most, 0)
		i := bytes.IndexAny(read[from:], chars)
		return uint32(from + i), i >= 0 //nolint:gosec // as above
	}
	name, isAnchor := strings.CutPrefix(problem, "unknown anchor '")
	name, _, _ = strings.Cut(name, "'")
	switch {
	case strings.HasPrefix(problem, "did not find expected ',' or"):
		if at, ok := lastUnclosed(read); ok {
			return at
		}
	case strings.HasPrefix(problem, "did not find expected"), strings.HasPrefix(problem, "block sequence entries"):
		last := bytes.TrimRight(read, " \t\r\n")
		start := bytes.LastIndexByte(last, '\n') + 1
		return uint32(start + len(last[start:]) - len(bytes.TrimLeft(last[start:], " "))) //nolint:gosec // as above
	case strings.Contains(problem, "tab character"):
		if i := bytes.LastIndexByte(read, '\t'); i >= 0 {
			return uint32(i) //nolint:gosec // as above
		}
	case strings.HasPrefix(problem, "found character that cannot start any token"):
		const lookahead = 4 // characters that the scanner wants to see before it begins a token
		if at, ok := back("\t@`%|>,", lookahead); ok {
			return at
		}
	case strings.HasPrefix(problem, "found unexpected end of stream"):
		return within(bytes.LastIndexAny(text, `"'`))
	case strings.HasPrefix(problem, "found unknown escape character"):
		return within(bytes.IndexByte(text, '\\'))
	case strings.HasPrefix(problem, "mapping values are not allowed"):
		first := bytes.Index(text, []byte(": "))
		if first < 0 {
			return within(bytes.LastIndexByte(text, ':'))
		}
		if second := bytes.Index(text[first+1:], []byte(":")); second >= 0 {
			return within(first + 1 + second)
		}
		return within(first)
	case isAnchor:
		if i := bytes.Index(d.src, []byte("*"+name)); i >= 0 {
			return uint32(i) //nolint:gosec // as above
		}
	}
	return within(-1)
}

// lineBegin returns where a line begins, which is counted from 1; the last one if there are
// fewer.
func (d *Document) lineBegin(line int) uint32 {
	d.line(0) // fills lines
	return d.lines[min(max(line, 1), len(d.lines))-1]
}

// yamlRead returns how many bytes of the source the parser has read when it gives up.
func (d *Document) yamlRead() int {
	r := &slowReader{text: d.src}
	decoder := yaml.NewDecoder(r)
	for {
		var n yaml.Node
		if decoder.Decode(&n) != nil {
			return r.read
		}
	}
}

// slowReader returns one byte for each read, so that a reader never holds more than it needs.
type slowReader struct {
	text []byte
	read int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.read == len(r.text) || len(p) == 0 {
		return 0, io.EOF
	}
	p[0] = r.text[r.read]
	r.read++
	return 1, nil
}

// lastUnclosed returns where the last "{" or "[" stands that has no counterpart, or another
// one, outside of quotes and comments.
func lastUnclosed(text []byte) (at uint32, ok bool) {
	var open []int
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		blank := i == 0 || text[i-1] == ' ' || text[i-1] == '\n' || text[i-1] == '\t'
		switch {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '#' && blank:
			end := bytes.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i
			}
			i += end
		case (c == '"' || c == '\'') && (blank || text[i-1] == '{' || text[i-1] == '[' || text[i-1] == ','):
			quote = c
		case (c == '{' || c == '[') && (blank || len(open) > 0):
			open = append(open, i)
		case (c == '}' || c == ']') && len(open) > 0:
			last := open[len(open)-1]
			if (text[last] == '{') != (c == '}') {
				return uint32(last), true //nolint:gosec // documents are smaller than 4 GiB
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return 0, false
	}
	return uint32(open[len(open)-1]), true //nolint:gosec // documents are smaller than 4 GiB
}
