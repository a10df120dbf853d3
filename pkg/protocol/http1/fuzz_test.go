package http1

import (
	"math"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// FuzzParseRequest verifies that the result for a head does not depend on the split, and stays
// within the input and the limits. A parsed head can be written, and parses with the same result
// again. Its Header has no connection or framing headers.
func FuzzParseRequest(f *testing.F) {
	for _, head := range requestSamples() {
		f.Add([]byte(head), uint16(len(head)/2), uint16(8<<10), uint8(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, split, limit uint16, fieldLimit uint8) {
		// Head exceeds Line. Otherwise a head could exceed both limits, and the split would decide
		// which one the error names.
		lim := Limits{Line: int(limit), Head: int(limit)*2 + 4, Fields: int(fieldLimit)}
		want := parseRequestOnce(b, lim)
		if got := parseRequestTwice(b, min(int(split), len(b)), lim); got != want {
			t.Fatalf("cut at %d: %+v, want %+v", split, got, want)
		}
		if want.n < 0 || want.n > len(b) || lim.Line > 0 && want.n > lim.Head {
			t.Fatalf("consumed %d of %d bytes, want at most the input and the limits %v", want.n, len(b), lim)
		}
		if want.n == 0 {
			return
		}
		var req protocol.Request
		var framing Framing
		if _, err := ParseRequest(b, lim, &req, &framing); err != nil {
			t.Fatal(err)
		}
		checkEndToEnd(t, &req.Header)
		out, err := AppendRequest(nil, &req, RequestOptions{Chunked: framing.Body == Chunked, Close: !framing.KeepAlive})
		if err != nil {
			t.Fatalf("AppendRequest of a parsed request: %v", err)
		}
		if req.Authority != "" { // only an HTTP/1.0 request can have none
			checkReparsedRequest(t, out, &req, &framing)
		}
	})
}

// checkEndToEnd fails t if h has a header that the parser must remove.
func checkEndToEnd(t *testing.T, h *protocol.Header) {
	t.Helper()
	for name, value := range h.All() {
		if !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
			t.Fatalf("field %q: %q, want a token and a value without CR, LF and NUL", name, value)
		}
		for _, removed := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Transfer-Encoding", "Content-Length", "Host", "HTTP2-Settings"} {
			if strings.EqualFold(name, removed) && (name != "TE" || value != "trailers") {
				t.Fatalf("field %q is in the header, want none", name)
			}
		}
	}
}

// checkReparsedRequest fails t unless out parses as req, except for values of the connection, and
// AppendRequest writes the parsed request as out again.
func checkReparsedRequest(t *testing.T, out []byte, req *protocol.Request, framing *Framing) {
	t.Helper()
	var reparsed protocol.Request
	var reparsedFraming Framing
	n, err := ParseRequest(out, Limits{}, &reparsed, &reparsedFraming)
	if err != nil || n != len(out) {
		t.Fatalf("%q reads as %d, %v, want %d", out, n, err, len(out))
	}
	want := *req
	wantFraming := *framing
	wantFraming.Minor, wantFraming.AcceptsTrailers, wantFraming.HTTP2Settings = 1, false, "" // these concern the connection
	if want.ContentLength < 0 && framing.Body == NoBody {
		want.ContentLength = reparsed.ContentLength // for POST, AppendRequest declares 0
	}
	want.Scheme = ""                // origin-form has none
	want.Header = protocol.Header{} // without TE, which AppendRequest omits
	for name, value := range req.Header.All() {
		if name != "TE" {
			want.Header.Add(name, value)
		}
	}
	if got, want := requestText(&reparsed, &reparsedFraming), requestText(&want, &wantFraming); got != want {
		t.Fatalf("%q reads as\n%s, want\n%s", out, got, want)
	}
	rewritten, err := AppendRequest(nil, &reparsed, RequestOptions{Chunked: reparsedFraming.Body == Chunked, Close: !reparsedFraming.KeepAlive})
	if err != nil || string(rewritten) != string(out) {
		t.Fatalf("written again: %q, %v, want %q", rewritten, err, out)
	}
}

// FuzzParseResponse verifies for responses what FuzzParseRequest verifies for requests.
func FuzzParseResponse(f *testing.F) {
	for i, head := range responseSamples() {
		f.Add([]byte(head), uint8(i), uint16(len(head)/2), uint16(8<<10), uint8(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, methodIndex uint8, split, limit uint16, fieldLimit uint8) {
		lim := Limits{Line: int(limit), Head: int(limit)*2 + 4, Fields: int(fieldLimit)}
		method := [...]string{"GET", "HEAD", "CONNECT"}[methodIndex%3]
		result := parseResponseOnce(b, method, lim)
		if got := parseResponseTwice(b, min(int(split), len(b)), method, lim); got != result {
			t.Fatalf("cut at %d: %+v, want %+v", split, got, result)
		}
		if result.n < 0 || result.n > len(b) || lim.Line > 0 && result.n > lim.Head {
			t.Fatalf("consumed %d of %d bytes, want at most the input and the limits %v", result.n, len(b), lim)
		}
		if result.n == 0 {
			return
		}
		var resp protocol.Response
		var framing Framing
		if _, err := ParseResponse(b, lim, method, &resp, &framing); err != nil {
			t.Fatal(err)
		}
		checkEndToEnd(t, &resp.Header)
		if (method == "HEAD" || resp.Status < 200 || resp.Status == 204 || resp.Status == 304) && framing.Body != NoBody {
			t.Fatalf("%d to %s has a body of kind %d, want none", resp.Status, method, framing.Body)
		}
		o := ResponseOptions{Chunked: framing.Body == Chunked, Close: !framing.KeepAlive, BecomesTunnel: framing.BecomesTunnel, Minor: 1}
		out := AppendResponse(nil, &resp, o)
		var reparsed protocol.Response
		var reparsedFraming Framing
		if n, err := ParseResponse(out, Limits{}, method, &reparsed, &reparsedFraming); err != nil || n != len(out) {
			t.Fatalf("%q reads as %d, %v, want %d", out, n, err, len(out))
		}
		if got, want := headerText(&reparsed.Header), headerText(&resp.Header); got != want {
			t.Fatalf("%q has the fields %q, want %q", out, got, want)
		}
		if reparsed.Status != resp.Status || reparsedFraming.Body != framing.Body || reparsedFraming.Length != framing.Length || reparsedFraming.Interim != framing.Interim || reparsedFraming.BecomesTunnel != framing.BecomesTunnel {
			t.Fatalf("%q reads as %d %+v, want %d %+v", out, reparsed.Status, reparsedFraming, resp.Status, framing)
		}
	})
}

// FuzzChunkReader verifies that the result for a body does not depend on the split, stays within
// the input, and is the same after the decoded body was encoded again.
func FuzzChunkReader(f *testing.F) {
	for _, coded := range codingSamples() {
		f.Add([]byte(coded), uint8(3), uint16(8<<10), uint8(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint8, limit uint16, fieldLimit uint8) {
		lim := Limits{Head: int(limit), Fields: int(fieldLimit)}
		result := decode(b, math.MaxInt, lim)
		if got := decode(b, int(size)+1, lim); !sameOutcome(got, result) {
			t.Fatalf("in pieces of %d: %+v, want %+v", int(size)+1, got, result)
		}
		if result.n > len(b) || len(result.content) > result.n {
			t.Fatalf("consumed %d bytes and decoded %d, want at most the %d bytes of the input", result.n, len(result.content), len(b))
		}
		if !result.done {
			return
		}
		var trailer protocol.Header
		for line := range strings.SplitSeq(strings.TrimSuffix(result.trailer, "\n"), "\n") {
			if name, value, found := strings.Cut(line, ": "); found {
				trailer.Add(name, value)
			}
		}
		var coded []byte
		if result.content != "" {
			coded = AppendChunkHead(coded, len(result.content))
			coded = append(append(coded, result.content...), "\r\n"...)
		}
		coded = AppendLastChunk(coded, &trailer)
		want := decodeResult{content: result.content, trailer: result.trailer, n: len(coded), done: true}
		if got := decode(coded, math.MaxInt, Limits{}); got != want {
			t.Fatalf("coded again: %+v, want %+v", got, want)
		}
	})
}

// sameOutcome reports whether two results for one input are equal. If both have an error, it
// compares only the errors, because the split may change how much of a chunk is decoded before the
// error.
func sameOutcome(a, b decodeResult) bool {
	if a.err != "" && b.err != "" {
		return a.err == b.err
	}
	return a == b
}
