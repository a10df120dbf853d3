package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// requestSamples returns all heads of the tables, valid and not, and some truncated ones: the split
// tests and the fuzz targets start from them.
func requestSamples() []string {
	samples := []string{wrkHead, browserHead, "", "\r", "GET / HTTP/1.1\r\nHost: a\r\nX", get() + get()}
	for _, r := range requestReadings() {
		samples = append(samples, r.head)
	}
	for _, r := range requestRefusals() {
		samples = append(samples, r.head)
	}
	return samples
}

// responseSamples is requestSamples for responses.
func responseSamples() []string {
	samples := []string{nginxHead, "", "HTTP/1.1 200 O", ok() + ok()}
	for _, r := range responseReadings() {
		samples = append(samples, r.head)
	}
	for _, r := range responseRefusals() {
		samples = append(samples, r.head)
	}
	return samples
}

// The position of a split must not matter.
func TestHeadsInPieces(t *testing.T) {
	narrow := Limits{Line: 50, Head: 90, Fields: 4}
	for _, lim := range []Limits{wide, narrow} {
		for _, head := range requestSamples() {
			whole := parseWhole([]byte(head), lim)
			for first := range len(head) {
				if got := parsePieces([]byte(head), first, lim); got != whole {
					t.Errorf("request %q cut at %d, limits %v =\n%+v, want\n%+v", head, first, lim, got, whole)
				}
			}
		}
		for _, head := range responseSamples() {
			whole := answerWhole([]byte(head), "GET", lim)
			for first := range len(head) {
				if got := answerPieces([]byte(head), first, "GET", lim); got != whole {
					t.Errorf("response %q cut at %d, limits %v =\n%+v, want\n%+v", head, first, lim, got, whole)
				}
			}
		}
	}
}

// A truncated head is incomplete: never an error, never complete.
func TestTruncatedHeadsAreIncomplete(t *testing.T) {
	for _, head := range []string{wrkHead, browserHead, "\r\n" + get("A: b")} {
		for cut := range len(head) {
			if got := parseWhole([]byte(head[:cut]), wide); got != (outcome{}) {
				t.Errorf("request %q: %+v, want incomplete", head[:cut], got)
			}
		}
	}
	for cut := range len(nginxHead) {
		if got := answerWhole([]byte(nginxHead[:cut]), "GET", wide); got != (outcome{}) {
			t.Errorf("response %q: %+v, want incomplete", nginxHead[:cut], got)
		}
	}
}

// A Scanner is ready no later than the parser would notice, for all that the parser can detect by
// the end of the head.
func TestScannerIsReadyWhenHeadIsComplete(t *testing.T) {
	narrow := Limits{Line: 50, Head: 90, Fields: 4}
	for _, lim := range []Limits{wide, narrow, {}} {
		for _, head := range requestSamples() {
			var s Scanner
			for have := 1; have <= len(head); have++ {
				ready := s.Ready([]byte(head[:have]), lim)
				got := parseWhole([]byte(head[:have]), lim)
				limited := strings.Contains(got.err, "limit") || strings.Contains(got.err, "method is too long")
				if !ready && (got.n > 0 || limited) {
					t.Errorf("%q, limits %v: not ready, but parsing says %+v", head[:have], lim, got)
				}
				if ready && got == (outcome{}) && have+len("\r\n") < lim.Line {
					t.Errorf("%q, limits %v: ready, but incomplete", head[:have], lim)
				}
				if got != (outcome{}) {
					break
				}
			}
		}
	}
}

func TestScannerFindsBareLF(t *testing.T) {
	for _, head := range []string{"\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nA: b\n", "\r\n\r\n\n"} {
		var s Scanner
		for have := range len(head) {
			if s.Ready([]byte(head[:have]), wide) {
				t.Errorf("ready at %q", head[:have])
			}
		}
		if !s.Ready([]byte(head), wide) {
			t.Errorf("not ready at %q", head)
		}
		s.Reset()
		if s.Ready([]byte("GET"), wide) {
			t.Error("ready at the start of another head")
		}
	}
}

// A head that arrives byte by byte costs about one pass over it in total.
func TestScannerReadsEachByteOnce(t *testing.T) {
	var s Scanner
	head := []byte(get("A: " + strings.Repeat("b", 4000)))
	for have := 1; have < len(head); have++ {
		if s.Ready(head[:have], wide) {
			t.Fatalf("ready at byte %d of %d", have, len(head))
		}
		if s.seen != have {
			t.Fatalf("looked at %d bytes of %d", s.seen, have)
		}
	}
	if !s.Ready(head, wide) {
		t.Error("not ready at the end")
	}
}

func TestNoAllocations(t *testing.T) {
	var req protocol.Request
	var resp protocol.Response
	var f Framing
	var c ChunkReader
	var trailer protocol.Header
	dst := make([]byte, 0, 4<<10)
	wrk, browser, nginx := []byte(wrkHead), []byte(browserHead), []byte(nginxHead)
	absolute := []byte(lines("GET http://[::1]:80/x HTTP/1.1", "Host: a", "Connection: x", "X: y"))
	chunks := []byte("3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n")
	promises := []struct {
		name string
		do   func() bool
	}{
		{"ParseRequest, curl", func() bool { n, _ := ParseRequest(wrk, wide, &req, &f); return n == len(wrk) }},
		{"ParseRequest, browser", func() bool { n, _ := ParseRequest(browser, wide, &req, &f); return n == len(browser) }},
		{"ParseRequest, absolute-form and nominated field", func() bool { n, _ := ParseRequest(absolute, wide, &req, &f); return n == len(absolute) }},
		{"ParseRequest, incomplete", func() bool { n, err := ParseRequest(wrk[:len(wrk)-1], wide, &req, &f); return n == 0 && err == nil }},
		{"AppendRequest", func() bool {
			_, _ = ParseRequest(wrk, wide, &req, &f)
			b, err := AppendRequest(dst, &req, RequestOptions{})
			return len(b) == len(wrk) && err == nil
		}},
		{"ParseResponse", func() bool { n, _ := ParseResponse(nginx, wide, "GET", &resp, &f); return n == len(nginx) }},
		{"AppendResponse", func() bool { return len(AppendResponse(dst, &resp, ResponseOptions{Minor: 1})) > 0 }},
		{"ChunkReader", func() bool {
			c.Reset()
			trailer.Reset()
			n, _, _, _ := c.Next(chunks, wide, &trailer)
			_, _, done, _ := c.Next(chunks[n:], wide, &trailer)
			return done
		}},
		{"AppendChunkHead", func() bool { return len(AppendChunkHead(dst, 4096)) == 6 }},
		{"AppendLastChunk", func() bool { return len(AppendLastChunk(dst, &trailer)) > 5 }},
	}
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			if !p.do() { // also warms the storage
				t.Fatal("did not do what it is measured for")
			}
			if got := testing.AllocsPerRun(100, func() { p.do() }); got != 0 {
				t.Errorf("%v allocations, want none", got)
			}
		})
	}
}
