package origin

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name    string
		input   string
		n       int
		want    request
		wantErr bool
	}{
		{"GET", "GET /b/1024 HTTP/1.1\r\nHost: a\r\n\r\n", 33, request{size: 1024}, false},
		{"POST with a body", "POST /b/0 HTTP/1.1\r\ncontent-length: 7\r\n\r\nabc", 41, request{body: 7}, false},
		{"incomplete head", "GET /b/1024 HTTP/1.1\r\nHost: a\r\n", 0, request{}, false},
		{"other target", "GET / HTTP/1.1\r\n\r\n", 0, request{}, true},
		{"size above the limit", "GET /b/99999999999 HTTP/1.1\r\n\r\n", 0, request{}, true},
		{"chunked body", "PUT /b/1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 0, request{}, true},
		{"invalid length", "PUT /b/1 HTTP/1.1\r\nContent-Length: x\r\n\r\n", 0, request{}, true},
		{"empty method", " /b/1\r\n\r\n", 9, request{size: 1}, false},
		{"head too large", strings.Repeat("x", maxHead+1), 0, request{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n, got, err := parse([]byte(test.input))
			if n != test.n || got != test.want || (err != nil) != test.wantErr {
				t.Errorf("parse(%.60q) = %d, %+v, %v, want %d, %+v, error: %v", test.input, n, got, err, test.n, test.want, test.wantErr)
			}
		})
	}
}

// TestRequestsSplitAnywhere verifies that two requests get the same two responses wherever the
// input is split.
func TestRequestsSplitAnywhere(t *testing.T) {
	const input = "POST /b/3 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET /b/2 HTTP/1.1\r\n\r\n"
	s := newServer()
	want := slices.Concat(s.response(3), s.response(2))
	for split := range len(input) {
		c := &conn{}
		for _, piece := range []string{input[:split], input[split:]} {
			if piece == "" {
				continue
			}
			rest, err := s.handleRequests(c, append(slices.Clone(c.in), piece...))
			if err != nil {
				t.Fatalf("split at %d: %v", split, err)
			}
			c.in = slices.Clone(rest)
		}
		if !slices.Equal(c.out, want) || len(c.in) > 0 {
			t.Errorf("split at %d: responses %q, rest %q, want %q", split, c.out, c.in, want)
		}
	}
}

func TestSharedResponsesAreReadOnly(t *testing.T) {
	s := newServer()
	c := &conn{}
	before := string(s.response(4))
	for range 3 {
		c.queue(s.response(4))
	}
	if got := string(s.response(4)); got != before {
		t.Errorf("the response became %q, want %q", got, before)
	}
	if got, want := string(c.out), strings.Repeat(before, 3); got != want {
		t.Errorf("queued %q, want %q", got, want)
	}
}
