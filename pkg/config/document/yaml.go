package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxAliasCopies is the maximum number of values that aliases add to a document. Each alias is
// copied, so nested aliases in a few lines could otherwise fill the memory.
const maxAliasCopies = 200_000

// ignoreTag is the tag of a key that is omitted with its value, as in Envoy. The value may have
// anchors.
const ignoreTag = "!ignore"

// yamlParser converts the nodes of a YAML document into entries of a Document. It copies the
// targets of aliases and merge keys to each use, with the positions of the targets.
type yamlParser struct {
	d             *Document
	env           Lookup
	report        *Report
	aliasCopies   int          // values that were copied from aliases
	activeAliases []*yaml.Node // targets of the aliases that are being copied
	aborted       bool
}

func parseYAML(d *Document, env Lookup, r *Report) Node {
	decoder := yaml.NewDecoder(bytes.NewReader(d.src))
	var root, second yaml.Node
	if err := decoder.Decode(&root); err != nil {
		r.Add(d.yamlDiagnostic(err))
		return Node{}
	}
	p := &yamlParser{d: d, env: env, report: r}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			r.Add(d.yamlDiagnostic(err))
			return Node{}
		}
		pos := d.position(p.offset(&second))
		r.Add(Diagnostic{File: d.name, Line: pos.Line, Column: pos.Column, Problem: "found a second document: a file contains exactly one"})
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) != 1 {
		r.Add(Diagnostic{File: d.name, Line: 1, Column: 1, Problem: "the document is empty"})
		return Node{}
	}
	p.parseValue(0, entry{}, root.Content[0], 0)
	if p.aborted {
		return Node{}
	}
	return Node{d: d}
}

// offset returns the offset of a node.
func (p *yamlParser) offset(y *yaml.Node) uint32 { return p.d.offset(y.Line, y.Column) }

// offset returns the offset in bytes of a line and a column. Both count from 1, and columns count
// characters, as in the YAML package.
func (d *Document) offset(line, column int) uint32 {
	if line < 1 {
		return 0
	}
	d.line(0) // fills lines
	if line > len(d.lines) {
		return uint32(len(d.src))
	}
	pos := d.lines[line-1]
	for range column - 1 {
		_, size := utf8.DecodeRune(d.src[pos:])
		pos += uint32(size)
	}
	return pos
}

func (p *yamlParser) errorf(y *yaml.Node, format string, args ...any) {
	pos := p.d.position(p.offset(y))
	p.report.Add(Diagnostic{File: pos.File, Line: pos.Line, Column: pos.Column, Problem: fmt.Sprintf(format, args...)})
}

// parseValue appends a value; e contains its key.
func (p *yamlParser) parseValue(parent uint32, e entry, y *yaml.Node, depth int) {
	e.offset = p.offset(y)
	if depth > maxDepth {
		if !p.aborted {
			p.errorf(y, "more than %d levels of nesting", maxDepth)
		}
		p.aborted = true
	}
	if len(p.activeAliases) > 0 {
		if p.aliasCopies++; p.aliasCopies > maxAliasCopies && !p.aborted {
			p.errorf(y, "aliases expand to more than %d values", maxAliasCopies)
			p.aborted = true
		}
	}
	if p.aborted {
		return
	}
	switch y.Kind {
	case yaml.MappingNode:
		e.kind = Object
		index := p.d.beginEntry(parent, e)
		p.parseMembers(index, y, depth, nil)
		p.d.endEntry(index)
		if !p.aborted {
			p.d.checkDuplicates(index, p.report)
		}
	case yaml.SequenceNode:
		e.kind = Array
		index := p.d.beginEntry(parent, e)
		for _, element := range y.Content {
			p.parseValue(index, entry{}, element, depth+1)
		}
		p.d.endEntry(index)
	case yaml.AliasNode:
		p.expandAlias(y, func(anchor *yaml.Node) { p.parseValue(parent, e, anchor, depth) })
	default:
		p.parseScalar(parent, e, y)
	}
}

// expandAlias calls visit with the target of an alias. It reports an alias inside its own target
// and stops the parser.
func (p *yamlParser) expandAlias(y *yaml.Node, visit func(anchor *yaml.Node)) {
	if slices.Contains(p.activeAliases, y.Alias) {
		p.errorf(y, "the alias *%s contains itself", y.Value)
		p.aborted = true
		return
	}
	p.activeAliases = append(p.activeAliases, y.Alias)
	visit(y.Alias)
	p.activeAliases = p.activeAliases[:len(p.activeAliases)-1]
}

// parseMembers appends the members of a mapping, then the members of its merge keys ("<<"). It
// skips keys in existing, and merged keys that the mapping contains.
func (p *yamlParser) parseMembers(parent uint32, y *yaml.Node, depth int, existing map[string]bool) {
	var merged []*yaml.Node
	keys := make([]string, 0, len(y.Content)/2)
	for i := 0; i+1 < len(y.Content) && !p.aborted; i += 2 {
		key, value := y.Content[i], y.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			p.errorf(key, "the key is not a string")
			continue
		}
		if existing[key.Value] || key.Tag == ignoreTag {
			continue
		}
		keys = append(keys, key.Value)
		e := entry{flags: flagKeyed, key: p.offset(key)}
		p.parseValue(parent, p.withKey(e, key.Value), value, depth+1)
	}
	if len(merged) == 0 {
		return
	}
	seen := make(map[string]bool, len(keys)+len(existing))
	for name := range existing {
		seen[name] = true
	}
	for _, name := range keys {
		seen[name] = true
	}
	for _, m := range merged {
		p.mergeMembers(parent, m, depth, seen)
	}
}

// mergeMembers appends the members of a mapping, of an alias of one, or of a list of these.
func (p *yamlParser) mergeMembers(parent uint32, y *yaml.Node, depth int, seen map[string]bool) {
	switch {
	case p.aborted:
	case depth > maxDepth:
		p.errorf(y, "more than %d levels of nesting", maxDepth)
		p.aborted = true
	case y.Kind == yaml.AliasNode:
		p.expandAlias(y, func(anchor *yaml.Node) { p.mergeMembers(parent, anchor, depth+1, seen) })
	case y.Kind == yaml.SequenceNode:
		for _, element := range y.Content {
			p.mergeMembers(parent, element, depth+1, seen)
		}
	case y.Kind == yaml.MappingNode:
		p.parseMembers(parent, y, depth, seen)
		for i := 0; i+1 < len(y.Content); i += 2 {
			seen[y.Content[i].Value] = true
		}
	default:
		p.errorf(y, `"<<" merges mappings only`)
	}
}

// withKey sets the key of an entry. If the source contains the key literally at e.key, the entry
// refers to the source.
func (p *yamlParser) withKey(e entry, key string) entry {
	if offset, ok := p.findSource(e.key, key); ok {
		e.key, e.keyLen = offset, uint32(len(key))
		return e
	}
	e.keyLen, e.flags = p.d.addTexts(key), e.flags|flagStoredKey
	return e
}

// findSource returns the offset of text if the source contains it at an offset or, in quotes, one
// byte after it.
func (p *yamlParser) findSource(offset uint32, text string) (uint32, bool) {
	rest := p.d.src[offset:]
	if bytes.HasPrefix(rest, []byte(text)) {
		return offset, true
	}
	if len(rest) > 0 && (rest[0] == '"' || rest[0] == '\'') && bytes.HasPrefix(rest[1:], []byte(text)) {
		return offset + 1, true
	}
	return 0, false
}

// parseScalar appends a string, number, boolean or null.
func (p *yamlParser) parseScalar(parent uint32, e entry, y *yaml.Node) {
	text := y.Value
	switch y.ShortTag() {
	case "!!null":
		e.kind = Null
		p.d.beginEntry(parent, e)
		return
	case "!!bool":
		e.kind, text = Bool, strings.ToLower(text)
		if text != "true" && text != "false" {
			p.errorf(y, "%q is not a boolean", y.Value)
			e.kind = Invalid
		}
	case "!!int", "!!float":
		e.kind = Number
		var ok bool
		if text, ok = yamlNumber(y); !ok {
			p.errorf(y, "%q is not a number", y.Value)
			e.kind = Invalid
		}
	case "!!str", "!!timestamp":
		e.kind = String
		if strings.Contains(text, "${") {
			p.d.addExpanded(parent, e, text, p.env, p.report)
			return
		}
	default:
		p.errorf(y, "unknown tag %s", y.Tag)
	}
	switch offset, ok := p.findSource(e.offset, text); {
	case ok && offset == e.offset:
		e.size = uint32(len(text))
	case ok:
		e.size, e.flags = uint32(len(text)), e.flags|flagQuoted
	default:
		e.size, e.flags = p.d.addTexts(text), e.flags|flagStoredText
	}
	p.d.beginEntry(parent, e)
}

// yamlNumber returns the JSON spelling of a number: YAML also has hexadecimal and octal numbers,
// underscores and plus signs.
func yamlNumber(y *yaml.Node) (string, bool) {
	if isNumber([]byte(y.Value)) {
		return y.Value, true
	}
	var i int64
	if y.ShortTag() == "!!int" && y.Decode(&i) == nil {
		return strconv.FormatInt(i, 10), true
	}
	var f float64
	if y.Decode(&f) != nil {
		return y.Value, false
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	return text, isNumber([]byte(text)) // .inf and .nan are not valid
}
