package xprotocol

import (
	"context"
	"io"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestLastResponseIsFlushed verifies that the reader's batch is flushed when its
// connection fails, even if the heartbeat timer has already failed the connection.
func TestLastResponseIsFlushed(t *testing.T) {
	r := newRig(t, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil }), nil)
	u := r.client(startHost(t, func(p *peer) { p.read() }), nil)
	size := &batch{observers: []serverObserver{{server: &server{engine: r.engine}, observer: &batchRecorder{rig: r, seen: []observation{{code: 7}}}}}}
	u.fail(errHeartbeatTimeout, new(batch))
	u.fail(io.EOF, size)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.observed) != 1 || r.observed[0].code != 7 {
		t.Errorf("observed %v, want the exchange in the reader's batch", r.observed)
	}
}
