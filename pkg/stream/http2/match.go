package http2

import (
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Match reports whether a connection that begins with b uses HTTP/2 with prior knowledge: it begins
// with the client's preface (RFC 9113 3.4).
func Match(b []byte) xprotocol.MatchResult {
	n := min(len(b), len(syntax.Preface))
	switch {
	case string(b[:n]) != syntax.Preface[:n]:
		return xprotocol.MatchNo
	case n < len(syntax.Preface):
		return xprotocol.MatchNeedMore
	}
	return xprotocol.MatchYes
}
