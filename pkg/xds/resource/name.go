package resource

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Name returns the name of a serialized resource of one of the package's types: its
// first field, whatever the type. The error says that there is none.
func Name(body []byte) (string, error) {
	name, found := "", false
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		body = body[n:]
		if number == 1 && kind == protowire.BytesType {
			text, n := protowire.ConsumeBytes(body)
			if n < 0 {
				return "", protowire.ParseError(n)
			}
			name, found = string(text), true // the last one counts
			body = body[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, body); n < 0 {
			return "", protowire.ParseError(n)
		}
		body = body[n:]
	}
	if !found || name == "" {
		return "", errNoName
	}
	return name, nil
}

var errNoName = errors.New("the resource has no name")
