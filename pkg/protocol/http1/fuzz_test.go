package http1

import (
	"math"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// FuzzParseRequest checks that a head parses equally for every split, within the bytes given and
// the limits. A parsed head can be written and parses equally again. Its Header has no connection
// or framing headers.
func FuzzParseRequest(f *testing.F) {
	for _, head := range requestSamples() {
		f.Add([]byte(head), uint16(len(head)/2), uint16(8<<10), uint8(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut, limit uint16, fieldLimit uint8) {
		// Head exceeds Line. Otherwise a head could exceed both limits, and the split would decide
		// which one the error names.
		lim := Limits{Line: int(limit), Head: int(limit)*2 + 4, Fields: int(fieldLimit)}
		whole := parseWhole(b, lim)
		if got := parsePieces(b, min(int(cut), len(b)), lim); got != whole {
			t.Fatalf("cut at %d: %+v, want %+v", cut, got, whole)
		}
		if whole.n < 0 || whole.n > len(b) || lim.Line > 0 && whole.n > lim.Head {
			t.Fatalf("consumed %d of %d bytes, limits %v", whole.n, len(b), lim)
		}
		if whole.n == 0 {
			return
		}
		var req protocol.Request
		var fr Framing
		if _, err := ParseRequest(b, lim, &req, &fr); err != nil {
			t.Fatal(err)
		}
		checkEndToEnd(t, &req.Header)
		out, err := AppendRequest(nil, &req, RequestOptions{Chunked: fr.Body == Chunked, Close: !fr.KeepAlive})
		if err != nil {
			t.Fatalf("what was parsed cannot be written: %v", err)
		}
		if req.Authority != "" { // only an HTTP/1.0 request can have none
			checkRequestAgain(t, out, &req, &fr)
		}
	})
}

// checkEndToEnd fails t if h has a header that the parser must remove.
func checkEndToEnd(t *testing.T, h *protocol.Header) {
	t.Helper()
	for name, value := range h.All() {
		if !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
			t.Fatalf("field %q: %q", name, value)
		}
		for _, removed := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Transfer-Encoding", "Content-Length", "Host", "HTTP2-Settings"} {
			if strings.EqualFold(name, removed) && (name != "TE" || value != "trailers") {
				t.Fatalf("field %q is in the header", name)
			}
		}
	}
}

// checkRequestAgain fails t unless out parses as req, in the version that is written, and is
// written equally again.
func checkRequestAgain(t *testing.T, out []byte, req *protocol.Request, fr *Framing) {
	t.Helper()
	var again protocol.Request
	var frAgain Framing
	n, err := ParseRequest(out, Limits{}, &again, &frAgain)
	if err != nil || n != len(out) {
		t.Fatalf("%q reads as %d, %v, want %d", out, n, err, len(out))
	}
	want := *req
	wantFraming := *fr
	wantFraming.Minor, wantFraming.Trailers, wantFraming.HTTP2Settings = 1, false, "" // these concern the connection
	if want.ContentLength < 0 && fr.Body == NoBody {
		want.ContentLength = again.ContentLength // for POST, AppendRequest declares 0
	}
	want.Scheme = ""                // origin-form has none
	want.Header = protocol.Header{} // without TE, which AppendRequest omits
	for name, value := range req.Header.All() {
		if name != "TE" {
			want.Header.Add(name, value)
		}
	}
	if got, want := requestText(&again, &frAgain), requestText(&want, &wantFraming); got != want {
		t.Fatalf("%q reads as\n%s, want\n%s", out, got, want)
	}
	third, err := AppendRequest(nil, &again, RequestOptions{Chunked: frAgain.Body == Chunked, Close: !frAgain.KeepAlive})
	if err != nil || string(third) != string(out) {
		t.Fatalf("written again: %q, %v, want %q", third, err, out)
	}
}

// FuzzParseResponse is FuzzParseRequest for responses.
func FuzzParseResponse(f *testing.F) {
	for i, head := range responseSamples() {
		f.Add([]byte(head), uint8(i), uint16(len(head)/2), uint16(8<<10), uint8(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, kind uint8, cut, limit uint16, fieldLimit uint8) {
		lim := Limits{Line: int(limit), Head: int(limit)*2 + 4, Fields: int(fieldLimit)}
		method := [...]string{"GET", "HEAD", "CONNECT"}[kind%3]
		whole := answerWhole(b, method, lim)
		if got := answerPieces(b, min(int(cut), len(b)), method, lim); got != whole {
			t.Fatalf("cut at %d: %+v, want %+v", cut, got, whole)
		}
		if whole.n < 0 || whole.n > len(b) || lim.Line > 0 && whole.n > lim.Head {
			t.Fatalf("consumed %d of %d bytes, limits %v", whole.n, len(b), lim)
		}
		if whole.n == 0 {
			return
		}
		var resp protocol.Response
		var fr Framing
		if _, err := ParseResponse(b, lim, method, &resp, &fr); err != nil {
			t.Fatal(err)
		}
		checkEndToEnd(t, &resp.Header)
		if (method == "HEAD" || resp.Status < 200 || resp.Status == 204 || resp.Status == 304) && fr.Body != NoBody {
			t.Fatalf("%d to %s has a body of kind %d", resp.Status, method, fr.Body)
		}
		o := ResponseOptions{Chunked: fr.Body == Chunked, Close: !fr.KeepAlive, Tunnel: fr.Upgrade, Minor: 1}
		out := AppendResponse(nil, &resp, o)
		var again protocol.Response
		var frAgain Framing
		if n, err := ParseResponse(out, Limits{}, method, &again, &frAgain); err != nil || n != len(out) {
			t.Fatalf("%q reads as %d, %v, want %d", out, n, err, len(out))
		}
		if got, want := headerText(&again.Header), headerText(&resp.Header); got != want {
			t.Fatalf("%q has the fields %q, want %q", out, got, want)
		}
		if again.Status != resp.Status || frAgain.Body != fr.Body || frAgain.Length != fr.Length || frAgain.Interim != fr.Interim || frAgain.Upgrade != fr.Upgrade {
			t.Fatalf("%q reads as %d %+v, want %d %+v", out, again.Status, frAgain, resp.Status, fr)
		}
	})
}

// FuzzChunkReader checks that a body decodes equally for every split, never past its end, and
// decodes equally after it is encoded again.
func FuzzChunkReader(f *testing.F) {
	for _, coded := range codingSamples() {
		f.Add([]byte(coded), uint8(3), uint16(8<<10), uint8(100))
	}
	f.Fuzz(func(t *testing.T, b []byte, piece uint8, limit uint16, fieldLimit uint8) {
		lim := Limits{Head: int(limit), Fields: int(fieldLimit)}
		whole := decode(b, math.MaxInt, lim)
		if got := decode(b, int(piece)+1, lim); !sameContent(got, whole) {
			t.Fatalf("in pieces of %d: %+v, want %+v", int(piece)+1, got, whole)
		}
		if whole.n > len(b) || len(whole.content) > whole.n {
			t.Fatalf("consumed %d and gave %d of %d bytes", whole.n, len(whole.content), len(b))
		}
		if !whole.done {
			return
		}
		var trailer protocol.Header
		for line := range strings.SplitSeq(strings.TrimSuffix(whole.trailer, "\n"), "\n") {
			if name, value, found := strings.Cut(line, ": "); found {
				trailer.Add(name, value)
			}
		}
		var coded []byte
		if whole.content != "" {
			coded = AppendChunkHead(coded, len(whole.content))
			coded = append(append(coded, whole.content...), "\r\n"...)
		}
		coded = AppendLastChunk(coded, &trailer)
		want := decoded{content: whole.content, trailer: whole.trailer, n: len(coded), done: true}
		if got := decode(coded, math.MaxInt, Limits{}); got != want {
			t.Fatalf("coded again: %+v, want %+v", got, want)
		}
	})
}

// sameContent compares two ways of reading one input. The split may change how much of a chunk
// precedes an error, and the excess of extensions in between, but not the outcome.
func sameContent(a, b decoded) bool {
	if a.err != "" && b.err != "" {
		return a.err == b.err
	}
	return a == b
}
