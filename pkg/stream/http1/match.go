package http1

import (
	"bytes"
	"slices"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// longestMethod is how long a method may be for a connection to be taken for
// HTTP, in bytes; the longest that is registered has 17 (RFC 3253).
const longestMethod = 24

// Match says whether a connection that begins with b speaks HTTP/1: the answer to
// a longer b is the same, unless it was Unsure. A request begins with its method
// (RFC 9112 3), perhaps behind empty lines (2.2). Methods of RFC 9110 and RFC 5789 are
// known by their name. Other tokens, in letters of any case, are taken for methods if a
// path follows, so that other protocols of words, and the preface of HTTP/2 (RFC 9113
// 3.4), are not: what is wrong with them the caller is then told by HTTP.
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
	case n > longestMethod:
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

// isMethodByte reports whether c is of a token (RFC 9110 5.6.2) that begins no frame of
// another protocol: letters, "-" and "_".
func isMethodByte(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_'
}

func isKnownMethod(name []byte) bool {
	known := [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
	return slices.ContainsFunc(known[:], func(k string) bool { return bytes.Equal(name, []byte(k)) })
}
