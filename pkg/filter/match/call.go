package match

import (
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// IsUnidentifiedCall reports whether x is an RPC call whose headers and path do not identify the
// called method: Weft does not support its serialization, it names no service, or its provider may
// read it differently (xprotocol.FrameView.Ambiguous). A rule that allows calls by service or
// method cannot decide such a call.
func IsUnidentifiedCall(x *protocol.Exchange) bool {
	if x.Request.Method != "" {
		return false
	}
	if _, ok := x.Request.Header.Lookup(xprotocol.FieldService); !ok {
		return true
	}
	m := xprotocol.MessageOf(x.Request.Body)
	return m != nil && m.View.Ambiguous
}

// HasUnreadableHeader reports whether x is an RPC call that Weft could not decode. A missing header
// then does not mean that the client did not send it.
func HasUnreadableHeader(x *protocol.Exchange) bool {
	return x.Request.Method == "" && x.Request.Header.Len() == 0
}
