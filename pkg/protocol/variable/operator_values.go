package variable

import (
	"strconv"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// compileOperator is operator.compile.
type compileOperator = func(c *operatorCall, o *OperatorOptions) (definition, error)

// sameAs returns the compile function of an operator with the value of a variable.
func sameAs(name string) compileOperator {
	return func(*operatorCall, *OperatorOptions) (definition, error) {
		v, ok := Lookup(name)
		if !ok {
			return definition{}, &UnknownError{name}
		}
		return *v.def, nil
	}
}

// textValue returns the compile function of an operator without an argument whose value is text.
func textValue(text func(x *protocol.Exchange) (string, bool)) compileOperator {
	return func(*operatorCall, *OperatorOptions) (definition, error) { return newText(text), nil }
}

func newText(text func(x *protocol.Exchange) (string, bool)) definition {
	return definition{text: func(x *protocol.Exchange, _ string) (string, bool) { return text(x) }}
}

// numberValue returns the compile function of an operator without an argument whose value is a
// number.
func numberValue(number func(x *protocol.Exchange) (int64, bool)) compileOperator {
	return func(*operatorCall, *OperatorOptions) (definition, error) { return newNumber(number), nil }
}

func newNumber(number func(x *protocol.Exchange) (int64, bool)) definition {
	return definition{isNumber: true, write: func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
		n, ok := number(x)
		if !ok {
			return dst, false
		}
		return strconv.AppendInt(dst, n, 10), true
	}}
}

// constantText returns the compile function of an operator with the same value for all exchanges.
func constantText(text string) compileOperator {
	return textValue(func(*protocol.Exchange) (string, bool) { return text, true })
}

// zero is the compile function of an operator whose value is 0, because it concerns HTTP/3.
func zero(*operatorCall, *OperatorOptions) (definition, error) {
	return newNumber(func(*protocol.Exchange) (int64, bool) { return 0, true }), nil
}

// missing is the compile function of an operator that has no value in Weft.
func missing(*operatorCall, *OperatorOptions) (definition, error) {
	return newText(func(*protocol.Exchange) (string, bool) { return "", false }), nil
}

// listValue returns the compile function of an operator whose value is a list of names, separated
// by commas. An empty list is a missing value.
func listValue(names func(dst []string, x *protocol.Exchange) []string) compileOperator {
	return func(*operatorCall, *OperatorOptions) (definition, error) {
		return definition{write: func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
			var storage [8]string
			list := names(storage[:0], x)
			for i, name := range list {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = append(dst, name...)
			}
			return dst, len(list) > 0
		}}, nil
	}
}
