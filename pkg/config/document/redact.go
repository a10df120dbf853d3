package document

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Redacted replaces a secret in output.
const Redacted = "[redacted]"

// markSecret marks a value as secret.
func (n Node) markSecret() {
	if n.d != nil {
		n.entry().flags |= flagSecret
	}
}

// Redact formats a document as indented JSON without comments and secrets. Secrets are the values
// that were decoded into a field tagged secret, and private keys anywhere. Variables are printed as
// written, ${NAME}, without their values.
func Redact(n Node) []byte {
	return append(appendRedacted(nil, n, 0), '\n')
}

func appendRedacted(dst []byte, n Node, depth int) []byte {
	if n.d != nil && n.entry().flags&flagSecret != 0 && n.Exists() {
		return AppendString(dst, Redacted)
	}
	switch n.Kind() {
	case Object:
		return appendMembers(dst, n, depth, '{', '}')
	case Array:
		return appendMembers(dst, n, depth, '[', ']')
	case Bool, Number:
		return append(dst, n.Text()...)
	case String:
		text := n.unexpandedText()
		if containsPrivateKey(text) || containsPrivateKey(n.Text()) {
			text = Redacted
		}
		return AppendString(dst, text)
	case Invalid, Null:
	}
	return append(dst, "null"...)
}

func appendMembers(dst []byte, n Node, depth int, opening, closing byte) []byte {
	dst = append(dst, opening)
	empty := true
	for member := range n.All() {
		if !empty {
			dst = append(dst, ',')
		}
		empty = false
		dst = appendIndent(dst, depth+1)
		if opening == '{' {
			dst = append(AppendString(dst, member.Key()), ": "...)
		}
		dst = appendRedacted(dst, member, depth+1)
	}
	if !empty {
		dst = appendIndent(dst, depth)
	}
	return append(dst, closing)
}

func appendIndent(dst []byte, depth int) []byte {
	return append(append(dst, '\n'), strings.Repeat("  ", depth)...)
}

// AppendString appends s as a JSON string without escaping "<", ">" and "&".
func AppendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("document: the string cannot be encoded as JSON: " + err.Error())
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}
