package resource

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Name returns the name of a serialized resource, which is field 1 in every type of this package.
// It returns an error if the resource is malformed or has no name.
func Name(body []byte) (string, error) {
	name, found := "", false
	for len(body) > 0 {
		number, wireType, n := protowire.ConsumeTag(body)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		body = body[n:]
		if number == 1 && wireType == protowire.BytesType {
			text, n := protowire.ConsumeBytes(body)
			if n < 0 {
				return "", protowire.ParseError(n)
			}
			name, found = string(text), true // the last occurrence applies
			body = body[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, wireType, body); n < 0 {
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
