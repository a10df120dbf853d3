package http1

import (
	"crypto/sha1" // RFC 6455 names it; it keeps nothing secret
	"encoding/base64"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// The fields with which the two ends of WebSocket shake hands in HTTP/1.1: the
// caller's key, and the proof that the application has understood it (RFC 6455
// 11.3). Later versions of HTTP have neither (RFC 8441 5): who translates makes what
// the one side lacks, and keeps from the other what it does not know.
const (
	WebSocketKey         = "Sec-WebSocket-Key"
	WebSocketAcceptField = "Sec-WebSocket-Accept"
)

// webSocketKeyLen is how long a key is, in bytes, before it is written in base64.
const webSocketKeyLen = 16

// IsWebSocket reports whether a request with this Upgrade asks for WebSocket, and
// nothing else.
func IsWebSocket(upgrade string) bool { return protocol.EqualFold(upgrade, "websocket") }

// IsWebSocketKey reports whether a request's Sec-WebSocket-Key is one: 16 bytes in
// base64 (RFC 6455 4.1).
func IsWebSocketKey(value string) bool {
	var key [webSocketKeyLen + 2]byte // what four characters may hold more
	if len(value) != base64.StdEncoding.EncodedLen(webSocketKeyLen) {
		return false
	}
	n, err := base64.StdEncoding.Decode(key[:], []byte(value))
	return err == nil && n == webSocketKeyLen
}

// NewWebSocketKey returns the Sec-WebSocket-Key of a handshake, of 16 bytes that
// nobody can guess.
func NewWebSocketKey(chance [webSocketKeyLen]byte) string {
	return base64.StdEncoding.EncodeToString(chance[:])
}

// WebSocketAccept returns the Sec-WebSocket-Accept that answers a key (RFC 6455
// 4.2.2).
func WebSocketAccept(key string) string {
	const fixed = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	sum := sha1.Sum([]byte(key + fixed))
	return base64.StdEncoding.EncodeToString(sum[:])
}
