package variable

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// This file compiles templates with Envoy's command operators, such as %REQ(X?Y):Z%:
//
//	CompileOperators  operator.go          splits a format into text and calls of operators
//	operators         operator_table.go    the table of operators
//	…                 operator_*.go        their values, by subject

// OperatorOptions says how the operators of a template behave.
type OperatorOptions struct {
	// OmitMissing writes nothing, instead of Unavailable, for a value that an exchange does not
	// have.
	OmitMissing bool
	// AppendUUID appends a random UUID, for UNIQUE_ID. It is safe for concurrent use. If it is nil,
	// CompileOperators rejects the operator.
	AppendUUID func(dst []byte) []byte
	// FilterChain is the name of the filter chain, for FILTER_CHAIN_NAME; "" if it has none. If it
	// is nil, CompileOperators rejects the operator.
	FilterChain *string
	// LocalReply says that the template is rendered before a local reply is sent, so that
	// LOCAL_REPLY_BODY is its body. Otherwise LOCAL_REPLY_BODY is "", as in Envoy's access logs.
	LocalReply bool
}

// CompileOperators parses a template with Envoy's command operators: %NAME%, %NAME(argument)% and,
// for some, %NAME(argument):LENGTH%, which truncates the value. %% is a percent sign. An error gives
// the position of the byte, counted from 1, and names the operator.
func CompileOperators(format string, o OperatorOptions) (*Template, error) {
	t := &Template{missing: Unavailable}
	if o.OmitMissing {
		t.missing = ""
	}
	var literal strings.Builder
	err := splitOperators(format, func(text string) { literal.WriteString(text) }, func(c operatorCall, pos int) error {
		d, err := c.compile(&o)
		if err != nil {
			return fmt.Errorf("byte %d of %q: %w", pos, format, err)
		}
		t.add(literal.String(), Variable{def: d})
		literal.Reset()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if literal.Len() > 0 {
		t.add(literal.String(), Variable{})
	}
	return t, nil
}

// ReplaceOperators replaces the operators for which replace returns true by text, and keeps the
// others. The result is a format for CompileOperators.
func ReplaceOperators(format string, replace func(name, argument string) (text string, ok bool)) (string, error) {
	var out strings.Builder
	err := splitOperators(format, func(text string) { out.WriteString(strings.ReplaceAll(text, "%", "%%")) }, func(c operatorCall, _ int) error {
		text, ok := replace(c.name, c.argument)
		if !ok {
			out.WriteString(c.source)
			return nil
		}
		if c.hasLength {
			text = text[:min(len(text), c.length)]
		}
		out.WriteString(strings.ReplaceAll(text, "%", "%%"))
		return nil
	})
	return out.String(), err
}

// splitOperators calls text for each piece of text and call for each operator, in order. pos is the
// position of the operator's percent sign, counted from 1.
func splitOperators(format string, text func(string), call func(c operatorCall, pos int) error) error {
	for rest := format; rest != ""; {
		before, after, found := strings.Cut(rest, "%")
		text(before)
		if !found {
			return nil
		}
		pos := len(format) - len(after)
		if strings.HasPrefix(after, "%") {
			text("%")
			rest = after[1:]
			continue
		}
		c, n, err := parseOperator(after)
		if err != nil {
			return fmt.Errorf("byte %d of %q: %w", pos, format, err)
		}
		c.source = "%" + after[:n]
		if err := call(c, pos); err != nil {
			return err
		}
		rest = after[n:]
	}
	return nil
}

// operatorCall is one use of an operator.
type operatorCall struct {
	source    string // as written, with the percent signs
	name      string
	argument  string // "": none
	length    int    // if hasLength: the maximum length of the value in bytes
	hasLength bool
}

// parseOperator parses the call at the beginning of text, which follows the percent sign. It returns
// the number of bytes up to and including the closing percent sign.
func parseOperator(text string) (c operatorCall, n int, err error) {
	for n < len(text) && isOperatorByte(text[n]) {
		n++
	}
	if n == 0 {
		return c, 0, errors.New("no operator follows the percent sign: write %% for a percent sign")
	}
	c.name = text[:n]
	if n == len(text) || text[n] != '(' {
		end, ok := c.parseEnd(text[n:])
		if !ok {
			return c, 0, fmt.Errorf("the operator %s has no closing %%: write %%%% for a percent sign", c.name)
		}
		return c, n + end, nil
	}
	// The argument ends with the first parenthesis after which the call ends.
	for i := n + 1; i < len(text); i++ {
		if text[i] != ')' {
			continue
		}
		if end, ok := c.parseEnd(text[i+1:]); ok {
			c.argument = text[n+1 : i]
			return c, i + 1 + end, nil
		}
	}
	return c, 0, fmt.Errorf("the operator %s has no closing parenthesis followed by %%", c.name)
}

// parseEnd parses the end of a call: the length, if there is one, and the closing percent sign.
func (c *operatorCall) parseEnd(text string) (n int, ok bool) {
	if strings.HasPrefix(text, ":") {
		digits, _, found := strings.Cut(text[1:], "%")
		length, err := strconv.ParseUint(digits, 10, 31)
		if !found || err != nil {
			return 0, false
		}
		c.length, c.hasLength = int(length), true
		return len(":") + len(digits) + len("%"), true
	}
	return len("%"), strings.HasPrefix(text, "%")
}

func isOperatorByte(c byte) bool { return 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' }

// argumentRule says whether an operator takes an argument.
type argumentRule uint8

const (
	noArgument argumentRule = iota
	optionalArgument
	requiredArgument
)

// operator is a row of the table of operators.
type operator struct {
	name     string
	argument argumentRule
	length   bool // the value can be truncated
	doc      string
	// compile returns the definition for a call, without the truncation.
	compile func(c *operatorCall, o *OperatorOptions) (definition, error)
}

// OperatorNames returns the names of the supported operators in the order of the documentation.
func OperatorNames() []string {
	list := operators()
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	return names
}

// compile returns the definition for c.
func (c *operatorCall) compile(o *OperatorOptions) (*definition, error) {
	list := operators()
	i := slices.IndexFunc(list, func(op operator) bool { return op.name == c.name })
	if i < 0 {
		return nil, &UnsupportedOperatorError{c.name}
	}
	op := &list[i]
	switch {
	case op.argument == noArgument && c.argument != "":
		return nil, fmt.Errorf("the operator %s takes no argument", c.name)
	case op.argument == requiredArgument && c.argument == "":
		return nil, fmt.Errorf("the operator %s requires an argument: %s(…)", c.name, c.name)
	case c.hasLength && !op.length:
		return nil, fmt.Errorf("the operator %s takes no length", c.name)
	}
	d, err := op.compile(c, o)
	if err != nil {
		return nil, fmt.Errorf("the operator %s: %w", c.name, err)
	}
	d.name, d.doc = c.source, op.doc
	if c.hasLength {
		d.truncate(c.length)
	}
	return &d, nil
}

// UnsupportedOperatorError reports that Weft does not support the operator called Name.
type UnsupportedOperatorError struct{ Name string }

func (e *UnsupportedOperatorError) Error() string {
	return fmt.Sprintf("the operator %s is not supported", e.Name)
}

// truncate limits the value of d to a number of bytes.
func (d *definition) truncate(length int) {
	if text := d.text; text != nil {
		d.text = func(x *protocol.Exchange, arg string) (string, bool) {
			value, ok := text(x, arg)
			return value[:min(len(value), length)], ok
		}
		return
	}
	write := d.write
	d.write = func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
		start := len(dst)
		dst, ok := write(dst, x)
		return dst[:min(len(dst), start+length)], ok
	}
}
