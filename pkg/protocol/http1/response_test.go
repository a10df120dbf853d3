package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// okHead returns a valid response head with the field lines.
func okHead(fields ...string) string { return lines(append([]string{"HTTP/1.1 200 OK"}, fields...)...) }

// validResponse is a response head, the request method, and the text of its parsed form.
type validResponse struct{ name, method, head, want string }

func validResponses() []validResponse {
	return []validResponse{
		{"Content-Length (RFC 9112 6.3)", "GET", okHead("Content-Length: 5", "A: b"), "200\nbody of 5, declared 5, persists\nA: b\n"},
		{"Content-Length 0", "GET", okHead("Content-Length: 0"), "200\nno body, declared 0, persists\n"},
		{"chunked (RFC 9112 6.3)", "GET", okHead("Transfer-Encoding: chunked"), "200\nchunked body, persists\n"},
		{"neither: until close (RFC 9112 6.3)", "GET", okHead(), "200\nbody until close\n"},
		{"HTTP/1.0 (RFC 9112 9.3)", "GET", lines("HTTP/1.0 200 OK", "Content-Length: 5"), "200\nbody of 5, declared 5, 1.0\n"},
		{"HTTP/1.0 that persists", "GET", lines("HTTP/1.0 200 OK", "Content-Length: 5", "Connection: keep-alive"), "200\nbody of 5, declared 5, 1.0, persists\n"},
		{"HTTP/1.0 with keep-alive without a length", "GET", lines("HTTP/1.0 200 OK", "Connection: keep-alive"), "200\nbody until close, 1.0\n"},
		{"Connection: close", "GET", okHead("Connection: close", "Content-Length: 5"), "200\nbody of 5, declared 5\n"},

		{"phrase with spaces and obs-text (RFC 9112 4)", "GET", lines("HTTP/1.1 200 all \t is w\xc3\xa4ll", "Content-Length: 0"), "200\nno body, declared 0, persists\n"},
		{"empty phrase (RFC 9112 4)", "GET", lines("HTTP/1.1 200 ", "Content-Length: 0"), "200\nno body, declared 0, persists\n"},
		{"no phrase and no space", "GET", lines("HTTP/1.1 200", "Content-Length: 0"), "200\nno body, declared 0, persists\n"},
		{"status without a name (RFC 9110 15)", "GET", lines("HTTP/1.1 599 x", "Content-Length: 0"), "599\nno body, declared 0, persists\n"},

		{"HEAD has no content (RFC 9110 9.3.2)", "HEAD", okHead("Content-Length: 5"), "200\nno body, declared 5, persists\n"},
		{"HEAD, chunked", "HEAD", okHead("Transfer-Encoding: chunked"), "200\nno body, persists\n"},
		{"HEAD without a length persists", "HEAD", okHead(), "200\nno body, persists\n"},
		{"304 has no content (RFC 9110 15.4.5)", "GET", lines("HTTP/1.1 304 x", "Content-Length: 5", "ETag: \"a\""), "304\nno body, declared 5, persists\nETag: \"a\"\n"},
		{"304 without a length persists", "GET", lines("HTTP/1.1 304 x"), "304\nno body, persists\n"},
		{"204 has no content (RFC 9110 15.3.5)", "GET", lines("HTTP/1.1 204 x"), "204\nno body, persists\n"},
		{"204 that declares content does not persist (RFC 9110 8.6)", "GET", lines("HTTP/1.1 204 x", "Content-Length: 5"), "204\nno body\n"},
		{"204 that declares chunks does not persist (RFC 9112 6.1)", "GET", lines("HTTP/1.1 204 x", "Transfer-Encoding: chunked"), "204\nno body\n"},
		{"205 is framed like other statuses", "GET", lines("HTTP/1.1 205 x", "Content-Length: 0"), "205\nno body, declared 0, persists\n"},

		{"100 is interim (RFC 9110 15.2.1)", "POST", lines("HTTP/1.1 100 Continue"), "100\nno body, persists, interim\n"},
		{"103 with fields is interim (RFC 8297)", "GET", lines("HTTP/1.1 103 Early Hints", "Link: </a>; rel=preload"), "103\nno body, persists, interim\nLink: </a>; rel=preload\n"},
		{"interim with Content-Length 0", "GET", lines("HTTP/1.1 100 x", "Content-Length: 0"), "100\nno body, persists, interim\n"},
		{"101 is a tunnel and keeps Upgrade (RFC 9110 15.2.2)", "GET",
			lines("HTTP/1.1 101 x", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: s"),
			"101\nno body, persists, tunnel\nUpgrade: websocket\nSec-WebSocket-Accept: s\n"},
		{"426 keeps Upgrade (RFC 9110 15.5.22)", "GET",
			lines("HTTP/1.1 426 x", "Upgrade: websocket", "Connection: Upgrade", "Content-Length: 0"),
			"426\nno body, declared 0, persists\nUpgrade: websocket\n"},
		{"Upgrade of another status is removed (RFC 9110 7.8)", "GET",
			okHead("Upgrade: h2c", "Connection: Upgrade", "Content-Length: 0"), "200\nno body, declared 0, persists\n"},
		{"2xx to CONNECT is a tunnel, with any length (RFC 9110 9.3.6)", "CONNECT",
			okHead("Content-Length: 5", "A: b"), "200\nno body, persists, tunnel\nA: b\n"},
		{"2xx to CONNECT is a tunnel, chunked or not (RFC 9110 9.3.6)", "CONNECT",
			lines("HTTP/1.1 204 x", "Transfer-Encoding: chunked"), "204\nno body, persists, tunnel\n"},
		{"other responses to CONNECT", "CONNECT",
			lines("HTTP/1.1 407 x", "Content-Length: 5"), "407\nbody of 5, declared 5, persists\n"},

		{"connection fields are removed (RFC 9110 7.6.1)", "GET",
			okHead("A: 1", "Keep-Alive: timeout=5", "Proxy-Connection: x", "Connection: keep-alive, x-hop", "X-Hop: 1", "TE: x", "Host: a b", "Content-Length: 0", "Expect: x", "B: 2"),
			"200\nno body, declared 0, persists\nA: 1\nB: 2\n"},
		{"fields in order, case and repetition", "GET",
			okHead("Set-Cookie: a", "date: d", "set-cookie: b", "Server: s", "Content-Length: 0"),
			"200\nno body, declared 0, persists\nSet-Cookie: a\ndate: d\nset-cookie: b\nServer: s\n"},
	}
}

func TestParseResponse(t *testing.T) {
	for _, tt := range validResponses() {
		t.Run(tt.name, func(t *testing.T) {
			got := parseResponseOnce([]byte(tt.head+"next"), tt.method, largeLimits)
			if want := (outcome{n: len(tt.head), text: tt.want}); got != want {
				t.Errorf("ParseResponse(%q) =\n%+v, want\n%+v", tt.head, got, want)
			}
		})
	}
}

func invalidResponses() []invalidHead {
	const bad = protocol.UpstreamMalformed
	return []invalidHead{
		{"Content-Length with Transfer-Encoding (RFC 9112 6.3)", okHead("Content-Length: 3", "Transfer-Encoding: chunked"), bad, "both Transfer-Encoding and Content-Length"},
		{"differing Content-Length (RFC 9112 6.3)", okHead("Content-Length: 3", "Content-Length: 4"), bad, "more than one Content-Length"},
		{"repeated Content-Length (RFC 9112 6.3)", okHead("Content-Length: 3", "Content-Length: 3"), bad, "more than one Content-Length"},
		{"listed Content-Length (RFC 9112 6.3)", okHead("Content-Length: 3, 3"), bad, "not a number"},
		{"Content-Length with a sign", okHead("Content-Length: +3"), bad, "not a number"},
		{"hexadecimal Content-Length", okHead("Content-Length: 0x3"), bad, "not a number"},
		{"empty Content-Length", okHead("Content-Length: "), bad, "not a number"},
		{"Content-Length of 2^64", okHead("Content-Length: 18446744073709551616"), bad, "overflows"},
		{"unknown coding (RFC 9112 6.1)", okHead("Transfer-Encoding: gzip, chunked"), bad, "coding other than chunked"},
		{"chunked is not the final coding", okHead("Transfer-Encoding: chunked, gzip"), bad, "not the final"},
		{"chunked twice", okHead("Transfer-Encoding: chunked, chunked"), bad, "twice"},
		{"Transfer-Encoding in HTTP/1.0 (RFC 9112 6.1)", lines("HTTP/1.0 200 OK", "Transfer-Encoding: chunked"), bad, "in HTTP/1.0"},
		{"line folding (RFC 9112 5.2)", okHead("A: b", " c"), bad, "line folding"},
		{"bare LF after the status line (RFC 9112 2.2)", "HTTP/1.1 200 OK\nA: b\r\n\r\n", bad, "bare LF"},
		{"bare LF after the status", "HTTP/1.1 200\nA: b\r\n\r\n", bad, "bare LF"},
		{"bare LF after a field line (RFC 9112 2.2)", "HTTP/1.1 200 OK\r\nA: b\n\r\n", bad, "bare LF"},
		{"bare CR in the phrase (RFC 9112 2.2)", lines("HTTP/1.1 200 O\rK"), bad, "bare CR"},
		{"NUL in the phrase", lines("HTTP/1.1 200 O\x00K"), bad, "status line"},
		{"bare CR in a value", okHead("A: b\rc"), bad, "bare CR"},
		{"NUL in a value (RFC 9110 5.5)", okHead("A: b\x00"), bad, "control character"},
		{"empty name", okHead(": b"), bad, "empty field name"},
		{"field line without a colon", okHead("ab"), bad, "without a colon"},
		{"status of two digits (RFC 9112 4)", lines("HTTP/1.1 20 OK"), bad, "three digits"},
		{"status of four digits (RFC 9112 4)", lines("HTTP/1.1 2000 OK"), bad, "status line"},
		{"status that is not a number", lines("HTTP/1.1 2x0 OK"), bad, "three digits"},
		{"status below 100 (RFC 9110 15)", lines("HTTP/1.1 099 x"), bad, "100 to 999"},
		{"two spaces before the status (RFC 9112 4)", lines("HTTP/1.1  200 OK"), bad, "three digits"},
		{"tab before the status", lines("HTTP/1.1\t200 OK"), bad, "one space"},
		{"empty line before the status line", "\r\n" + okHead(), bad, "not an HTTP version"},
		{"other protocol", lines("ICY 200 OK"), bad, "not an HTTP version"},
		{"HTTP/0.9 content", "<html>", bad, "not an HTTP version"},
		{"HTTP/2.0", lines("HTTP/2.0 200 OK"), bad, "version other than"},
		{"interim response with content (RFC 9112 6.3)", lines("HTTP/1.1 100 x", "Content-Length: 5"), bad, "interim"},
		{"interim response with chunks (RFC 9112 6.1)", lines("HTTP/1.1 103 x", "Transfer-Encoding: chunked"), bad, "interim"},
		{"101 with content (RFC 9110 8.6)", lines("HTTP/1.1 101 x", "Upgrade: x", "Content-Length: 5"), bad, "interim"},
		{"101 without Upgrade (RFC 9110 15.2.2)", lines("HTTP/1.1 101 x", "Connection: upgrade"), bad, "without Upgrade"},
		{"connection option that is not a token", okHead("Connection: a/b"), bad, "connection option"},
		{"too many connection options", okHead("Connection: " + strings.Repeat("a,", maxNominated+1)), bad, "too many connection options"},
	}
}

func TestParseResponseRejects(t *testing.T) {
	for _, tt := range invalidResponses() {
		t.Run(tt.name, func(t *testing.T) {
			var resp protocol.Response
			var f Framing
			n, err := ParseResponse([]byte(tt.head), largeLimits, "GET", &resp, &f)
			checkFault(t, tt.head, err, tt.reason, tt.rule)
			if n != 0 {
				t.Errorf("ParseResponse(%q) returned an error and n = %d, want 0", tt.head, n)
			}
		})
	}
}

func TestParseResponseLimits(t *testing.T) {
	line := "HTTP/1.1 200 " + strings.Repeat("a", 100)
	head := lines(line, "A: b", "C: d")
	tests := []struct {
		name    string
		lim     Limits
		input   string
		wantErr bool
		n       int
	}{
		{"line at its limit", Limits{Line: len(line)}, head, false, len(head)},
		{"line above its limit", Limits{Line: len(line) - 1}, head, true, 0},
		{"line above its limit, incomplete", Limits{Line: 20}, line[:22], true, 0},
		{"head at its limit", Limits{Head: len(head)}, head, false, len(head)},
		{"head above its limit", Limits{Head: len(head) - 1}, head, true, 0},
		{"head above its limit within the line", Limits{Head: 20}, line[:20], true, 0},
		{"head that may still fit", Limits{Head: 20}, line[:19], false, 0},
		{"fields at their limit", Limits{Fields: 2}, head, false, len(head)},
		{"fields above their limit", Limits{Fields: 1}, head, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var resp protocol.Response
			var f Framing
			n, err := ParseResponse([]byte(tt.input), tt.lim, "GET", &resp, &f)
			if n != tt.n || (err != nil) != tt.wantErr {
				t.Fatalf("ParseResponse(%q) = %d, %v, want %d, rejected %t", tt.input, n, err, tt.n, tt.wantErr)
			}
			if err != nil && protocol.ReasonOf(err) != protocol.UpstreamMalformed {
				t.Errorf("ParseResponse(%q): reason %v, want %v", tt.input, protocol.ReasonOf(err), protocol.UpstreamMalformed)
			}
		})
	}
}
