package http2

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestBufferedBodyLargerThanWriteQueueIsSent verifies that a body larger than the write queue is
// sent if it always has buffered bytes, so that reading it never causes a flush.
func TestBufferedBodyLargerThanWriteQueueIsSent(t *testing.T) {
	body := strings.Repeat("x", 3*network.HighWatermark)
	r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(200, "text/plain", body)
		return nil
	}), nil)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: eventTimeout}
	for range 5 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.address+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || n != int64(len(body)) {
			t.Fatalf("received %d bytes, want %d; error %v", n, len(body), err)
		}
	}
}
