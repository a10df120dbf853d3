package http2

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestTEOfAnotherProtocolReachesTheHost: a caller of HTTP/1.1 that wants trailer fields gets
// them from a host of HTTP/2 that sends them only to those who say so.
func TestTEOfAnotherProtocolReachesTheHost(t *testing.T) {
	for _, te := range []string{"trailers", ""} {
		heads := make(chan map[string]string, 1)
		address := host(t, func(p *peer) {
			heads <- p.head(1)
			p.headers(1, true, ":status", "204")
			p.next()
		})
		u := lone(t).client(address, nil)
		status, _, err := do(u, func(x *protocol.Exchange) {
			if te != "" {
				x.Request.Header.Add("TE", te)
			}
		})
		if err != nil || status != 204 {
			t.Fatalf("TE %q: %d, %v", te, status, err)
		}
		if got := (<-heads)["te"]; got != te {
			t.Errorf("TE %q: the host got te %q", te, got)
		}
	}
}
