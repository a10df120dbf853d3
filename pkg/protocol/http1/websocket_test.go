package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestWebSocketAccept(t *testing.T) { // RFC 6455 1.3 and 4.2.2
	const key, want = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
	if got := WebSocketAccept(key); got != want {
		t.Errorf("WebSocketAccept(%q) = %q, want %q", key, got, want)
	}
	if got := NewWebSocketKey([16]byte([]byte("the sample nonce"))); got != key {
		t.Errorf("NewWebSocketKey of the RFC's example = %q, want %q", got, key)
	}
}

func TestWebSocketKeyIs16BytesInBase64(t *testing.T) { // RFC 6455 4.1
	for value, want := range map[string]bool{
		"dGhlIHNhbXBsZSBub25jZQ==":     true,
		"AAAAAAAAAAAAAAAAAAAAAA==":     true,
		"":                             false,
		"dGhlIHNhbXBsZSBub25jZQ":       false,
		"dGhlIHNhbXBsZSBub25jZSE=":     false, // 17 bytes
		"dGhlIHNhbXBsZSBub25jZSEh":     false, // 18 bytes
		"dGhlIHNhbXBsZSBub25j\r\nZQ==": false,
		"dGhlIHNhbXBsZSBub25-ZQ==":     false,
		"dGhlIHNhbXBsZSBub25jZQ==ZQ==": false,
	} {
		if got := IsWebSocketKey(value); got != want {
			t.Errorf("IsWebSocketKey(%q) = %t, want %t", value, got, want)
		}
	}
}

func TestIsWebSocket(t *testing.T) {
	for upgrade, want := range map[string]bool{
		"websocket": true, "WebSocket": true,
		"": false, "websocket, chat": false, "websocket/13": false, "chat": false,
	} {
		if got := IsWebSocket(upgrade); got != want {
			t.Errorf("IsWebSocket(%q) = %t, want %t", upgrade, got, want)
		}
	}
}

func TestWebSocketKeyIsAppended(t *testing.T) {
	req := protocol.Request{Method: "GET", Authority: "h", Path: "/chat", Upgrade: "websocket"}
	req.ContentLength = -1
	req.Header.Add("Sec-WebSocket-Version", "13")
	got, err := AppendRequest(nil, &req, RequestOptions{WebSocketKey: "dGhlIHNhbXBsZSBub25jZQ=="})
	want := strings.Join([]string{
		"GET /chat HTTP/1.1", "Host: h", "Sec-WebSocket-Version: 13",
		"Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
	}, "\r\n")
	if err != nil || string(got) != want {
		t.Errorf("AppendRequest wrote %q, %v; want %q", got, err, want)
	}
}
