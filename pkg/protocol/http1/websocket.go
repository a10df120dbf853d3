package http1

import (
	"crypto/sha1" // RFC 6455 requires it; it protects no secret
	"encoding/base64"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Headers of the WebSocket handshake of HTTP/1.1: the client's key, and the server's proof that it
// processed the key (RFC 6455 11.3). HTTP/2 and HTTP/3 have neither (RFC 8441 5). A proxy that
// translates between versions adds the headers on the HTTP/1.1 side and removes them on the other
// side.
const (
	WebSocketKeyField    = "Sec-WebSocket-Key"
	WebSocketAcceptField = "Sec-WebSocket-Accept"
)

// webSocketKeyLen is the length of a key before base64, in bytes.
const webSocketKeyLen = 16

// IsWebSocket reports whether a request with this Upgrade asks only for WebSocket.
func IsWebSocket(upgrade string) bool { return protocol.EqualFold(upgrade, "websocket") }

// IsWebSocketKey reports whether value is a valid Sec-WebSocket-Key: 16 bytes in base64 (RFC 6455
// 4.1).
func IsWebSocketKey(value string) bool {
	var key [webSocketKeyLen + 2]byte // without padding, the base64 decodes to 18 bytes
	if len(value) != base64.StdEncoding.EncodedLen(webSocketKeyLen) {
		return false
	}
	n, err := base64.StdEncoding.Decode(key[:], []byte(value))
	return err == nil && n == webSocketKeyLen
}

// NewWebSocketKey returns the Sec-WebSocket-Key for 16 random bytes, which the caller supplies.
func NewWebSocketKey(random [webSocketKeyLen]byte) string {
	return base64.StdEncoding.EncodeToString(random[:])
}

// WebSocketAccept returns the Sec-WebSocket-Accept for a key (RFC 6455 4.2.2).
func WebSocketAccept(key string) string {
	const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	sum := sha1.Sum([]byte(key + guid))
	return base64.StdEncoding.EncodeToString(sum[:])
}
