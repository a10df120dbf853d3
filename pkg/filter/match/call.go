package match

import (
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// HidesCall reports whether x is a call of RPC whose fields and path do not tell what
// it calls: it cannot be read because its serialization is foreign, it names no
// service, or its provider may take it for another (xprotocol.FrameView.Disputed). Who lets
// calls in by what they call does not know, then.
func HidesCall(x *protocol.Exchange) bool {
	if x.Request.Method != "" {
		return false
	}
	if _, ok := x.Request.Header.Lookup(xprotocol.FieldService); !ok {
		return true
	}
	m := xprotocol.MessageOf(x.Request.Body)
	return m != nil && m.View.Ambiguous
}

// HidesFields reports whether x is a call of RPC of which nothing could be read: what
// looks like the absence of a field says nothing.
func HidesFields(x *protocol.Exchange) bool {
	return x.Request.Method == "" && x.Request.Header.Len() == 0
}
