package xprotocol

import (
	"context"
	"io"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestFailFlushesReaderBatch verifies that the reader's batch is flushed when its connection fails,
// even if the heartbeat timer has already failed the connection.
func TestFailFlushesReaderBatch(t *testing.T) {
	proxy := newTestProxy(t, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), nil)
	u := proxy.client(startHost(t, func(p *peer) { p.read() }), nil)
	pending := &batch{observers: []serverObserver{{server: &server{engine: proxy.engine}, observer: &batchRecorder{proxy: proxy, seen: []observation{{code: 7}}}}}}
	u.fail(errHeartbeatTimeout, new(batch))
	u.fail(io.EOF, pending)
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if len(proxy.observed) != 1 || proxy.observed[0].code != 7 {
		t.Errorf("observed %v, want the exchange in the reader's batch", proxy.observed)
	}
}
