package origin

import (
	"bytes"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// feed calls s.receive with the unprocessed bytes of c followed by piece, as server.handle does.
func feed(s *server, c *conn, piece []byte) error {
	return s.receive(c, append(bytes.Clone(c.in), piece...))
}

// TestFramesSplitAnywhere verifies that two requests and a heartbeat get the same three responses
// in order, wherever the input is split.
func TestFramesSplitAnywhere(t *testing.T) {
	for _, p := range frame.All() {
		t.Run(p.Name(), func(t *testing.T) {
			input := p.AppendRequest(nil, 7, frame.Text{Token: 1})
			input = p.AppendPing(input, 8)
			input = p.AppendPong(input, 1) // a pong without a ping is ignored
			input = p.AppendRequest(input, 6, frame.Text{Token: 2})
			s := newServer()
			for split := range input {
				c := &conn{}
				var got []byte
				for _, piece := range [][]byte{input[:split], input[split:]} {
					if len(piece) == 0 {
						continue
					}
					if err := feed(s, c, piece); err != nil {
						t.Fatalf("split at %d: %v", split, err)
					}
					got = append(got, c.out...)
					c.out = nil
				}
				checkResponses(t, p, got, []frame.Frame{{Kind: frame.Response, ID: 7}, {Kind: frame.Pong, ID: 8}, {Kind: frame.Response, ID: 6}})
				if len(c.in) > 0 {
					t.Fatalf("split at %d: %d bytes remain, want none", split, len(c.in))
				}
			}
		})
	}
}

// checkResponses verifies the frames; the nth response must have the string with token n.
func checkResponses(t *testing.T, p *frame.Protocol, b []byte, want []frame.Frame) {
	t.Helper()
	token := uint64(0)
	for _, wantFrame := range want {
		n, f, err := p.Parse(b)
		if err != nil || n == 0 || f.Kind != wantFrame.Kind || f.ID != wantFrame.ID {
			t.Fatalf("Parse(%.40x) = %d, %+v, %v, want kind %d, id %d", b, n, f, err, wantFrame.Kind, wantFrame.ID)
		}
		if f.Kind == frame.Response {
			if token++; !p.HasText(f.Text, frame.Text{Token: token}) {
				t.Fatalf("response %d has %.40q, want the string of token %d", f.ID, f.Text, token)
			}
		}
		b = b[n:]
	}
	if len(b) > 0 {
		t.Fatalf("%d bytes after the responses: %.40x, want none", len(b), b)
	}
}

func TestProtocolDetection(t *testing.T) {
	s, c := newServer(), &conn{}
	body := bytes.Repeat([]byte{1}, 8) // starts like Bolt
	for _, piece := range [][]byte{[]byte("POST /b/3 HTTP/1.1\r\nContent-Length: 8\r\n\r\n"), body} {
		if err := feed(s, c, piece); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(c.out, s.response(3)) {
		t.Errorf("response %q, want HTTP", c.out)
	}
}

func TestInvalidRequestClosesConnection(t *testing.T) {
	for _, p := range frame.All() {
		valid := p.AppendRequest(nil, 1, frame.Text{})
		if err := feed(newServer(), &conn{}, append(valid, "GET"...)); err == nil {
			t.Errorf("%s: no error for invalid bytes", p.Name())
		}
	}
}
