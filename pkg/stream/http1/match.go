package http1

import (
	"bytes"
	"slices"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// maxMethodLen is the maximum length of a method, in bytes, for Match to detect HTTP. The longest
// registered method has 17 (UPDATEREDIRECTREF, RFC 4437).
const maxMethodLen = 24

// Match reports whether a connection that begins with b speaks HTTP/1. Longer input never changes a
// result other than MatchNeedMore. A request begins with its method (RFC 9112 3), perhaps after
// empty lines (2.2). Match knows the methods of RFC 9110 and RFC 5789 by name. It accepts other
// methods (see isMethodByte) only if a path follows. This excludes other text protocols and
// the preface of HTTP/2 (RFC 9113 3.4). The engine then reports remaining errors to the client in
// HTTP.
func Match(b []byte) xprotocol.MatchResult {
	for len(b) > 0 && b[0] == '\r' {
		if len(b) > 1 && b[1] != '\n' {
			return xprotocol.MatchNo
		}
		b = b[min(len(b), 2):]
	}
	n := 0
	for n < len(b) && isMethodByte(b[n]) {
		n++
	}
	switch {
	case n > maxMethodLen:
		return xprotocol.MatchNo
	case n == len(b):
		return xprotocol.MatchNeedMore
	case n == 0 || b[n] != ' ':
		return xprotocol.MatchNo
	case isKnownMethod(b[:n]):
		return xprotocol.MatchYes
	case n+1 == len(b):
		return xprotocol.MatchNeedMore
	case b[n+1] == '/':
		return xprotocol.MatchYes
	}
	return xprotocol.MatchNo
}

// isMethodByte reports whether c is a token byte (RFC 9110 5.6.2) that starts no frame of another
// protocol: letters, "-" and "_".
func isMethodByte(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_'
}

func isKnownMethod(name []byte) bool {
	methods := [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
	return slices.ContainsFunc(methods[:], func(method string) bool { return bytes.Equal(name, []byte(method)) })
}
