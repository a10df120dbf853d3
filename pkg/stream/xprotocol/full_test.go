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

// queued is MaxPendingBytes in these tests. enough is a number of 1 MiB messages that exceeds such
// a queue plus the socket buffers, but fits into a queue of the default size.
const (
	queued = 8 << 20
	enough = queued>>20 + 40
)

// withoutRace skips a test that moves about 50 MiB. With poisoned buffers and the race detector, it
// takes minutes.
func withoutRace(t *testing.T) {
	t.Helper()
	if invariants.Enabled {
		t.Skip("moves 50 MiB: runs only without the race detector")
	}
}

// TestClientThatDoesNotReadIsClosed verifies that Weft closes a client that reads no responses
// once they exceed MaxPendingBytes, even below MaxInFlight.
func TestClientThatDoesNotReadIsClosed(t *testing.T) {
	withoutRace(t)
	inBothModes(t, func(t *testing.T, upstream *forwardTo) {
		r := newRig(t, upstream.service(), func(o *stream.ServerOptions) { o.RPC.MaxPendingBytes = queued })
		upstream.client.Store(r.client(startHost(t, func(p *peer) {
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
		p := r.dial()
		var all []byte
		for id := range uint64(enough) {
			all = append(all, requestFrame(id+1, "")...)
		}
		p.write(all)
		full := func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.ContainsFunc(r.observed, func(o observation) bool {
				return o.reason == protocol.ReasonDownstreamDisconnect && strings.Contains(o.detail, "write queue full")
			})
		}
		late, look := time.After(time.Minute), time.NewTicker(time.Millisecond)
		defer look.Stop()
		for !full() || r.ln.Connections() > 0 {
			select {
			case <-look.C:
			case <-late:
				t.Fatalf("the client that reads nothing is not closed: %d connections, write queue full: %v", r.ln.Connections(), full())
			}
		}
	})
}

// TestRequestsToHostThatDoesNotReadAreRejected verifies that requests beyond MaxPendingBytes fail
// with Overflow, and that the others get their responses once the host reads.
func TestRequestsToHostThatDoesNotReadAreRejected(t *testing.T) {
	withoutRace(t)
	inBothModes(t, func(t *testing.T, upstream *forwardTo) {
		r := newRig(t, upstream.service(), nil)
		read := make(chan struct{})
		upstream.client.Store(r.client(startHost(t, func(p *peer) {
			<-read
			for head, frame := p.read(); frame != nil; head, frame = p.read() {
				if _, err := p.conn.Write(responseFrame(head, "fine")); err != nil {
					return
				}
			}
		}), func(o *stream.UpstreamConnOptions) { o.RPC.MaxPendingBytes = queued }))
		refused := make(chan bool, enough)
		for range enough {
			p := r.dial()
			go func() {
				_, _ = p.conn.Write(requestFrame(1, mib))
				_, frame := p.read()
				refused <- frame == nil || protocol.Reason(frame[2]) == protocol.Overflow
			}()
		}
		if !<-refused {
			t.Error("a request got a response before its host read anything")
		}
		close(read)
		responded := 0
		for range enough - 1 {
			if !<-refused {
				responded++
			}
		}
		if responded < queued>>20 {
			t.Errorf("%d of %d requests succeeded, want all that fit into the write queue", responded, enough)
		}
	})
}
