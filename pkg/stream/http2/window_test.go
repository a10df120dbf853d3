package http2

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// newFixedSizeRig returns a rig in front of an origin that responds with size bytes, and a pointer
// to the last downstream connection.
func newFixedSizeRig(t *testing.T, size int) (*rig, *atomic.Pointer[downstreamConn]) {
	t.Helper()
	origin := startOrigin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", size)) })
	service, lastConn := new(forward), new(atomic.Pointer[downstreamConn])
	r := newRig(t, connRecorder{service, lastConn}, nil)
	service.conn.Store(r.dialUpstream(origin, nil))
	return r, lastConn
}

// connRecorder stores the downstream connection of the last exchange that it forwards.
type connRecorder struct {
	*forward
	last *atomic.Pointer[downstreamConn]
}

func (r connRecorder) Start(ctx context.Context, x *protocol.Exchange) error {
	r.last.Store(x.Downstream.(*exchange).downstream)
	return r.forward.Start(ctx, x)
}

// countBlocked returns the number of blocked streams of c, and the number of those that are blocked
// by the connection's window.
func (c *downstreamConn) countBlocked() (streams, byConnWindow int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.state.Streams() {
		if ms := muxStreamOf(s); ms != nil && ms.blocked {
			streams++
		}
	}
	return streams, c.blockedStreams.len()
}

// TestConnWindowDoesNotWakeStreamsBlockedByStreamWindow verifies that streams blocked by their own
// windows are not in the connection's queue. Otherwise each frame of 13 bytes from a client with a
// thousand such streams could make the engine check all of them.
func TestConnWindowDoesNotWakeStreamsBlockedByStreamWindow(t *testing.T) {
	const streams = 100
	r, lastConn := newFixedSizeRig(t, 1000)
	p := r.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(streams) {
		p.request(2*i+1, true)
	}
	for range streams {
		if _, ok := p.next().(*http2.MetaHeadersFrame); !ok {
			t.Fatal("the frame is not a response head")
		}
	}
	blocked, byConnWindow := 0, 0
	eventually(func() bool {
		blocked, byConnWindow = lastConn.Load().countBlocked()
		return blocked == streams || byConnWindow > 0
	})
	if blocked != streams || byConnWindow > 0 {
		t.Fatalf("%d blocked streams, %d of them by the connection's window; want %d, 0", blocked, byConnWindow, streams)
	}
	p.must(p.fr.WriteWindowUpdate(0, 1<<20))
	for i := range uint32(streams) {
		p.must(p.fr.WriteWindowUpdate(2*i+1, 1000))
	}
	for ended := 0; ended < streams; {
		next := p.next()
		f, ok := next.(*http2.DataFrame)
		if !ok {
			t.Fatalf("got %v after %d of %d responses, want DATA", next, ended, streams)
		}
		if f.StreamEnded() {
			ended++
		}
	}
}

// TestBlockedStreamsShareConnWindow verifies that blocked streams use the connection's window
// completely, both when it grows by little and when it suffices for all of them.
func TestBlockedStreamsShareConnWindow(t *testing.T) {
	const (
		streams = 8
		size    = 64 << 10
	)
	r, _ := newFixedSizeRig(t, size)
	p := r.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size})
	for i := range uint32(streams) {
		p.request(2*i+1, true)
	}
	received, ended := 0, 0
	receive := func(n int) {
		t.Helper()
		for received < n {
			switch f := p.next().(type) {
			case nil:
				t.Fatalf("the connection ended after %d bytes", received)
			case *http2.DataFrame:
				if received += len(f.Data()); f.StreamEnded() {
					ended++
				}
			}
		}
		if received > n {
			t.Fatalf("received %d bytes, want at most the window of %d", received, n)
		}
	}
	window := 1<<16 - 1
	receive(window)
	for range 20 {
		p.must(p.fr.WriteWindowUpdate(0, 1000))
		window += 1000
		receive(window)
	}
	p.must(p.fr.WriteWindowUpdate(0, 1<<20))
	receive(streams * size)
	for ended < streams {
		if f, ok := p.next().(*http2.DataFrame); ok && f.StreamEnded() {
			ended++
		}
	}
}
