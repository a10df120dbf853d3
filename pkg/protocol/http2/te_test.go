package http2

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestRequestTEFollowsOptions verifies that a request has te: trailers once if
// RequestOptions.AcceptsTrailers was set, and not at all otherwise (RFC 9113 8.2.2).
func TestRequestTEFollowsOptions(t *testing.T) {
	for _, tt := range []struct {
		trailers bool
		want     int
	}{{true, 1}, {false, 0}} {
		p := newPair(t, Config{Role: Client}, Config{Role: Server})
		req := newGetRequest("/")
		req.Header.Add("te", "trailers") // AppendRequest uses only its options
		out, _, err := p.client.AppendRequest(nil, req, RequestOptions{End: true, AcceptsTrailers: tt.trailers})
		if err != nil {
			t.Fatal(err)
		}
		_, _, events := handleAll(t, p.server, out, nil)
		onlyEvent(t, events, HeadersArrived)
		var got protocol.Request
		if _, err := p.server.TakeRequest(&got, nil); err != nil {
			t.Fatal(err)
		}
		n := 0
		for name, value := range got.Header.All() {
			if name == "te" && value == "trailers" {
				n++
			}
		}
		if n != tt.want {
			t.Errorf("AcceptsTrailers %v: the host's request has te %d times, want %d", tt.trailers, n, tt.want)
		}
	}
}
