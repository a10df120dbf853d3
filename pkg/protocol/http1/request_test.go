package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// validRequest is a head and the text of its parsed form.
type validRequest struct{ name, head, want string }

// invalidHead is an invalid head, the reason of the error, and a part of its text.
type invalidHead struct {
	name, head string
	reason     protocol.Reason
	rule       string
}

func validRequests() []validRequest {
	return []validRequest{
		{"origin-form (RFC 9112 3.2.1)",
			getHead("Accept: */*"),
			"GET /\nauthority a\nno body, persists\nAccept: */*\n"},
		{"target unchanged: encoding, dots, slashes (RFC 9110 4.2.3)",
			lines("GET //a/../%2e%2E/%zz;v=1?q={}|\\^`\"<> HTTP/1.1", "Host: a"),
			"GET //a/../%2e%2E/%zz;v=1?q={}|\\^`\"<>\nauthority a\nno body, persists\n"},
		{"absolute-form: its authority overrides Host (RFC 9112 3.2.2)",
			lines("GET http://b:81/x?y HTTP/1.1", "Host: a"),
			"GET /x?y\nscheme http\nauthority b:81\nno body, persists\n"},
		{"absolute-form: scheme in any case (RFC 9110 4.2.3)",
			lines("GET HTTPS://b/ HTTP/1.1", "Host: a"),
			"GET /\nscheme https\nauthority b\nno body, persists\n"},
		{"absolute-form: empty path (RFC 9112 3.2.1)",
			lines("GET http://b HTTP/1.1", "Host: b"),
			"GET /\nscheme http\nauthority b\nno body, persists\n"},
		{"absolute-form: empty path with a query (RFC 9112 3.2.1)",
			lines("GET http://b?q HTTP/1.1", "Host: b"),
			"GET /?q\nscheme http\nauthority b\nno body, persists\n"},
		{"absolute-form: OPTIONS with an empty path becomes * (RFC 9112 3.2.4)",
			lines("OPTIONS http://b HTTP/1.1", "Host: b"),
			"OPTIONS *\nscheme http\nauthority b\nno body, persists\n"},
		{"authority-form (RFC 9112 3.2.3)",
			lines("CONNECT b:443 HTTP/1.1", "Host: b:443"),
			"CONNECT \nauthority b:443\nno body, persists\n"},
		{"asterisk-form (RFC 9112 3.2.4)",
			lines("OPTIONS * HTTP/1.1", "Host: a"),
			"OPTIONS *\nauthority a\nno body, persists\n"},
		{"any token is a method (RFC 9110 9.1)",
			lines("m-SEARCH!#$%&'*+.^_`|~ / HTTP/1.1", "Host: a"),
			"m-SEARCH!#$%&'*+.^_`|~ /\nauthority a\nno body, persists\n"},
		{"one CRLF before the request line (RFC 9112 2.2)",
			"\r\n" + getHead(),
			"GET /\nauthority a\nno body, persists\n"},

		{"fields in order, case and repetition",
			getHead("B: 1", "a: 2", "B: 3", "x-Y-z: 4"),
			"GET /\nauthority a\nno body, persists\nB: 1\na: 2\nB: 3\nx-Y-z: 4\n"},
		{"whitespace around a value is removed (RFC 9112 5.1)",
			getHead("A: \t  b \t c\t \t", "B:", "C: \t ", "D:e"),
			"GET /\nauthority a\nno body, persists\nA: b \t c\nB: \nC: \nD: e\n"},
		{"names similar to connection fields",
			getHead("Hose: 1", "Tea: 2", "T: 3", "Upgradd: 4", "Connectiom: 5", "Content-Lengtg: 6", "Transfer_Encoding: 7"),
			"GET /\nauthority a\nno body, persists\nHose: 1\nTea: 2\nT: 3\nUpgradd: 4\nConnectiom: 5\nContent-Lengtg: 6\nTransfer_Encoding: 7\n"},
		{"obs-text in a value (RFC 9110 5.5)",
			getHead("A: \x80\xff\xc3\xa4"),
			"GET /\nauthority a\nno body, persists\nA: \x80\xff\xc3\xa4\n"},

		{"Content-Length (RFC 9112 6.2)",
			postHead("content-LENGTH:  12 "),
			"POST /\nauthority a\nbody of 12, declared 12, persists\n"},
		{"Content-Length 0",
			postHead("Content-Length: 0"),
			"POST /\nauthority a\nno body, declared 0, persists\n"},
		{"Content-Length with leading zeros (RFC 9110 8.6: 1*DIGIT)",
			postHead("Content-Length: 0012"),
			"POST /\nauthority a\nbody of 12, declared 12, persists\n"},
		{"largest Content-Length",
			postHead("Content-Length: 9223372036854775807"),
			"POST /\nauthority a\nbody of 9223372036854775807, declared 9223372036854775807, persists\n"},
		{"chunked (RFC 9112 6.1), in any case",
			postHead("Transfer-Encoding: ChunKed"),
			"POST /\nauthority a\nchunked body, persists\n"},
		{"no framing: no content (RFC 9112 6.3)",
			postHead(),
			"POST /\nauthority a\nno body, persists\n"},
		{"GET may have content (RFC 9110 9.3.1)",
			getHead("Content-Length: 3"),
			"GET /\nauthority a\nbody of 3, declared 3, persists\n"},

		{"Connection: close (RFC 9112 9.3)",
			getHead("Connection: CLOSE"),
			"GET /\nauthority a\nno body\n"},
		{"close overrides keep-alive",
			getHead("Connection: close, keep-alive"),
			"GET /\nauthority a\nno body\n"},
		{"HTTP/1.0 closes by default, needs no Host (RFC 9112 9.3, 3.2)",
			lines("GET / HTTP/1.0"),
			"GET /\nno body, 1.0\n"},
		{"HTTP/1.0 with keep-alive",
			lines("GET / HTTP/1.0", "Connection: Keep-Alive", "Keep-Alive: timeout=5"),
			"GET /\nno body, 1.0, persists\n"},
		{"HTTP/1.0 with an empty Host",
			lines("GET / HTTP/1.0", "Host:"),
			"GET /\nno body, 1.0\n"},
		{"Proxy-Connection is ignored (RFC 9112 C.2.2)",
			lines("GET / HTTP/1.0", "Proxy-Connection: keep-alive"),
			"GET /\nno body, 1.0\n"},
		{"connection fields are removed (RFC 9110 7.6.1)",
			getHead("A: 1", "Keep-Alive: 5", "Proxy-Connection: close", "TE: gzip", "Upgrade: x", "HTTP2-Settings: AA", "B: 2"),
			"GET /\nauthority a\nno body, persists\nA: 1\nB: 2\n"},
		{"fields that Connection names are removed (RFC 9110 7.6.1)",
			getHead("X-Hop: 1", "A: 1", "Connection: x-hop\t , ,keep-alive,  Date\t", "x-HOP: 2", "Date: 3", "connection: B", "B: 2", "C: 3"),
			"GET /\nauthority a\nno body, persists\nA: 1\nC: 3\n"},
		{"Trailer is end to end (RFC 9110 6.6.2)",
			getHead("Trailer: X-Sum", "A: 1"),
			"GET /\nauthority a\nno body, persists\nTrailer: X-Sum\nA: 1\n"},
		{"connection option Host does not affect routing",
			getHead("Connection: host, close"),
			"GET /\nauthority a\nno body\n"},
		{"connection option Content-Length does not affect framing",
			postHead("Connection: content-length", "Content-Length: 5"),
			"POST /\nauthority a\nbody of 5, declared 5, persists\n"},
		{"connection option Transfer-Encoding does not affect framing",
			postHead("Connection: transfer-encoding", "Transfer-Encoding: chunked"),
			"POST /\nauthority a\nchunked body, persists\n"},
		{"connection option Connection has no effect",
			getHead("Connection: connection, x", "X: 1"),
			"GET /\nauthority a\nno body, persists\n"},
		{"TE: trailers (RFC 9110 10.1.4)",
			getHead("TE: gzip;q=0.5, Trailers", "Connection: te"),
			"GET /\nauthority a\nno body, persists, wants trailers\nTE: trailers\n"},

		{"Upgrade (RFC 9110 7.8)",
			getHead("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
			"GET /\nauthority a\nupgrade websocket\nno body, persists\nSec-WebSocket-Version: 13\n"},
		{"Upgrade to several protocols, with versions",
			getHead("Connection: upgrade", "Upgrade: IRC/6.9, RTA/x11"),
			"GET /\nauthority a\nupgrade IRC/6.9, RTA/x11\nno body, persists\n"},
		{"Upgrade without the connection option is ignored (RFC 9110 7.8)",
			getHead("Upgrade: websocket"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade in HTTP/1.0 is ignored (RFC 9110 7.8)",
			lines("GET / HTTP/1.0", "Connection: upgrade", "Upgrade: websocket"),
			"GET /\nno body, 1.0\n"},
		{"Upgrade to h2c (RFC 7540 3.2)",
			getHead("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
			"GET /\nauthority a\nno body, persists, HTTP2-Settings AAMAAABk\n"},
		{"Upgrade to h2c of a request with content (RFC 7540 3.2)",
			postHead("HTTP2-Settings: AAMAAABk", "Upgrade: H2C", "Connection: http2-settings", "Connection: upgrade", "Content-Length: 1"),
			"POST /\nauthority a\nbody of 1, declared 1, persists, HTTP2-Settings AAMAAABk\n"},
		{"Upgrade to h2c without HTTP2-Settings is ignored (RFC 7540 3.2.1)",
			getHead("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to h2c with two HTTP2-Settings is ignored (RFC 7540 3.2.1)",
			getHead("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk", "HTTP2-Settings: AAMAAABk"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to h2c with empty HTTP2-Settings is ignored (RFC 7540 3.2.1)",
			getHead("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings:"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to h2c whose Connection does not name the settings is ignored (RFC 7540 3.2.1)",
			getHead("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to h2c whose Connection does not name the upgrade is ignored (RFC 9110 7.8)",
			getHead("Connection: HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to h2c twice is ignored",
			getHead("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to h2c in HTTP/1.0 is ignored (RFC 9110 7.8)",
			lines("GET / HTTP/1.0", "Connection: upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
			"GET /\nno body, 1.0\n"},
		{"Upgrade to h2c among others is ignored",
			getHead("Connection: upgrade, HTTP2-Settings", "Upgrade: websocket, H2C", "HTTP2-Settings: AAMAAABk"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to a version of HTTP is ignored",
			getHead("Connection: upgrade", "Upgrade: HTTP/2.0"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade to TLS is ignored (RFC 2817)",
			getHead("Connection: upgrade", "Upgrade: TLS/1.2"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade twice is ignored",
			getHead("Connection: upgrade", "Upgrade: websocket", "Upgrade: x"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Upgrade of a request with content is ignored",
			postHead("Connection: upgrade", "Upgrade: websocket", "Content-Length: 1"),
			"POST /\nauthority a\nbody of 1, declared 1, persists\n"},
		{"Upgrade of a CONNECT is ignored",
			lines("CONNECT a:1 HTTP/1.1", "Host: a:1", "Connection: upgrade", "Upgrade: websocket"),
			"CONNECT \nauthority a:1\nno body, persists\n"},

		{"Expect: 100-continue (RFC 9110 10.1.1)",
			postHead("Content-Length: 1", "Expect: 100-Continue"),
			"POST /\nauthority a\nexpects continue\nbody of 1, declared 1, persists\n"},
		{"Expect before chunked content",
			postHead("Expect: 100-continue", "Transfer-Encoding: chunked"),
			"POST /\nauthority a\nexpects continue\nchunked body, persists\n"},
		{"Expect without content is ignored (RFC 9110 10.1.1)",
			getHead("Expect: 100-continue"),
			"GET /\nauthority a\nno body, persists\n"},
		{"Expect in HTTP/1.0 is ignored (RFC 9110 10.1.1)",
			lines("POST / HTTP/1.0", "Expect: anything", "Content-Length: 1"),
			"POST /\nbody of 1, declared 1, 1.0\n"},
	}
}

func TestParseRequest(t *testing.T) {
	for _, tt := range validRequests() {
		t.Run(tt.name, func(t *testing.T) {
			got := parseRequestOnce([]byte(tt.head+"next"), largeLimits)
			if want := (outcome{n: len(tt.head), text: tt.want}); got != want {
				t.Errorf("ParseRequest(%q) =\n%+v, want\n%+v", tt.head, got, want)
			}
		})
	}
}

func invalidRequests() []invalidHead {
	const bad = protocol.MalformedRequest
	return []invalidHead{
		{"Content-Length with Transfer-Encoding (RFC 9112 6.3)", postHead("Content-Length: 3", "Transfer-Encoding: chunked"), bad, "both Transfer-Encoding and Content-Length"},
		{"Transfer-Encoding with Content-Length (RFC 9112 6.3)", postHead("Transfer-Encoding: chunked", "Content-Length: 3"), bad, "both Transfer-Encoding and Content-Length"},
		{"differing Content-Length (RFC 9112 6.3)", postHead("Content-Length: 3", "Content-Length: 4"), bad, "more than one Content-Length"},
		{"repeated Content-Length (RFC 9112 6.3)", postHead("Content-Length: 3", "Content-Length: 3"), bad, "more than one Content-Length"},
		{"listed Content-Length (RFC 9110 8.6)", postHead("Content-Length: 3, 3"), bad, "not a number"},
		{"Content-Length 1,2", postHead("Content-Length: 1,2"), bad, "not a number"},
		{"Content-Length with a sign", postHead("Content-Length: +1"), bad, "not a number"},
		{"negative Content-Length", postHead("Content-Length: -1"), bad, "not a number"},
		{"hexadecimal Content-Length", postHead("Content-Length: 0x1"), bad, "not a number"},
		{"Content-Length with a space inside", postHead("Content-Length: 1 1"), bad, "not a number"},
		{"Content-Length with a separator", postHead("Content-Length: 1_000"), bad, "not a number"},
		{"empty Content-Length", postHead("Content-Length:"), bad, "not a number"},
		{"Content-Length of blanks", postHead("Content-Length: \t "), bad, "not a number"},
		{"Content-Length of 2^64 (RFC 9110 8.6)", postHead("Content-Length: 18446744073709551616"), bad, "overflows"},
		{"Content-Length of 2^63", postHead("Content-Length: 9223372036854775808"), bad, "overflows"},
		{"Content-Length of 2^64+1, which wraps to 1", postHead("Content-Length: 18446744073709551617"), bad, "overflows"},

		{"unknown coding (RFC 9112 6.1)", postHead("Transfer-Encoding: gzip, chunked"), protocol.NotImplemented, "coding other than chunked"},
		{"unknown coding in a separate field", postHead("Transfer-Encoding: x", "Transfer-Encoding: chunked"), protocol.NotImplemented, "coding other than chunked"},
		{"chunked is not the final coding (RFC 9112 6.3)", postHead("Transfer-Encoding: chunked, gzip"), bad, "not the final"},
		{"chunked is not the final coding, in fields", postHead("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), bad, "not the final"},
		{"chunked is not among the codings", postHead("Transfer-Encoding: gzip"), bad, "not the final"},
		{"a coding similar to chunked", postHead("Transfer-Encoding: xchunked"), bad, "not the final"},
		{"chunked with a parameter (RFC 9112 7)", postHead("Transfer-Encoding: chunked;q=1"), bad, "not the final"},
		{"chunked twice (RFC 9112 6.1)", postHead("Transfer-Encoding: chunked, chunked"), bad, "twice"},
		{"chunked twice, in fields", postHead("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), bad, "twice"},
		{"empty Transfer-Encoding", postHead("Transfer-Encoding:"), bad, "not a list of codings"},
		{"empty member of Transfer-Encoding", postHead("Transfer-Encoding: ,chunked"), bad, "not a list of codings"},
		{"empty last member of Transfer-Encoding", postHead("Transfer-Encoding: chunked,"), bad, "not a list of codings"},
		{"quoted coding", postHead("Transfer-Encoding: \"chunked\""), bad, "not a list of codings"},
		{"vertical tab before chunked", postHead("Transfer-Encoding: \x0bchunked"), bad, "control character"},
		{"non-breaking space after chunked", postHead("Transfer-Encoding: chunked\xa0"), bad, "not a list of codings"},
		{"Transfer-Encoding in HTTP/1.0 (RFC 9112 6.1)", lines("POST / HTTP/1.0", "Transfer-Encoding: chunked"), bad, "in HTTP/1.0"},
		{"space before the colon of Transfer-Encoding", postHead("Transfer-Encoding : chunked"), bad, "before its colon"},

		{"bare LF after the request line (RFC 9112 2.2)", "GET / HTTP/1.1\nHost: a\r\n\r\n", bad, "bare LF"},
		{"bare LF after a field line (RFC 9112 2.2)", "GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", bad, "bare LF"},
		{"bare LF as the empty line", "GET / HTTP/1.1\r\nHost: a\r\n\n", bad, "bare LF"},
		{"bare LF before the request line", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", bad, "bare LF"},
		{"bare LF in a target", "GET /\nHTTP/1.1\r\n\r\n", bad, "bare LF"},
		{"bare LF in a name", "GET / HTTP/1.1\r\nHo\nst: a\r\n\r\n", bad, "bare LF"},
		{"bare CR after the request line (RFC 9112 2.2)", "GET / HTTP/1.1\rHost: a\r\n\r\n", bad, "bare CR"},
		{"bare CR in a value (RFC 9112 2.2)", getHead("A: b\rc"), bad, "bare CR"},
		{"two CR before LF", getHead("A: b\r"), bad, "bare CR"},
		{"bare CR at the start of a field line", getHead("\rA: b"), bad, "bare CR"},
		{"bare CR before the request line", "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", bad, "bare CR"},
		{"17 CRLF before the request line", strings.Repeat("\r\n", 17) + getHead(), bad, "too many empty lines"},
		{"a bare CR after a CRLF", "\r\n\r" + getHead(), bad, "bare CR"},
		{"NUL in a value (RFC 9110 5.5)", getHead("A: b\x00c"), bad, "control character"},
		{"control character in a value (RFC 9110 5.5)", getHead("A: b\x1fc"), bad, "control character"},
		{"DEL in a value (RFC 9110 5.5)", getHead("A: b\x7fc"), bad, "control character"},
		{"line folding (RFC 9112 5.2)", getHead("A: b", " c"), bad, "line folding"},
		{"line folding by a tab (RFC 9112 5.2)", getHead("A: b", "\tc"), bad, "line folding"},
		{"whitespace before the first field (RFC 9112 2.2)", lines("GET / HTTP/1.1", " Host: a"), bad, "whitespace before the first field"},

		{"space before the colon (RFC 9112 5.1)", getHead("A : b"), bad, "before its colon"},
		{"tab before the colon (RFC 9112 5.1)", getHead("A\t: b"), bad, "before its colon"},
		{"space in a name (RFC 9110 5.1)", getHead("A b: c"), bad, "whitespace in a field name"},
		{"empty name (RFC 9110 5.1)", getHead(": b"), bad, "empty field name"},
		{"name that is not a token (RFC 9110 5.1)", getHead("A(b): c"), bad, "not a token"},
		{"NUL in a name", getHead("A\x00: c"), bad, "not a token"},
		{"name that is not ASCII", getHead("\xc3\xa4: c"), bad, "not a token"},
		{"field line without a colon (RFC 9112 5)", getHead("abc"), bad, "without a colon"},

		{"empty method (RFC 9112 3.1)", lines(" / HTTP/1.1", "Host: a"), bad, "method"},
		{"method that is not a token (RFC 9110 9.1)", lines("GE(T / HTTP/1.1", "Host: a"), bad, "method"},
		{"method that is not ASCII", lines("GÄT / HTTP/1.1", "Host: a"), bad, "method"},
		{"tab after the method (RFC 9112 3)", lines("GET\t/ HTTP/1.1", "Host: a"), bad, "method"},
		{"two spaces after the method (RFC 9112 3)", lines("GET  / HTTP/1.1", "Host: a"), bad, "more than one space"},
		{"space in a target (RFC 9112 3.2)", lines("GET /a b HTTP/1.1", "Host: a"), bad, "not an HTTP version"},
		{"tab in a target", lines("GET /a\tb HTTP/1.1", "Host: a"), bad, "not visible ASCII"},
		{"NUL in a target", lines("GET /a\x00b HTTP/1.1", "Host: a"), bad, "not visible ASCII"},
		{"DEL in a target", lines("GET /a\x7fb HTTP/1.1", "Host: a"), bad, "not visible ASCII"},
		{"target that is not ASCII", lines("GET /ä HTTP/1.1", "Host: a"), bad, "not visible ASCII"},
		{"fragment in a target (RFC 9112 3.2)", lines("GET /a#b HTTP/1.1", "Host: a"), bad, "fragment"},
		{"bare CR in a target", lines("GET /\rHTTP/1.1", "Host: a"), bad, "without a version"},
		{"target without a slash (RFC 9112 3.2.1)", lines("GET a HTTP/1.1", "Host: a"), bad, "unknown form"},
		{"target with a scheme that is not HTTP's", lines("GET ftp://a/ HTTP/1.1", "Host: a"), bad, "unknown form"},
		{"target without an authority (RFC 9110 4.2.1)", lines("GET http:///x HTTP/1.1", "Host: a"), bad, "authority of the target"},
		{"target with user information (RFC 9110 4.2.4)", lines("GET http://u:p@a/ HTTP/1.1", "Host: a"), bad, "authority of the target"},
		{"authority-form of a GET (RFC 9112 3.2.3)", lines("GET a:80 HTTP/1.1", "Host: a:80"), bad, "unknown form"},
		{"asterisk-form of a GET (RFC 9112 3.2.4)", lines("GET * HTTP/1.1", "Host: a"), bad, "other than OPTIONS"},
		{"CONNECT with a path (RFC 9112 3.2.3)", lines("CONNECT / HTTP/1.1", "Host: a"), bad, "target of CONNECT"},
		{"CONNECT in absolute-form (RFC 9112 3.2.3)", lines("CONNECT http://a:80/ HTTP/1.1", "Host: a"), bad, "target of CONNECT"},
		{"CONNECT without a port (RFC 9110 9.3.6)", lines("CONNECT a HTTP/1.1", "Host: a"), bad, "target of CONNECT"},
		{"CONNECT with an empty port (RFC 9110 9.3.6)", lines("CONNECT a: HTTP/1.1", "Host: a"), bad, "target of CONNECT"},
		{"CONNECT with content (RFC 9110 9.3.6)", lines("CONNECT a:1 HTTP/1.1", "Host: a:1", "Content-Length: 3"), bad, "CONNECT with a body"},
		{"CONNECT with chunked content (RFC 9110 9.3.6)", lines("CONNECT a:1 HTTP/1.1", "Host: a:1", "Transfer-Encoding: chunked"), bad, "CONNECT with a body"},

		{"request line without a version (RFC 9112 3)", "GET /\r\n\r\n", bad, "without a version"},
		{"version in lower case (RFC 9112 2.3)", lines("GET / http/1.1", "Host: a"), bad, "not an HTTP version"},
		{"version with two digits", lines("GET / HTTP/1.10", "Host: a"), bad, "between the version and the end"},
		{"version without a minor", lines("GET / HTTP/1", "Host: a"), bad, "not an HTTP version"},
		{"space after the version (RFC 9112 3)", lines("GET / HTTP/1.1 ", "Host: a"), bad, "between the version and the end"},
		{"HTTP/0.9", lines("GET / HTTP/0.9", "Host: a"), protocol.VersionNotSupported, "version other than"},
		{"HTTP/3.0", lines("GET / HTTP/3.0", "Host: a"), protocol.VersionNotSupported, "version other than"},
		{"HTTP/2's preface (RFC 9113 3.4)", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", protocol.VersionNotSupported, "version other than"},
		{"TLS", "\x16\x03\x01\x02\x00\x01", bad, "method"},

		{"missing Host (RFC 9112 3.2)", lines("GET / HTTP/1.1"), bad, "missing Host"},
		{"no Host, absolute-form (RFC 9112 3.2)", lines("GET http://a/ HTTP/1.1"), bad, "missing Host"},
		{"two Hosts (RFC 9112 3.2)", getHead("Host: b"), bad, "more than one Host"},
		{"the same Host twice (RFC 9112 3.2)", getHead("host: a"), bad, "more than one Host"},
		{"two Hosts in HTTP/1.0 (RFC 9112 3.2)", lines("GET / HTTP/1.0", "Host: a", "Host: a"), bad, "more than one Host"},
		{"empty Host (RFC 9112 3.3)", lines("GET / HTTP/1.1", "Host:"), bad, "Host is not"},
		{"Host with a space (RFC 9112 3.2)", lines("GET / HTTP/1.1", "Host: a b"), bad, "Host is not"},
		{"Host with a path (RFC 9112 3.2)", lines("GET / HTTP/1.1", "Host: a/b"), bad, "Host is not"},
		{"Host with user information (RFC 9112 3.2)", lines("GET / HTTP/1.1", "Host: u@a"), bad, "Host is not"},
		{"Host with an invalid port (RFC 9112 3.2)", lines("GET / HTTP/1.1", "Host: a:http"), bad, "Host is not"},
		{"invalid Host with an absolute-form target (RFC 9112 3.2)", lines("GET http://a/ HTTP/1.1", "Host: a b"), bad, "Host is not"},
		{"listed Hosts", lines("GET / HTTP/1.1", "Host: a, b"), bad, "Host is not"},

		{"connection option that is not a token (RFC 9110 7.6.1)", getHead("Connection: a b"), bad, "connection option"},
		{"connection option in quotes", getHead("Connection: \"close\""), bad, "connection option"},
		{"too many connection options", getHead("Connection: " + strings.Repeat("a,", maxNominated+1)), bad, "too many connection options"},
		{"too many connection options, in fields", getHead(strings.TrimSuffix(strings.Repeat("Connection: a\r\n", maxNominated+1), "\r\n")), bad, "too many connection options"},
		{"Upgrade that is not a list of protocols (RFC 9110 7.8)", getHead("Connection: upgrade", "Upgrade: a b"), bad, "Upgrade is not"},
		{"empty Upgrade", getHead("Connection: upgrade", "Upgrade:"), bad, "Upgrade is not"},
		{"Upgrade with an empty version", getHead("Connection: upgrade", "Upgrade: a/"), bad, "Upgrade is not"},
		{"other expectation (RFC 9110 10.1.1)", postHead("Expect: 200-ok", "Content-Length: 1"), protocol.ExpectationFailed, "expectation"},
		{"other expectation together with 100-continue", postHead("Expect: 100-continue, x", "Content-Length: 1"), protocol.ExpectationFailed, "expectation"},
	}
}

func TestParseRequestRejects(t *testing.T) {
	for _, tt := range invalidRequests() {
		t.Run(tt.name, func(t *testing.T) {
			var req protocol.Request
			var f Framing
			n, err := ParseRequest([]byte(tt.head), largeLimits, &req, &f)
			checkFault(t, tt.head, err, tt.reason, tt.rule)
			if n != 0 {
				t.Errorf("ParseRequest(%q) returned an error and n = %d, want 0", tt.head, n)
			}
		})
	}
}

func TestParseRequestKeepsSecretsOutOfErrors(t *testing.T) {
	const secret = "hunter2"
	heads := []string{
		getHead("Authorization: Basic " + secret + "\x00"),
		getHead("Cookie: " + secret + "\rx"),
		lines("GET /?token="+secret+"# HTTP/1.1", "Host: a"),
		lines("GET http://user:"+secret+"@a/ HTTP/1.1", "Host: a"),
		lines("GET / HTTP/1.1", "Host: "+secret+"@a"),
		getHead("Expect: "+secret, "Content-Length: 1"),
		getHead("Content-Length: " + secret),
		getHead("Transfer-Encoding: " + secret),
		getHead("Connection: a " + secret),
		getHead("Upgrade: a " + secret),
		getHead(secret),
		getHead("a " + secret + ": b"),
	}
	for _, head := range heads {
		var req protocol.Request
		var f Framing
		_, err := ParseRequest([]byte(head), largeLimits, &req, &f)
		if err == nil {
			t.Errorf("ParseRequest(%q) = nil, want an error", head)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("ParseRequest(%q): error %q quotes the request", head, err)
		}
	}
}

// TestParseRequestLimits verifies that limits are exact and apply to incomplete heads.
func TestParseRequestLimits(t *testing.T) {
	line := "GET /" + strings.Repeat("a", 100) + " HTTP/1.1"
	head := lines(line, "Host: a", "B: c")
	tests := []struct {
		name   string
		lim    Limits
		input  string
		reason protocol.Reason // ReasonNone: complete or incomplete without an error
		n      int
	}{
		{"line at its limit", Limits{Line: len(line)}, head, protocol.ReasonNone, len(head)},
		{"line above its limit", Limits{Line: len(line) - 1}, head, protocol.TargetTooLong, 0},
		{"line at its limit after an empty one", Limits{Line: len(line)}, "\r\n" + head, protocol.ReasonNone, len(head) + 2},
		{"line above its limit after an empty one", Limits{Line: len(line) - 1}, "\r\n" + head, protocol.TargetTooLong, 0},
		{"line of 8,000 octets (RFC 9112 3)", largeLimits, lines("GET /"+strings.Repeat("a", 8000-len("GET / HTTP/1.1"))+" HTTP/1.1", "Host: a"), protocol.ReasonNone, 8000 + len("\r\nHost: a\r\n\r\n")},
		{"target too long, incomplete", Limits{Line: 20}, line[:22], protocol.TargetTooLong, 0},
		{"target that may still fit", Limits{Line: 20}, line[:21], protocol.ReasonNone, 0},
		{"method longer than the line limit (RFC 9112 3)", Limits{Line: 20}, strings.Repeat("G", 22), protocol.NotImplemented, 0},
		{"head at its limit", Limits{Head: len(head)}, head, protocol.ReasonNone, len(head)},
		{"head above its limit", Limits{Head: len(head) - 1}, head, protocol.HeaderTooLarge, 0},
		{"head too large, incomplete", Limits{Head: len(line) + 6}, line + "\r\nHost", protocol.HeaderTooLarge, 0},
		{"head that may still fit", Limits{Head: len(line) + 7}, line + "\r\nHost", protocol.ReasonNone, 0},
		{"line above the head limit, incomplete", Limits{Head: 20}, line[:20], protocol.HeaderTooLarge, 0},
		{"line above the head limit", Limits{Head: 20}, head, protocol.HeaderTooLarge, 0},
		{"fields at their limit", Limits{Fields: 2}, head, protocol.ReasonNone, len(head)},
		{"fields above their limit", Limits{Fields: 1}, head, protocol.HeaderTooLarge, 0},
		{"fields that are removed count", Limits{Fields: 2}, getHead("TE: x", "TE: x"), protocol.HeaderTooLarge, 0},
		{"no limits", Limits{}, head, protocol.ReasonNone, len(head)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var req protocol.Request
			var f Framing
			n, err := ParseRequest([]byte(tt.input), tt.lim, &req, &f)
			if got := protocol.ReasonOf(err); n != tt.n || got != tt.reason {
				t.Errorf("ParseRequest(%q) = %d, %v, want %d, %v", tt.input, n, err, tt.n, tt.reason)
			}
		})
	}
}

func TestParseRequestOverwritesPreviousResult(t *testing.T) {
	var req protocol.Request
	var f Framing
	first := lines("PUT https://b/x HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 5", "A: b", "TE: trailers")
	if _, err := ParseRequest([]byte(first), largeLimits, &req, &f); err != nil {
		t.Fatal(err)
	}
	second := getHead("Connection: close")
	if _, err := ParseRequest([]byte(second), largeLimits, &req, &f); err != nil {
		t.Fatal(err)
	}
	if got, want := requestText(&req, &f), "GET /\nauthority a\nno body\n"; got != want {
		t.Errorf("after another request: %q, want %q", got, want)
	}
}

func TestParseRequestStopsAtEmptyLine(t *testing.T) {
	first, second := postHead("Content-Length: 0"), getHead("A: b")
	b := []byte(first + second)
	if got := parseRequestOnce(b, largeLimits); got.n != len(first) {
		t.Fatalf("first of two requests: %+v, want n = %d", got, len(first))
	}
	if got := parseRequestOnce(b[len(first):], largeLimits); got.n != len(second) {
		t.Errorf("second of two requests: %+v, want n = %d", got, len(second))
	}
}
