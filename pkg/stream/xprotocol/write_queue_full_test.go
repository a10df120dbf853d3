package xprotocol

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// mib is a body of 1 MiB.
var mib = strings.Repeat("x", 1<<20)

// maxPending is MaxPendingBytes in these tests. mibMessages is a number of 1 MiB messages that
// exceeds such a queue plus the socket buffers, but fits into a queue of the default size.
const (
	maxPending  = 8 << 20
	mibMessages = maxPending>>20 + 40
)

// skipWithInvariants skips a test that moves about 50 MiB: with poisoned buffers and the race
// detector, it takes minutes.
func skipWithInvariants(t *testing.T) {
	t.Helper()
	if invariants.Enabled {
		t.Skip("moves 50 MiB: runs only without the race detector")
	}
}

// TestClientThatDoesNotReadIsClosed verifies that Weft closes the connection of a client that reads
// no responses once they exceed MaxPendingBytes, even below MaxInFlight.
func TestClientThatDoesNotReadIsClosed(t *testing.T) {
	skipWithInvariants(t)
	inBothModes(t, func(t *testing.T, upstream *forwardService) {
		proxy := newTestProxy(t, upstream.service(), func(o *stream.ServerOptions) { o.RPC.MaxPendingBytes = maxPending })
		upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
			for {
				head, frame := p.read()
				if frame == nil {
					return
				}
				if _, err := p.conn.Write(responseFrame(head, mib)); err != nil {
					return
				}
			}
		}), nil))
		p := proxy.dial()
		var frames []byte
		for id := range uint64(mibMessages) {
			frames = append(frames, requestFrame(id+1, "")...)
		}
		p.write(frames)
		queueFull := func() bool {
			proxy.mu.Lock()
			defer proxy.mu.Unlock()
			return slices.ContainsFunc(proxy.observed, func(o observation) bool {
				return o.reason == protocol.ReasonDownstreamDisconnect && strings.Contains(o.detail, "write queue full")
			})
		}
		timeout, ticker := time.After(time.Minute), time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for !queueFull() || proxy.ln.Connections() > 0 {
			select {
			case <-ticker.C:
			case <-timeout:
				t.Fatalf("the client that reads nothing is not closed: %d connections, write queue full: %v", proxy.ln.Connections(), queueFull())
			}
		}
	})
}

// TestRequestsToHostThatDoesNotReadAreRejected verifies that requests beyond MaxPendingBytes fail
// with Overflow, and that the others get their responses once the host reads.
func TestRequestsToHostThatDoesNotReadAreRejected(t *testing.T) {
	skipWithInvariants(t)
	inBothModes(t, func(t *testing.T, upstream *forwardService) {
		proxy := newTestProxy(t, upstream.service(), nil)
		startReading := make(chan struct{})
		upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
			<-startReading
			for head, frame := p.read(); frame != nil; head, frame = p.read() {
				if _, err := p.conn.Write(responseFrame(head, "ok")); err != nil {
					return
				}
			}
		}), func(o *stream.UpstreamConnOptions) { o.RPC.MaxPendingBytes = maxPending }))
		rejected := make(chan bool, mibMessages)
		for range mibMessages {
			p := proxy.dial()
			go func() {
				_, _ = p.conn.Write(requestFrame(1, mib))
				_, frame := p.read()
				rejected <- frame == nil || protocol.Reason(frame[2]) == protocol.Overflow
			}()
		}
		if !<-rejected {
			t.Error("a request got a response before its host read anything")
		}
		close(startReading)
		responded := 0
		for range mibMessages - 1 {
			if !<-rejected {
				responded++
			}
		}
		if responded < maxPending>>20 {
			t.Errorf("%d of %d requests succeeded, want all that fit into the write queue", responded, mibMessages)
		}
	})
}
