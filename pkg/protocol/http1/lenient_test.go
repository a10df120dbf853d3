package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestEmptyLinesBeforeRequest verifies that empty lines before a request are skipped (RFC 9112
// 2.2), for every split, and that headers that Connection names are still dropped.
func TestEmptyLinesBeforeRequest(t *testing.T) {
	for _, count := range []int{0, 1, 2, maxEmptyLines} {
		head := strings.Repeat("\r\n", count) + "GET /a HTTP/1.1\r\nHost: h\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\n"
		var req protocol.Request
		var f Framing
		var scanner Scanner
		for n := range len(head) {
			if got, err := ParseRequest([]byte(head[:n]), Limits{}, &req, &f); got != 0 || err != nil {
				t.Fatalf("%d empty lines: ParseRequest of the first %d bytes = %d, %v; want 0, nil", count, n, got, err)
			}
			if scanner.Ready([]byte(head[:n]), Limits{}) {
				t.Fatalf("%d empty lines: Ready = true after %d bytes of an incomplete head, want false", count, n)
			}
		}
		if !scanner.Ready([]byte(head), Limits{}) {
			t.Errorf("%d empty lines: Ready = false for a complete head, want true", count)
		}
		req = protocol.Request{}
		n, err := ParseRequest([]byte(head), Limits{}, &req, &f)
		if n != len(head) || err != nil || req.Path != "/a" || req.Header.Get("X-End") != "2" || req.Header.Get("X-Hop") != "" {
			t.Errorf("%d empty lines: ParseRequest = %d, %v, path %q, X-Hop %q; want the complete head without X-Hop", count, n, err, req.Path, req.Header.Get("X-Hop"))
		}
	}
	var scanner Scanner
	if !scanner.Ready([]byte(strings.Repeat("\r\n", maxEmptyLines+1)), Limits{}) {
		t.Error("Ready = false with too many empty lines, want true")
	}
}

// TestHigherMinorVersionIsHTTP11 verifies that higher minor versions are parsed as 1.1 (RFC 9110
// 2.5).
func TestHigherMinorVersionIsHTTP11(t *testing.T) {
	for _, version := range []string{"HTTP/1.2", "HTTP/1.9"} {
		var req protocol.Request
		var resp protocol.Response
		var f Framing
		if n, err := ParseRequest([]byte("GET / "+version+"\r\nHost: h\r\n\r\n"), Limits{}, &req, &f); n == 0 || err != nil || f.Minor != 1 || !f.KeepAlive {
			t.Errorf("a request in %s: %d, %v, %+v; want 1.1", version, n, err, f)
		}
		if _, err := ParseRequest([]byte("GET / "+version+"\r\n\r\n"), Limits{}, &req, &f); err == nil {
			t.Errorf("a request in %s without Host was accepted, want an error", version)
		}
		if n, err := ParseResponse([]byte(version+" 200 OK\r\nContent-Length: 0\r\n\r\n"), Limits{}, "GET", &resp, &f); n == 0 || err != nil || f.Minor != 1 {
			t.Errorf("a response in %s: %d, %v, %+v; want 1.1", version, n, err, f)
		}
	}
}

// TestSpaceBeforeColonInResponse verifies that a space before a colon is removed from responses
// (RFC 9112 5.1), and that Transfer-Encoding and Connection with such a space take effect.
func TestSpaceBeforeColonInResponse(t *testing.T) {
	for _, space := range []string{" ", "\t", "  \t"} {
		head := "HTTP/1.1 200 OK\r\nX-A" + space + ": b\r\nTransfer-Encoding" + space + ": chunked\r\nConnection" + space + ": X-Hop\r\nX-Hop" + space + ": c\r\n\r\n"
		var resp protocol.Response
		var f Framing
		for n := range len(head) {
			if got, err := ParseResponse([]byte(head[:n]), Limits{}, "GET", &resp, &f); got != 0 || err != nil {
				t.Fatalf("ParseResponse of %q = %d, %v; want 0, nil", head[:n], got, err)
			}
		}
		resp = protocol.Response{}
		n, err := ParseResponse([]byte(head), Limits{}, "GET", &resp, &f)
		if n != len(head) || err != nil || resp.Header.Get("X-A") != "b" || resp.Header.Len() != 1 || f.Body != Chunked {
			t.Errorf("ParseResponse(%q) = %d, %v, %d fields, framing %+v; want the field X-A and a chunked body", head, n, err, resp.Header.Len(), f)
		}
		var trailer protocol.Header
		c := ChunkReader{Reason: protocol.UpstreamMalformed}
		if _, _, done, err := c.Next([]byte("0\r\nX-T"+space+": d\r\n\r\n"), Limits{}, &trailer); !done || err != nil || trailer.Get("X-T") != "d" {
			t.Errorf("trailer section: done = %v, %v, X-T %q; want true, nil, \"d\"", done, err, trailer.Get("X-T"))
		}
	}
	if _, err := ParseResponse([]byte("HTTP/1.1 200 OK\r\nX A: b\r\n\r\n"), Limits{}, "GET", new(protocol.Response), new(Framing)); err == nil {
		t.Error("a space within a name was accepted, want an error")
	}
}

// TestAnyThreeDigitStatusIsForwarded verifies that a status above 599 is parsed and written (RFC
// 9110 15).
func TestAnyThreeDigitStatusIsForwarded(t *testing.T) {
	for _, status := range []string{"600", "999"} {
		var resp protocol.Response
		var f Framing
		n, err := ParseResponse([]byte("HTTP/1.1 "+status+" x\r\nContent-Length: 2\r\n\r\n"), Limits{}, "GET", &resp, &f)
		if n == 0 || err != nil || f.Body != Length {
			t.Fatalf("status %s: ParseResponse = %d, %v, framing %+v; want a body with a length", status, n, err, f)
		}
		if got := string(AppendResponse(nil, &resp, ResponseOptions{Minor: 1})); !strings.HasPrefix(got, "HTTP/1.1 "+status+" ") {
			t.Errorf("status %s is written as %q, want the same status", status, got)
		}
	}
}
