package http1

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// requestSamples returns all valid and invalid heads of the tables, and truncated heads, for the
// split tests and the fuzz targets.
func requestSamples() []string {
	samples := []string{curlHead, browserHead, "", "\r", "GET / HTTP/1.1\r\nHost: a\r\nX", getHead() + getHead()}
	for _, r := range validRequests() {
		samples = append(samples, r.head)
	}
	for _, r := range invalidRequests() {
		samples = append(samples, r.head)
	}
	return samples
}

// responseSamples returns the response heads of the tables.
func responseSamples() []string {
	samples := []string{nginxHead, "", "HTTP/1.1 200 O", okHead() + okHead()}
	for _, r := range validResponses() {
		samples = append(samples, r.head)
	}
	for _, r := range invalidResponses() {
		samples = append(samples, r.head)
	}
	return samples
}

// TestHeadsInPieces verifies that the position of a split does not affect the result.
func TestHeadsInPieces(t *testing.T) {
	smallLimits := Limits{Line: 50, Head: 90, Fields: 4}
	for _, lim := range []Limits{largeLimits, smallLimits} {
		for _, head := range requestSamples() {
			want := parseRequestOnce([]byte(head), lim)
			for split := range len(head) {
				if got := parseRequestTwice([]byte(head), split, lim); got != want {
					t.Errorf("request %q cut at %d, limits %v =\n%+v, want\n%+v", head, split, lim, got, want)
				}
			}
		}
		for _, head := range responseSamples() {
			want := parseResponseOnce([]byte(head), "GET", lim)
			for split := range len(head) {
				if got := parseResponseTwice([]byte(head), split, "GET", lim); got != want {
					t.Errorf("response %q cut at %d, limits %v =\n%+v, want\n%+v", head, split, lim, got, want)
				}
			}
		}
	}
}

// TestTruncatedHeadsAreIncomplete verifies that a truncated head is neither an error nor complete.
func TestTruncatedHeadsAreIncomplete(t *testing.T) {
	for _, head := range []string{curlHead, browserHead, "\r\n" + getHead("A: b")} {
		for n := range len(head) {
			if got := parseRequestOnce([]byte(head[:n]), largeLimits); got != (outcome{}) {
				t.Errorf("request %q: %+v, want incomplete", head[:n], got)
			}
		}
	}
	for n := range len(nginxHead) {
		if got := parseResponseOnce([]byte(nginxHead[:n]), "GET", largeLimits); got != (outcome{}) {
			t.Errorf("response %q: %+v, want incomplete", nginxHead[:n], got)
		}
	}
}

// TestScannerIsReadyWhenHeadIsComplete verifies that a Scanner is ready as soon as the head is
// complete or exceeds a limit, and not before.
func TestScannerIsReadyWhenHeadIsComplete(t *testing.T) {
	smallLimits := Limits{Line: 50, Head: 90, Fields: 4}
	for _, lim := range []Limits{largeLimits, smallLimits, {}} {
		for _, head := range requestSamples() {
			var s Scanner
			for n := 1; n <= len(head); n++ {
				ready := s.Ready([]byte(head[:n]), lim)
				got := parseRequestOnce([]byte(head[:n]), lim)
				overLimit := strings.Contains(got.err, "limit") || strings.Contains(got.err, "method is too long")
				if !ready && (got.n > 0 || overLimit) {
					t.Errorf("%q, limits %v: Ready = false, want true, because parsing returns %+v", head[:n], lim, got)
				}
				if ready && got == (outcome{}) && n+len("\r\n") < lim.Line {
					t.Errorf("%q, limits %v: Ready = true, want false, because the head is incomplete", head[:n], lim)
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
		for n := range len(head) {
			if s.Ready([]byte(head[:n]), largeLimits) {
				t.Errorf("Ready(%q) = true, want false", head[:n])
			}
		}
		if !s.Ready([]byte(head), largeLimits) {
			t.Errorf("Ready(%q) = false, want true", head)
		}
		s.Reset()
		if s.Ready([]byte("GET"), largeLimits) {
			t.Error("Ready = true at the start of the next head, want false")
		}
	}
}

// TestScannerScansEachByteOnce verifies that the scanner reads each byte of a head once.
func TestScannerScansEachByteOnce(t *testing.T) {
	var s Scanner
	head := []byte(getHead("A: " + strings.Repeat("b", 4000)))
	for n := 1; n < len(head); n++ {
		if s.Ready(head[:n], largeLimits) {
			t.Fatalf("Ready = true at byte %d of %d, want false", n, len(head))
		}
		if s.scanned != n {
			t.Fatalf("scanned %d bytes, want %d", s.scanned, n)
		}
	}
	if !s.Ready(head, largeLimits) {
		t.Error("Ready = false for the complete head, want true")
	}
}

func TestNoAllocations(t *testing.T) {
	var req protocol.Request
	var resp protocol.Response
	var f Framing
	var c ChunkReader
	var trailer protocol.Header
	dst := make([]byte, 0, 4<<10)
	curl, browser, nginx := []byte(curlHead), []byte(browserHead), []byte(nginxHead)
	absolute := []byte(lines("GET http://[::1]:80/x HTTP/1.1", "Host: a", "Connection: x", "X: y"))
	chunks := []byte("3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n")
	operations := []struct {
		name string
		do   func() bool
	}{
		{"ParseRequest, curl", func() bool { n, _ := ParseRequest(curl, largeLimits, &req, &f); return n == len(curl) }},
		{"ParseRequest, browser", func() bool { n, _ := ParseRequest(browser, largeLimits, &req, &f); return n == len(browser) }},
		{"ParseRequest, absolute-form and nominated field", func() bool { n, _ := ParseRequest(absolute, largeLimits, &req, &f); return n == len(absolute) }},
		{"ParseRequest, incomplete", func() bool {
			n, err := ParseRequest(curl[:len(curl)-1], largeLimits, &req, &f)
			return n == 0 && err == nil
		}},
		{"AppendRequest", func() bool {
			_, _ = ParseRequest(curl, largeLimits, &req, &f)
			b, err := AppendRequest(dst, &req, RequestOptions{})
			return len(b) == len(curl) && err == nil
		}},
		{"ParseResponse", func() bool { n, _ := ParseResponse(nginx, largeLimits, "GET", &resp, &f); return n == len(nginx) }},
		{"AppendResponse", func() bool { return len(AppendResponse(dst, &resp, ResponseOptions{Minor: 1})) > 0 }},
		{"ChunkReader", func() bool {
			c.Reset()
			trailer.Reset()
			n, _, _, _ := c.Next(chunks, largeLimits, &trailer)
			_, _, done, _ := c.Next(chunks[n:], largeLimits, &trailer)
			return done
		}},
		{"AppendChunkHead", func() bool { return len(AppendChunkHead(dst, 4096)) == 6 }},
		{"AppendLastChunk", func() bool { return len(AppendLastChunk(dst, &trailer)) > 5 }},
	}
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			if !op.do() { // the first call also allocates the storage that later calls reuse
				t.Fatal("the operation failed")
			}
			if got := testing.AllocsPerRun(100, func() { op.do() }); got != 0 {
				t.Errorf("%v allocations, want none", got)
			}
		})
	}
}
