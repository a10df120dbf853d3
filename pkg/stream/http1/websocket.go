package http1

import (
	"crypto/rand"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http1"
)

// The handshake of WebSocket is between caller and application if both speak
// HTTP/1.1: its key and its proof pass as any field does. HTTP/2 has neither (RFC
// 8441 5). Then the engine's side that speaks HTTP/1.1 shakes hands by itself: the
// client with an application, the server with a caller.

// newWebSocketKey returns the key to shake hands with on behalf of a caller that has none;
// "" if there is nothing to be done.
func newWebSocketKey(x *protocol.Exchange) string {
	if !syntax.IsWebSocket(x.Request.Upgrade) || isHTTP1(x.Meta.Version) {
		return ""
	}
	var chance [16]byte
	_, _ = rand.Read(chance[:]) // never fails
	return syntax.NewWebSocketKey(chance)
}

// isHTTP1 reports whether a version is one that has keys and proofs.
func isHTTP1(version string) bool { return strings.HasPrefix(version, "HTTP/1.") }

// verifyWebSocketAccept takes the proof out of a 101 that answers our key, and reports whether it
// is right (RFC 6455 4.1).
func verifyWebSocketAccept(answer *protocol.Header, key string) bool {
	proof, ok := answer.Lookup(syntax.WebSocketAcceptField)
	right := ok && proof == syntax.WebSocketAccept(key)
	answer.Del(syntax.WebSocketAcceptField)
	return right
}

// completeUpgrade completes the 101 of an upstream that speaks another version: it says to
// which protocol the connection switches (RFC 9110 7.8), and proves to a caller of
// WebSocket that its key was understood. The error is a Fault: the caller's key is
// none.
func completeUpgrade(x *protocol.Exchange) error {
	r := &x.Response
	if r.Status != 101 || isHTTP1(r.Version) {
		return nil
	}
	r.Header.Set("Upgrade", x.Request.Upgrade)
	if !syntax.IsWebSocket(x.Request.Upgrade) {
		return nil
	}
	key := x.Request.Header.Get(syntax.WebSocketKey)
	if !syntax.IsWebSocketKey(key) {
		return protocol.Faultf(protocol.MalformedRequest, "no %s of 16 bytes in base64 (RFC 6455 4.1)", syntax.WebSocketKey)
	}
	r.Header.Set(syntax.WebSocketAcceptField, syntax.WebSocketAccept(key))
	return nil
}
