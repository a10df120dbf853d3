package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// fields returns a header of alternating names and values.
func fields(namesAndValues ...string) (h protocol.Header) {
	for i := 0; i < len(namesAndValues); i += 2 {
		h.Add(namesAndValues[i], namesAndValues[i+1])
	}
	return h
}

// request returns a GET request without a body, changed by change, which may be nil.
func request(change func(*protocol.Request)) *protocol.Request {
	r := &protocol.Request{Method: "GET", Path: "/p?q", Authority: "a:80"}
	r.ContentLength = -1
	if change != nil {
		change(r)
	}
	return r
}

func TestAppendRequestBytes(t *testing.T) {
	tests := []struct {
		name   string
		change func(*protocol.Request)
		opts   RequestOptions
		want   string
	}{
		{"Host comes first (RFC 9112 3.2)", func(r *protocol.Request) { r.Header = fields("B", "1", "a", "", "B", "2") }, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "B: 1", "a: ", "B: 2")},
		{"no authority: empty Host (RFC 9112 3.2)", func(r *protocol.Request) { r.Authority = "" }, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: ")},
		{"CONNECT: authority-form (RFC 9112 3.2.3)", func(r *protocol.Request) { r.Method, r.Path = "CONNECT", "" }, RequestOptions{},
			lines("CONNECT a:80 HTTP/1.1", "Host: a:80")},
		{"OPTIONS: asterisk-form (RFC 9112 3.2.4)", func(r *protocol.Request) { r.Method, r.Path = "OPTIONS", "*" }, RequestOptions{},
			lines("OPTIONS * HTTP/1.1", "Host: a:80")},
		{"declared length", func(r *protocol.Request) { r.ContentLength = 12 }, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Content-Length: 12")},
		{"declared length of zero", func(r *protocol.Request) { r.ContentLength = 0 }, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Content-Length: 0")},
		{"POST without content declares it (RFC 9110 8.6)", func(r *protocol.Request) { r.Method = "POST" }, RequestOptions{},
			lines("POST /p?q HTTP/1.1", "Host: a:80", "Content-Length: 0")},
		{"chunked, and never together with a length (RFC 9112 6.2)", func(r *protocol.Request) { r.ContentLength = 12 }, RequestOptions{Chunked: true},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Transfer-Encoding: chunked")},
		{"framing and connection fields of a filter are omitted", func(r *protocol.Request) {
			r.Header = fields("Host", "b", "content-length", "5", "Transfer-Encoding", "gzip", "Connection", "close", "Keep-Alive", "5",
				"Proxy-Connection", "x", "TE", "x", "Upgrade", "h2c", "HTTP2-Settings", "x", "Expect", "x", "A", "b", "Date", "d", "Server", "s")
		}, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "A: b", "Date: d", "Server: s")},
		{"Expect is forwarded (RFC 9110 10.1.1)", func(r *protocol.Request) { r.ContentLength, r.ExpectContinue = 1, true }, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Content-Length: 1", "Expect: 100-continue")},
		{"Expect without content is omitted", func(r *protocol.Request) { r.ContentLength, r.ExpectContinue = 0, true }, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Content-Length: 0")},
		{"close (RFC 9112 9.6)", nil, RequestOptions{Close: true},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Connection: close")},
		{"Upgrade with its connection option (RFC 9110 7.8)", func(r *protocol.Request) { r.Upgrade = "websocket" }, RequestOptions{},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Connection: upgrade", "Upgrade: websocket")},
		{"Upgrade and close", func(r *protocol.Request) { r.Upgrade = "websocket" }, RequestOptions{Close: true},
			lines("GET /p?q HTTP/1.1", "Host: a:80", "Connection: upgrade, close", "Upgrade: websocket")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := AppendRequest([]byte("before"), request(tt.change), tt.opts)
			if err != nil {
				t.Fatalf("AppendRequest: %v", err)
			}
			if want := "before" + tt.want; string(got) != want {
				t.Errorf("AppendRequest = %q, want %q", got, want)
			}
		})
	}
}

// TestAppendRequestRejectsInvalidRequests verifies that a filter cannot inject a line, a part of
// the request line or a request.
func TestAppendRequestRejectsInvalidRequests(t *testing.T) {
	tests := []struct {
		name   string
		change func(*protocol.Request)
		rule   string
	}{
		{"CRLF in a value", func(r *protocol.Request) { r.Header = fields("A", "b\r\nC: d") }, `header "A"`},
		{"LF in a value", func(r *protocol.Request) { r.Header = fields("Long-Name", "12345678\n") }, `header "Long-Name"`},
		{"CR in a value", func(r *protocol.Request) { r.Header = fields("A", "\r") }, `header "A"`},
		{"NUL in a value", func(r *protocol.Request) { r.Header = fields("A", "b\x00") }, `header "A"`},
		{"CRLF in a name", func(r *protocol.Request) { r.Header = fields("A\r\nB", "c") }, `header "A\r\nB"`},
		{"colon in a name", func(r *protocol.Request) { r.Header = fields("Transfer-Encoding:", "chunked") }, "header"},
		{"space in a name", func(r *protocol.Request) { r.Header = fields("Transfer-Encoding ", "chunked") }, "header"},
		{"empty name", func(r *protocol.Request) { r.Header = fields("", "c") }, `header ""`},
		{"space in the method", func(r *protocol.Request) { r.Method = "GET /x" }, "method"},
		{"empty method", func(r *protocol.Request) { r.Method = "" }, "method"},
		{"space in the path", func(r *protocol.Request) { r.Path = "/a b" }, "target"},
		{"CRLF in the path", func(r *protocol.Request) { r.Path = "/a\r\nB: c" }, "target"},
		{"fragment in the path", func(r *protocol.Request) { r.Path = "/a#b" }, "target"},
		{"path that is not ASCII", func(r *protocol.Request) { r.Path = "/ä" }, "target"},
		{"empty path", func(r *protocol.Request) { r.Path = "" }, "target"},
		{"path without a slash", func(r *protocol.Request) { r.Path = "a" }, "target"},
		{"GET with an asterisk target", func(r *protocol.Request) { r.Path = "*" }, "target"},
		{"CONNECT without a port", func(r *protocol.Request) { r.Method, r.Authority = "CONNECT", "a" }, "target"},
		{"CRLF in the authority", func(r *protocol.Request) { r.Authority = "a\r\nB: c" }, "authority"},
		{"path in the authority", func(r *protocol.Request) { r.Authority = "a/b" }, "authority"},
		{"CRLF in the upgrade", func(r *protocol.Request) { r.Upgrade = "a\r\nB: c" }, "upgrade"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := AppendRequest([]byte("before"), request(tt.change), RequestOptions{})
			checkFault(t, tt.name, err, protocol.Internal, tt.rule)
			if string(got) != "before" {
				t.Errorf("AppendRequest returned %q, want dst unchanged", got)
			}
		})
	}
}

func TestAppendRequestErrorsQuoteNoValues(t *testing.T) {
	r := request(func(r *protocol.Request) { r.Header = fields("Authorization", "hunter2\x00") })
	_, err := AppendRequest(nil, r, RequestOptions{})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("AppendRequest: error %v, want one without the value", err)
	}
}

func TestAppendResponseBytes(t *testing.T) {
	tests := []struct {
		name   string
		status int
		length int64
		header protocol.Header
		opts   ResponseOptions
		want   string
	}{
		{"fields, then framing", 200, 5, fields("B", "1", "a", "2"), ResponseOptions{Minor: 1},
			lines("HTTP/1.1 200 OK", "B: 1", "a: 2", "Content-Length: 5")},
		{"zero length", 404, 0, protocol.Header{}, ResponseOptions{Minor: 1},
			lines("HTTP/1.1 404 Not Found", "Content-Length: 0")},
		{"no length: until close", 200, -1, protocol.Header{}, ResponseOptions{Close: true},
			lines("HTTP/1.1 200 OK", "Connection: close")},
		{"chunked, and never together with a length (RFC 9112 6.2)", 200, 5, protocol.Header{}, ResponseOptions{Minor: 1, Chunked: true},
			lines("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")},
		{"204 has no framing (RFC 9110 8.6)", 204, 0, protocol.Header{}, ResponseOptions{Minor: 1, Chunked: true},
			lines("HTTP/1.1 204 No Content")},
		{"304 keeps a length (RFC 9110 8.6)", 304, 5, protocol.Header{}, ResponseOptions{Minor: 1},
			lines("HTTP/1.1 304 Not Modified", "Content-Length: 5")},
		{"304 without a length", 304, 0, protocol.Header{}, ResponseOptions{Minor: 1},
			lines("HTTP/1.1 304 Not Modified")},
		{"1.0 client and a persistent connection (RFC 9112 9.3)", 200, 0, protocol.Header{}, ResponseOptions{},
			lines("HTTP/1.1 200 OK", "Content-Length: 0", "Connection: keep-alive")},
		{"1.0 client and a closing connection", 200, 0, protocol.Header{}, ResponseOptions{Close: true},
			lines("HTTP/1.1 200 OK", "Content-Length: 0", "Connection: close")},
		{"Server and Date are added (RFC 9110 6.6.1)", 200, 0, protocol.Header{}, ResponseOptions{Minor: 1, Server: "weft", Date: "now"},
			lines("HTTP/1.1 200 OK", "Server: weft", "Date: now", "Content-Length: 0")},
		{"the origin's Server and Date stay", 200, 0, fields("date", "then", "SERVER", "s"), ResponseOptions{Minor: 1, Server: "weft", Date: "now"},
			lines("HTTP/1.1 200 OK", "date: then", "SERVER: s", "Content-Length: 0")},
		{"framing and connection fields of a filter are omitted", 200, 0,
			fields("Content-Length", "5", "transfer-encoding", "chunked", "Connection", "x", "Keep-Alive", "x", "Proxy-Connection", "x", "Upgrade", "h2c", "TE", "x", "A", "b"),
			ResponseOptions{Minor: 1}, lines("HTTP/1.1 200 OK", "A: b", "Content-Length: 0")},
		{"101 (RFC 9110 15.2.2)", 101, -1, fields("Upgrade", "websocket", "A", "b"), ResponseOptions{Minor: 1, BecomesTunnel: true},
			lines("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "A: b", "Connection: upgrade")},
		{"2xx to CONNECT has no framing (RFC 9110 9.3.6)", 200, 0, protocol.Header{}, ResponseOptions{BecomesTunnel: true},
			lines("HTTP/1.1 200 OK")},
		{"426 keeps Upgrade (RFC 9110 15.5.22)", 426, 0, fields("Upgrade", "websocket"), ResponseOptions{Minor: 1, Close: true},
			lines("HTTP/1.1 426 Upgrade Required", "Upgrade: websocket", "Content-Length: 0", "Connection: upgrade, close")},
		{"status without a phrase (RFC 9112 4)", 299, 0, protocol.Header{}, ResponseOptions{Minor: 1},
			lines("HTTP/1.1 299 ", "Content-Length: 0")},
		{"status past the table", 999, 0, protocol.Header{}, ResponseOptions{Minor: 1},
			lines("HTTP/1.1 999 ", "Content-Length: 0")},
		{"control characters in a value become spaces (RFC 9110 5.5)", 200, 0, fields("A", "b\r\nSet-Cookie: c\x00\td\x7f"), ResponseOptions{Minor: 1},
			lines("HTTP/1.1 200 OK", "A: b  Set-Cookie: c \td ", "Content-Length: 0")},
		{"a name that is not a token is omitted with its value", 200, 0, fields("A\r\nB", "c", "", "d", "Content-Length:", "5", "E", "f"), ResponseOptions{Minor: 1},
			lines("HTTP/1.1 200 OK", "E: f", "Content-Length: 0")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := &protocol.Response{Status: tt.status}
			resp.ContentLength, resp.Header = tt.length, tt.header
			before := headerText(&resp.Header)
			got := string(AppendResponse([]byte("before"), resp, tt.opts))
			if want := "before" + tt.want; got != want {
				t.Errorf("AppendResponse = %q, want %q", got, want)
			}
			if after := headerText(&resp.Header); after != before {
				t.Errorf("after AppendResponse, the header is %q, want %q", after, before)
			}
		})
	}
}

func TestAppendResponsePanicsOnInvalidStatus(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("AppendResponse with status 0 did not panic")
		}
	}()
	AppendResponse(nil, &protocol.Response{}, ResponseOptions{})
}

func TestAppendInterim(t *testing.T) {
	h := fields("Link", "</a>", "Content-Length", "5", "Connection", "x", "A", "b\nc")
	if got, want := string(AppendInterim(nil, 103, &h)), lines("HTTP/1.1 103 Early Hints", "Link: </a>", "A: b c"); got != want {
		t.Errorf("AppendInterim = %q, want %q", got, want)
	}
	if got, want := string(AppendInterim(nil, 100, nil)), "HTTP/1.1 100 Continue\r\n\r\n"; got != want {
		t.Errorf("AppendInterim = %q, want %q", got, want)
	}
}

// TestPhrasesAreStandard verifies the phrases of some statuses, and that others have none.
func TestPhrasesAreStandard(t *testing.T) {
	for status, want := range map[int]string{100: "Continue", 200: "OK", 404: "Not Found", 413: "Content Too Large", 502: "Bad Gateway", 511: "Network Authentication Required", 499: "", 600: ""} {
		if got := reasonPhrase(status); got != want {
			t.Errorf("reasonPhrase(%d) = %q, want %q", status, got, want)
		}
	}
}

// TestHeadsRoundTrip verifies that a head that was parsed is written without changes.
func TestHeadsRoundTrip(t *testing.T) {
	head := lines("GET /shop?q=%20 HTTP/1.1", "Host: a", "b: 1", "Accept: */*", "B: 2")
	var req protocol.Request
	var f Framing
	if _, err := ParseRequest([]byte(head), largeLimits, &req, &f); err != nil {
		t.Fatal(err)
	}
	if got, err := AppendRequest(nil, &req, RequestOptions{}); err != nil || string(got) != head {
		t.Errorf("request was written as %q, %v, want %q", got, err, head)
	}
	head = lines("HTTP/1.1 200 OK", "server: s", "Set-Cookie: a", "set-cookie: b", "Content-Length: 3")
	var resp protocol.Response
	if _, err := ParseResponse([]byte(head), largeLimits, "GET", &resp, &f); err != nil {
		t.Fatal(err)
	}
	if got := string(AppendResponse(nil, &resp, ResponseOptions{Minor: 1, Server: "weft"})); got != head {
		t.Errorf("response was written as %q, want %q", got, head)
	}
}
