package extauthz

import (
	"fmt"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// changes are what is done to the fields of a message, in order.
type changes []change

// change is one of them.
type change struct {
	how         operation
	name, value string
}

// operation is what is done.
type operation uint8

const (
	set          operation = iota // in place of those of the name
	add                           // beside them
	addIfAbsent                   // if there are none
	setIfPresent                  // if there are some
	remove
)

// apply makes the changes. What is removed or replaced is so in every spelling that an
// application may take for the name.
func (c changes) apply(h *protocol.Header) {
	for i := range c {
		one := &c[i]
		if one.how == remove || one.how == set {
			forget(h, one.name)
		}
		switch _, there := h.Lookup(one.name); {
		case one.how == remove:
			h.Del(one.name)
		case one.how == add, one.how == addIfAbsent && !there:
			h.Add(one.name, one.value)
		case one.how == set, one.how == setIfPresent && there:
			h.Set(one.name, one.value)
		}
	}
}

// forget removes the other spellings of name.
func forget(h *protocol.Header, name string) {
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if other := h.At(i).Name; protocol.EqualFoldUnderscore(other, name) && !protocol.EqualFold(other, name) {
			h.Del(other)
		}
	}
}

// fit returns an error if one of the changes cannot be made: a service that wants what
// nobody can do is not understood. rpc: they are of a call of RPC.
func (c changes) fit(rpc bool) error {
	for i := range c {
		if name := c[i].name; !isName(name) || isFraming(name) || rpc && isRouting(name) {
			return fmt.Errorf("the field %q cannot be changed", name)
		}
		if !isValue(c[i].value) {
			return fmt.Errorf("the value of the field %q has a control character", c[i].name)
		}
	}
	return nil
}

// isName reports whether name is a token (RFC 9110 5.6.2).
func isName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// isValue reports whether value may be that of a field (RFC 9110 5.5).
func isValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isFraming reports whether a field is the engines' to write: it belongs to the
// connection (RFC 9110 7.6.1), frames the message or says which host is asked.
func isFraming(name string) bool {
	switch strings.ToLower(name) {
	case "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
		"content-length", "http2-settings", "host":
		return true
	}
	return false
}

// isRouting reports whether a field says what is called by RPC.
func isRouting(name string) bool {
	for _, own := range [...]string{xprotocol.FieldService, xprotocol.FieldMethod, xprotocol.FieldVersion, xprotocol.FieldGroup} {
		if protocol.EqualFold(name, own) {
			return true
		}
	}
	return false
}
