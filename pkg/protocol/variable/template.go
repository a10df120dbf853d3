package variable

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Unavailable is the text of a value that an exchange does not have.
const Unavailable = "-"

// Template is text with variables in it. It is immutable.
type Template struct {
	parts   []part
	missing string // text of a value that an exchange does not have
}

// part is a literal followed by a variable; the last part may have no variable.
type part struct {
	literal     string
	literalJSON string // literal as it appears between the quotes of a JSON string
	variable    Variable
}

// Compile parses a template: %name% is the variable called name, %% is a percent sign, and all
// other text is literal. An error gives the position of the byte, counted from 1, and names the
// nearest known variable.
func Compile(format string) (*Template, error) {
	t := &Template{missing: Unavailable}
	var literal strings.Builder
	for remaining := format; ; {
		before, after, ok := strings.Cut(remaining, "%")
		literal.WriteString(before)
		if !ok {
			break
		}
		pos := len(format) - len(after)
		name, tail, ok := strings.Cut(after, "%")
		if !ok {
			return nil, fmt.Errorf("byte %d of %q: %% without a closing %%: write %%%% for a percent sign", pos, format)
		}
		remaining = tail
		if name == "" {
			literal.WriteByte('%')
			continue
		}
		v, ok := Lookup(name)
		if !ok {
			return nil, fmt.Errorf("byte %d of %q: %w", pos, format, &UnknownError{name})
		}
		t.add(literal.String(), v)
		literal.Reset()
	}
	if literal.Len() > 0 {
		t.add(literal.String(), Variable{})
	}
	return t, nil
}

func (t *Template) add(literal string, v Variable) {
	json := string(appendEscaped(nil, literal))
	if json == literal {
		json = literal // share one copy in the common case
	}
	t.parts = append(t.parts, part{literal, json, v})
}

// UnknownError reports that no variable is called Name.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	if nearest := Nearest(e.Name); nearest != "" {
		return fmt.Sprintf("unknown variable %q: did you mean %q?", e.Name, nearest)
	}
	return fmt.Sprintf("unknown variable %q", e.Name)
}

// Constant returns the template's text if there is no variable in it.
func (t *Template) Constant() (string, bool) {
	switch {
	case len(t.parts) == 0:
		return "", true
	case len(t.parts) == 1 && t.parts[0].variable.def == nil:
		return t.parts[0].literal, true
	}
	return "", false
}

// Single returns the variable if the template consists of one variable only, and whether it does.
func (t *Template) Single() (Variable, bool) {
	if len(t.parts) == 1 && t.parts[0].literal == "" {
		return t.parts[0].variable, true
	}
	return Variable{}, false
}

// Append appends the text for x. For most values it allocates only to grow dst or to escape control
// characters.
//
// A value that x does not have is written as Unavailable, or omitted if OperatorOptions says so. Control characters of values (not of the
// template) are written as \x0a, so that a client cannot add lines to a log or headers to a
// message.
func (t *Template) Append(dst []byte, x *protocol.Exchange) []byte {
	for i := range t.parts {
		p := &t.parts[i]
		dst = append(dst, p.literal...)
		if p.variable.def == nil {
			continue
		}
		start := len(dst)
		var ok bool
		if dst, ok = p.variable.Append(dst, x); !ok {
			dst = append(dst, t.missing...)
		} else if hasControl(dst[start:]) {
			dst = append(dst[:start], escapeControls(dst[start:])...)
		}
	}
	return dst
}

// Text returns what Append appends, as a string, and false if the template is a single variable
// that x does not have. If the template is constant, or a single variable whose value is text
// without control characters, the string may borrow the template or the exchange. Text then
// allocates only for an address that xff_num_trusted_hops determines, and for several flags.
func (t *Template) Text(x *protocol.Exchange) (string, bool) {
	if text, ok := t.Constant(); ok {
		return text, true
	}
	v, single := t.Single()
	if !single {
		return string(t.Append(nil, x)), true
	}
	text, ok := v.Text(x)
	switch {
	case !ok:
		return t.missing, false
	case hasControl(text):
		return string(escapeControls([]byte(text))), true
	}
	return text, true
}

// AppendJSON appends the text for x as a JSON value (RFC 8259). For most values it allocates only
// to grow dst. The value is a string, quotes included, with two exceptions: a template that is a
// single variable has the type of the variable, such as a number, and becomes null if x has no such
// value.
// Bytes that are not UTF-8 become U+FFFD.
func (t *Template) AppendJSON(dst []byte, x *protocol.Exchange) []byte {
	if v, ok := t.Single(); ok {
		return v.appendJSON(dst, x)
	}
	dst = append(dst, '"')
	for i := range t.parts {
		p := &t.parts[i]
		dst = append(dst, p.literalJSON...)
		switch v := p.variable; {
		case v.def == nil:
		case v.def.text == nil:
			start := len(dst)
			var ok bool
			if dst, ok = v.def.write(dst, x); !ok {
				dst = append(dst, t.missing...)
			}
			dst = escapeFrom(dst, start)
		default:
			text, ok := v.def.text(x, v.arg)
			if !ok {
				text = t.missing
			}
			dst = appendEscaped(dst, text)
		}
	}
	return append(dst, '"')
}

func (v Variable) appendJSON(dst []byte, x *protocol.Exchange) []byte {
	start := len(dst)
	if v.def.text != nil {
		text, ok := v.def.text(x, v.arg)
		if !ok {
			return append(dst, "null"...)
		}
		dst = append(dst, '"')
		dst = appendEscaped(dst, text)
		return append(dst, '"')
	}
	if v.def.json != nil {
		dst, ok := v.def.json(dst, x)
		if !ok {
			dst = append(dst[:start], "null"...)
		}
		return dst
	}
	if !v.def.isNumber {
		dst = append(dst, '"')
	}
	dst, ok := v.def.write(dst, x)
	if !ok {
		return append(dst[:start], "null"...)
	}
	if !v.def.isNumber {
		dst = append(escapeFrom(dst, start+len(`"`)), '"')
	}
	return dst
}

// escapeFrom returns dst with the bytes from start escaped by appendEscaped. It allocates only if a
// byte is not ASCII or needs an escape, which can occur in the names of a certificate, but not in
// numbers, times and addresses.
func escapeFrom(dst []byte, start int) []byte {
	if !slices.ContainsFunc(dst[start:], func(c byte) bool {
		return c >= utf8.RuneSelf || isControl(c) || c == '"' || c == '\\'
	}) {
		return dst
	}
	return appendEscaped(dst[:start], string(dst[start:]))
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends s as it appears between the quotes of a JSON string.
func appendEscaped(dst []byte, s string) []byte {
	pending := 0 // s[pending:i] needs no escape and is not yet appended
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[pending:i]...), `\ufffd`...)
				pending = i + 1
			}
			i += n
			continue
		}
		if isControl(c) || c == '"' || c == '\\' {
			dst = append(dst, s[pending:i]...)
			pending = i + 1
			if c == '"' || c == '\\' {
				dst = append(dst, '\\', c)
			} else {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
		}
		i++
	}
	return append(dst, s[pending:]...)
}

// escapeControls returns value with its control characters written as \x0a. An allocation is
// acceptable, because only hostile or broken clients send control characters.
func escapeControls(value []byte) []byte {
	out := make([]byte, 0, len(value)+16)
	for _, c := range value {
		if isControl(c) {
			out = append(out, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return out
}

func hasControl[T string | []byte](s T) bool {
	for i := range len(s) {
		if isControl(s[i]) {
			return true
		}
	}
	return false
}

func isControl(c byte) bool { return c < ' ' || c == 0x7f }
