package http1

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

type decodeResult struct {
	content, trailer string
	n                int // bytes consumed
	done             bool
	err              string
}

// decode passes coded to a ChunkReader in pieces of size bytes, as an engine does: bytes that were
// not consumed precede the next piece.
func decode(coded []byte, size int, lim Limits) (d decodeResult) {
	var c ChunkReader
	var trailer protocol.Header
	var body []byte
	defer func() { d.content, d.trailer = string(body), headerText(&trailer) }()
	for end := 0; end < len(coded); {
		end = min(end+size, len(coded))
		for {
			n, data, done, err := c.Next(coded[d.n:end:end], lim, &trailer)
			d.n += n
			body = append(body, data...)
			if err != nil || done {
				d.done, d.err = done, errorText(err)
				return d
			}
			if n == 0 {
				break
			}
		}
	}
	return d
}

// coding is a chunked body and its decoded form.
type coding struct{ name, coded, content, trailer string }

func codings() []coding {
	return []coding{
		{"no content (RFC 9112 7.1)", "0\r\n\r\n", "", ""},
		{"chunks (RFC 9112 7.1)", "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", "abc0123456789", ""},
		{"sizes in either case", "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", ""},
		{"leading zeros (RFC 9112 7.1: 1*HEXDIG)", "0003\r\nabc\r\n00\r\n\r\n", "abc", ""},
		{"content that looks like the coding", "9\r\n\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n0\r\n\r\n\r\n", ""},
		{"extensions are skipped (RFC 9112 7.1.1)", "3;a=b;c=\"d;e\"\r\nabc\r\n0;x\r\n\r\n", "abc", ""},
		{"blanks around an extension (RFC 9112 7.1.1)", "3 \t; a = b \r\nabc\r\n0\r\n\r\n", "abc", ""},
		{"trailer section (RFC 9112 7.1.2)", "3\r\nabc\r\n0\r\nA: b\r\nc:  d \r\nA: e\r\n\r\n", "abc", "A: b\nc: d\nA: e\n"},
		{"framing, routing, authentication and content fields are dropped from a trailer section (RFC 9110 6.5.1)",
			"0\r\nContent-Length: 1\r\ntransfer-encoding: chunked\r\nHost: a\r\nConnection: x\r\nTE: x\r\nUpgrade: x\r\nTrailer: x\r\nExpect: x\r\n" +
				"Authorization: x\r\nCookie: x\r\nset-cookie: x\r\nContent-Type: x\r\nContent-Encoding: x\r\nX-Forwarded-For: x\r\nForwarded: x\r\n" +
				"Cache-Control: x\r\nRange: x\r\nDate: x\r\nServer-Timing: kept\r\nX-Forwarded-: kept\r\n\r\n",
			"", "Server-Timing: kept\nX-Forwarded-: kept\n"},
	}
}

func TestChunkReaderDecodes(t *testing.T) {
	for _, tt := range codings() {
		t.Run(tt.name, func(t *testing.T) {
			want := decodeResult{content: tt.content, trailer: tt.trailer, n: len(tt.coded), done: true}
			if got := decode([]byte(tt.coded+"next"), math.MaxInt, largeLimits); got != want {
				t.Errorf("decoding %q =\n%+v, want\n%+v", tt.coded, got, want)
			}
		})
	}
}

// TestConnectionOptionsAreDroppedFromTrailers verifies that trailer fields that Connection names
// are dropped (RFC 9110 7.6.1).
func TestConnectionOptionsAreDroppedFromTrailers(t *testing.T) {
	head := []byte(postHead("Connection: x-sum, keep-alive", "Transfer-Encoding: chunked", "connection: B"))
	var req protocol.Request
	var f Framing
	if n, err := ParseRequest(head, largeLimits, &req, &f); n != len(head) || err != nil {
		t.Fatalf("ParseRequest = %d, %v; want %d", n, err, len(head))
	}
	c := ChunkReader{ConnectionOptions: f.ConnectionOptions}
	coded := []byte("0\r\nX-SUM: 1\r\nA: 1\r\nb: 1\r\n\r\n")
	for n := 0; n < len(coded); {
		m, _, _, err := c.Next(coded[n:], largeLimits, &req.Trailer)
		if m == 0 || err != nil {
			t.Fatalf("Next = %d, %v; want progress", m, err)
		}
		n += m
	}
	if got, want := headerText(&req.Trailer), "A: 1\n"; got != want {
		t.Errorf("trailer fields %q, want %q", got, want)
	}
	if c.Reset(); c.ConnectionOptions != nil {
		t.Error("Reset did not clear ConnectionOptions")
	}
}

// invalidCoding is a malformed chunked body and a part of the error.
type invalidCoding struct{ name, coded, rule string }

func invalidCodings() []invalidCoding {
	return []invalidCoding{
		{"no size (RFC 9112 7.1)", "\r\nabc", "not a hexadecimal number"},
		{"size with 0x (RFC 9112 7.1)", "0x3\r\nabc\r\n", "not a hexadecimal number"},
		{"size with a separator", "1_0\r\n", "not a hexadecimal number"},
		{"size with a sign", "+3\r\nabc\r\n", "not a hexadecimal number"},
		{"negative size", "-3\r\nabc\r\n", "not a hexadecimal number"},
		{"size that is not a number", "g\r\n", "not a hexadecimal number"},
		{"size that is listed", "3,3\r\nabc\r\n", "not a hexadecimal number"},
		{"space before the size", " 3\r\nabc\r\n", "not a hexadecimal number"},
		{"tab before the size", "\t3\r\nabc\r\n", "not a hexadecimal number"},
		{"space after the size (RFC 9112 7.1)", "3 \r\nabc\r\n", "whitespace after the chunk size"},
		{"space within the size", "1 0\r\n", "whitespace after the chunk size"},
		{"NUL after the size", "3\x00\r\nabc\r\n", "not a hexadecimal number"},
		{"size of 2^63 (RFC 9112 7.1)", "8000000000000000\r\n", "overflows"},
		{"size of 2^64", "10000000000000000\r\n", "overflows"},
		{"size of 2^64+3, which wraps to 3", "10000000000000003\r\nabc\r\n", "overflows"},
		{"leading zeros without end", strings.Repeat("0", maxSizeDigits+1), "overflows"},
		{"bare LF after the size (RFC 9112 2.2)", "3\nabc\r\n", "bare LF"},
		{"bare CR after the size", "3\rabc\r\n", "bare CR"},
		{"bare LF in an extension (RFC 9112 7.1.1)", "3;a\nabc\r\n", "bare LF"},
		{"bare CR in an extension", "3;a\rb\r\nabc\r\n", "bare CR"},
		{"NUL in an extension", "3;a\x00\r\nabc\r\n", "control character"},
		{"extension without a name (RFC 9112 7.1.1)", "3;\r\nabc\r\n", "without a name"},
		{"bare LF after the content (RFC 9112 7.1)", "3\r\nabc\n0\r\n\r\n", "longer than its size"},
		{"bare CR after the content", "3\r\nabc\r0\r\n\r\n", "bare CR"},
		{"content longer than its size (RFC 9112 7.1)", "3\r\nabcd\r\n0\r\n\r\n", "longer than its size"},
		{"bare LF as the end (RFC 9112 7.1.2)", "0\r\n\n", "bare LF"},
		{"bare LF in the trailer section", "0\r\nA: b\n\r\n", "bare LF"},
		{"bare CR in the trailer section", "0\r\nA: b\rc\r\n\r\n", "bare CR"},
		{"NUL in the trailer section", "0\r\nA: b\x00\r\n\r\n", "control character"},
		{"space before the colon in the trailer section", "0\r\nA : b\r\n\r\n", "before its colon"},
		{"line folding in the trailer section", "0\r\nA: b\r\n c\r\n\r\n", "line folding"},
		{"a request after the last chunk", "0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "whitespace in a field name"},
	}
}

func TestChunkReaderRejects(t *testing.T) {
	for _, tt := range invalidCodings() {
		t.Run(tt.name, func(t *testing.T) {
			got := decode([]byte(tt.coded), math.MaxInt, largeLimits)
			if got.done || !strings.Contains(got.err, tt.rule) {
				t.Errorf("decoding %q = %+v, want an error of %q", tt.coded, got, tt.rule)
			}
			if strings.HasPrefix(tt.name, "space before the colon") {
				return // a response may have it: TestSpaceBeforeColonInResponse
			}
			var c ChunkReader
			c.Reason = protocol.UpstreamMalformed
			var err error
			for rest := tt.coded; err == nil; {
				var n int
				n, _, _, err = c.Next([]byte(rest), largeLimits, nil)
				rest = rest[n:]
			}
			checkFault(t, tt.coded, err, protocol.UpstreamMalformed, tt.rule)
		})
	}
}

func TestChunkReaderLimits(t *testing.T) {
	trailer := "A: b\r\nC: d\r\n\r\n"
	tests := []struct {
		name   string
		lim    Limits
		coded  string
		done   bool
		reason string // words of the error; "" for none
	}{
		{"trailer section at its limit", Limits{Head: len(trailer)}, "0\r\n" + trailer, true, ""},
		{"trailer section above its limit", Limits{Head: len(trailer) - 1}, "0\r\n" + trailer, false, "trailer section exceeds"},
		{"trailer section above its limit, incomplete", Limits{Head: 8}, "0\r\nA: bcdef", false, "trailer section exceeds"},
		{"trailer fields at their limit", Limits{Fields: 2}, "0\r\n" + trailer, true, ""},
		{"trailer fields above their limit", Limits{Fields: 1}, "0\r\n" + trailer, false, "trailer section exceeds"},
		{"extension above its limit", Limits{Head: 10}, "3;" + strings.Repeat("a", 20), false, "extensions exceed"},
		{"extensions larger than the content", Limits{Head: 10}, strings.Repeat("1;abcd\r\nx\r\n", 4), false, "extensions exceed"},
		{"extensions smaller than the content", Limits{Head: 10}, strings.Repeat("8;abcd\r\nxxxxxxxx\r\n", 50) + "0\r\n\r\n", true, ""},
		{"content is not limited", Limits{Line: 1, Head: 2, Fields: 1}, "ff\r\n" + strings.Repeat("x", 255) + "\r\n0\r\n\r\n", true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, math.MaxInt} {
				got := decode([]byte(tt.coded), size, tt.lim)
				if got.done != tt.done || (got.err == "") != (tt.reason == "") || !strings.Contains(got.err, tt.reason) {
					t.Errorf("decoding %q in pieces of %d = %+v, want done %t, error of %q", tt.coded, size, got, tt.done, tt.reason)
				}
			}
		})
	}
}

func TestChunkReaderLimitReason(t *testing.T) {
	var c ChunkReader
	_, _, _, err := c.Next([]byte("3;"+strings.Repeat("a", 20)), Limits{Head: 10}, nil)
	checkFault(t, "a long extension", err, protocol.HeaderTooLarge, "extensions")
}

// codingSamples returns all bodies of the tables.
func codingSamples() (samples []string) {
	for _, c := range codings() {
		samples = append(samples, c.coded)
	}
	for _, c := range invalidCodings() {
		samples = append(samples, c.coded)
	}
	return samples
}

// TestChunkReaderInPieces verifies that the position of a split does not affect the result, and
// that truncated input is not complete.
func TestChunkReaderInPieces(t *testing.T) {
	for _, coded := range codingSamples() {
		want := decode([]byte(coded), math.MaxInt, largeLimits)
		for size := 1; size < len(coded); size++ {
			if got := decode([]byte(coded), size, largeLimits); got != want {
				t.Errorf("decoding %q in pieces of %d =\n%+v, want\n%+v", coded, size, got, want)
			}
		}
		for n := range len(coded) {
			if got := decode([]byte(coded[:n]), math.MaxInt, largeLimits); got.done {
				t.Errorf("decoding %q, which is truncated: done = true, want false", coded[:n])
			}
		}
	}
}

func TestChunkReaderStaysDone(t *testing.T) {
	var c ChunkReader
	if n, _, done, err := c.Next([]byte("0\r\n\r\n"), largeLimits, nil); n != 5 || !done || err != nil {
		t.Fatalf("Next of the last chunk = %d, %t, %v, want 5, true, nil", n, done, err)
	}
	if n, data, done, err := c.Next([]byte("3\r\nabc"), largeLimits, nil); n != 0 || len(data) > 0 || !done || err != nil {
		t.Errorf("Next when done = %d, %q, %t, %v, want 0, none, true, nil", n, data, done, err)
	}
	c.Reset()
	if n, data, done, err := c.Next([]byte("3\r\nabc"), largeLimits, nil); n != 6 || string(data) != "abc" || done || err != nil {
		t.Errorf("Next after Reset = %d, %q, %t, %v, want 6, abc, false, nil", n, data, done, err)
	}
}

func TestChunkReaderReturnsViews(t *testing.T) {
	b := []byte("3\r\nabc\r\n")
	var c ChunkReader
	_, data, _, _ := c.Next(b, largeLimits, nil)
	if len(data) != 3 || &data[0] != &b[3] {
		t.Errorf("Next copied the content %q", data)
	}
}

func TestAppendChunkHead(t *testing.T) {
	for _, size := range []int{1, 9, 10, 15, 16, 255, 256, 4096, 65535, 1 << 30, math.MaxInt64} {
		if got, want := string(AppendChunkHead([]byte("x"), size)), fmt.Sprintf("x%x\r\n", size); got != want {
			t.Errorf("AppendChunkHead(%d) = %q, want %q", size, got, want)
		}
	}
}

func TestAppendLastChunk(t *testing.T) {
	if got := string(AppendLastChunk(nil, nil)); got != "0\r\n\r\n" {
		t.Errorf("AppendLastChunk without a trailer = %q, want \"0\\r\\n\\r\\n\"", got)
	}
	var trailer protocol.Header
	trailer.Add("Grpc-Status", "0")
	trailer.Add("Content-Length", "5")
	trailer.Add("Bad Name", "x")
	trailer.Add("X-Split", "a\r\nSet-Cookie: b")
	want := "0\r\nGrpc-Status: 0\r\nX-Split: a  Set-Cookie: b\r\n\r\n"
	if got := string(AppendLastChunk(nil, &trailer)); got != want {
		t.Errorf("AppendLastChunk = %q, want %q", got, want)
	}
}

func TestEncodedChunksAreDecoded(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789\r\n"), 1000)
	var trailer protocol.Header
	trailer.Add("A", "b")
	for _, size := range []int{1, 7, 16, 4096, len(content)} {
		var coded []byte
		for rest := content; len(rest) > 0; {
			n := min(size, len(rest))
			coded = AppendChunkHead(coded, n)
			coded = append(append(coded, rest[:n]...), "\r\n"...)
			rest = rest[n:]
		}
		coded = AppendLastChunk(coded, &trailer)
		want := decodeResult{content: string(content), trailer: "A: b\n", n: len(coded), done: true}
		if got := decode(coded, 333, largeLimits); got != want {
			t.Errorf("chunks of %d bytes: the decoded body differs from the encoded one", size)
		}
	}
}
