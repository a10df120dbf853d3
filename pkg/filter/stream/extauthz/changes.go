package extauthz

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// changes is a list of header changes, which apply makes in order.
type changes []change

// change is the change of one header.
type change struct {
	op          operation
	name, value string
}

// operation is the kind of a change.
type operation uint8

const (
	opSet          operation = iota // replaces headers of the same name
	opAdd                           // keeps headers of the same name
	opAddIfAbsent                   // adds the header unless the message has one of this name
	opSetIfPresent                  // replaces headers of this name, if any
	opRemove
)

// apply makes the changes. opSet and opRemove also remove other spellings of the name, which an
// application may treat as the same header.
func (c changes) apply(h *protocol.Header) {
	for i := range c {
		ch := &c[i]
		if ch.op == opRemove || ch.op == opSet {
			removeOtherSpellings(h, ch.name)
		}
		switch _, present := h.Lookup(ch.name); {
		case ch.op == opRemove:
			h.Del(ch.name)
		case ch.op == opAdd, ch.op == opAddIfAbsent && !present:
			h.Add(ch.name, ch.value)
		case ch.op == opSet, ch.op == opSetIfPresent && present:
			h.Set(ch.name, ch.value)
		}
	}
}

// removeOtherSpellings removes headers whose names differ from name only in "_" and "-".
func removeOtherSpellings(h *protocol.Header, name string) {
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if other := h.At(i).Name; protocol.EqualFoldUnderscore(other, name) && !protocol.EqualFold(other, name) {
			h.Del(other)
		}
	}
}

// validate returns an error if Weft does not support one of the changes; the caller then treats the
// service's response as invalid. rpc says that the changes apply to an RPC request.
func (c changes) validate(rpc bool) error {
	for i := range c {
		if name := c[i].name; !isToken(name) || isFraming(name) || rpc && isRouting(name) {
			return fmt.Errorf("header %q cannot be changed", name)
		}
		if !isFieldValue(c[i].value) {
			return fmt.Errorf("the value of header %q has a control character", c[i].name)
		}
	}
	return nil
}

// isToken reports whether name is a token (RFC 9110 5.6.2).
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// isFieldValue reports whether value is a valid field value (RFC 9110 5.5).
func isFieldValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isFraming reports whether only the engines may write a header: it belongs to the connection (RFC
// 9110 7.6.1), frames the message, or is Host.
func isFraming(name string) bool {
	switch strings.ToLower(name) {
	case "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "http2-settings", "host":
		return true
	}
	return false
}

// isRouting reports whether a header identifies the called RPC method.
func isRouting(name string) bool {
	for _, field := range [...]string{xprotocol.FieldService, xprotocol.FieldMethod, xprotocol.FieldVersion, xprotocol.FieldGroup} {
		if protocol.EqualFold(name, field) {
			return true
		}
	}
	return false
}
