package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestTEIsReducedToTrailers verifies that the parser reduces a client's TE to "trailers", and that
// AppendRequest omits it (RFC 9110 10.1.4).
func TestTEIsReducedToTrailers(t *testing.T) {
	for head, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\nA: b\r\n\r\n":              "trailers",
		"GET / HTTP/1.1\r\nHost: a\r\nte: trailers\r\n\r\n":                                        "trailers",
		"GET / HTTP/1.1\r\nHost: a\r\nTE: gzip;q=0.5, Trailers\r\nTE: trailers\r\n\r\n":            "trailers",
		"GET / HTTP/1.1\r\nHost: a\r\nTE: gzip\r\nConnection: TE\r\n\r\n":                          "",
		"GET / HTTP/1.1\r\nHost: a\r\nTE:\r\n\r\n":                                                 "",
		"GET / HTTP/1.0\r\nHost: a\r\nTE: trailers\r\n\r\n":                                        "",
		"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, x-gone\r\nX-Gone: 1\r\n\r\n": "trailers",
	} {
		var req protocol.Request
		var f Framing
		if _, err := ParseRequest([]byte(head), Limits{}, &req, &f); err != nil {
			t.Fatalf("ParseRequest(%q): %v", head, err)
		}
		var got []string
		for name, value := range req.Header.All() {
			if protocol.EqualFold(name, "te") {
				got = append(got, value)
			}
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: TE of the request = %q, want %q", head, got, want)
		}
		if f.AcceptsTrailers != (want != "") {
			t.Errorf("%q: AcceptsTrailers = %v, want %v", head, f.AcceptsTrailers, want != "")
		}
		out, err := AppendRequest(nil, &req, RequestOptions{})
		if err != nil || strings.Contains(strings.ToLower(string(out)), "\r\nte:") {
			t.Errorf("%q is sent as %q, %v; want no TE", head, out, err)
		}
	}
}

func TestResponseTEIsDropped(t *testing.T) {
	var resp protocol.Response
	var f Framing
	if _, err := ParseResponse([]byte("HTTP/1.1 200 OK\r\nTE: trailers\r\nContent-Length: 0\r\n\r\n"), Limits{}, "GET", &resp, &f); err != nil {
		t.Fatal(err)
	}
	if v, ok := resp.Header.Lookup("te"); ok {
		t.Errorf("the response has TE %q, want none", v)
	}
}
