package http1

import (
	"crypto/rand"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
)

// If client and host both use HTTP/1.1, they perform the WebSocket handshake themselves: Weft
// forwards the key (Sec-WebSocket-Key) and the proof (Sec-WebSocket-Accept) like other headers.
// HTTP/2 has neither (RFC 8441 5). If one of the two uses HTTP/2, this engine performs the
// handshake with the other: UpstreamConn with a host, Server with a client.

// newWebSocketKey returns a key for the handshake on behalf of a client that sent none, or "" if
// none is needed.
func newWebSocketKey(x *protocol.Exchange) string {
	if !syntax.IsWebSocket(x.Request.Upgrade) || isHTTP1(x.Meta.Version) {
		return ""
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	return syntax.NewWebSocketKey(nonce)
}

// isHTTP1 reports whether version is HTTP/1.x, which uses keys and proofs.
func isHTTP1(version string) bool { return strings.HasPrefix(version, "HTTP/1.") }

// verifyWebSocketAccept removes the proof from a 101 and reports whether it matches key (RFC 6455
// 4.1).
func verifyWebSocketAccept(header *protocol.Header, key string) bool {
	proof, ok := header.Lookup(syntax.WebSocketAcceptField)
	matches := ok && proof == syntax.WebSocketAccept(key)
	header.Del(syntax.WebSocketAcceptField)
	return matches
}

// completeUpgrade completes the 101 of an upstream that speaks another version. It sets the new
// protocol (RFC 9110 7.8) and, for a WebSocket client, the proof for its key. It returns a Fault if
// the client's key is invalid.
func completeUpgrade(x *protocol.Exchange) error {
	r := &x.Response
	if r.Status != 101 || isHTTP1(r.Version) {
		return nil
	}
	r.Header.Set("Upgrade", x.Request.Upgrade)
	if !syntax.IsWebSocket(x.Request.Upgrade) {
		return nil
	}
	key := x.Request.Header.Get(syntax.WebSocketKeyField)
	if !syntax.IsWebSocketKey(key) {
		return protocol.Faultf(protocol.MalformedRequest, "%s is not a base64 value of 16 bytes (RFC 6455 4.1)", syntax.WebSocketKeyField)
	}
	r.Header.Set(syntax.WebSocketAcceptField, syntax.WebSocketAccept(key))
	return nil
}
