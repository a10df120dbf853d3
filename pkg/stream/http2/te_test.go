package http2

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestTEOfOtherProtocolIsForwarded verifies that the TE field of a client of another protocol
// reaches an HTTP/2 host, which may send trailers only to clients with TE: trailers.
func TestTEOfOtherProtocolIsForwarded(t *testing.T) {
	for _, te := range []string{"trailers", ""} {
		heads := make(chan map[string]string, 1)
		address := startHost(t, func(p *peer) {
			heads <- p.awaitFields(1)
			p.headers(1, true, ":status", "204")
			p.next()
		})
		u := newUpstreamRig(t).dialUpstream(address, nil)
		status, _, err := sendRequest(u, func(x *protocol.Exchange) {
			if te != "" {
				x.Request.Header.Add("TE", te)
			}
		})
		if err != nil || status != 204 {
			t.Fatalf("TE %q: %d, %v; want 204", te, status, err)
		}
		if got := (<-heads)["te"]; got != te {
			t.Errorf("TE %q: the host received te %q, want the same", te, got)
		}
	}
}
