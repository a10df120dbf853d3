package http2

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// newFixedSizeRig returns a rig in front of an origin that responds with size bytes, and a pointer
// to the last client's connection.
func newFixedSizeRig(t *testing.T, size int) (*rig, *atomic.Pointer[downstreamConn]) {
	t.Helper()
	up := startOrigin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", size)) })
	to, at := new(forward), new(atomic.Pointer[downstreamConn])
	r := newRig(t, connRecorder{to, at}, nil)
	to.client.Store(r.dialUpstream(up, nil))
	return r, at
}

// connRecorder stores the connection of the last exchange that it forwards.
type connRecorder struct {
	*forward
	last *atomic.Pointer[downstreamConn]
}

func (n connRecorder) Start(ctx context.Context, x *protocol.Exchange) error {
	n.last.Store(x.Downstream.(*exchange).downstream)
	return n.forward.Start(ctx, x)
}

// countBlocked returns the number of blocked streams of c, and how many of them are blocked by the
// connection's window.
func (c *downstreamConn) countBlocked() (all, connection int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.state.Streams() {
		if l := muxStreamOf(s); l != nil && l.blocked {
			all++
		}
	}
	return all, c.blockedStreams.len()
}

// TestConnWindowDoesNotWakeStreamsBlockedByTheirOwn verifies that streams blocked by their own
// windows are not in the connection's queue. Otherwise a client with a thousand such streams could
// make the engine check each of them with a frame of 13 bytes.
func TestConnWindowDoesNotWakeStreamsBlockedByTheirOwn(t *testing.T) {
	const streams = 100
	r, at := newFixedSizeRig(t, 1000)
	p := r.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(streams) {
		p.request(2*i+1, true)
	}
	for range streams {
		if _, ok := p.next().(*http2.MetaHeadersFrame); !ok {
			t.Fatal("the frame is not a response head")
		}
	}
	c := at.Load()
	for until := time.Now().Add(eventTimeout); ; <-time.After(time.Millisecond) {
		all, connection := c.countBlocked()
		if connection > 0 || time.Now().After(until) {
			t.Fatalf("%d blocked streams, %d of them by the connection's window; want %d, 0", all, connection, streams)
		}
		if all == streams {
			break
		}
	}
	p.must(p.fr.WriteWindowUpdate(0, 1<<20))
	for i := range uint32(streams) {
		p.must(p.fr.WriteWindowUpdate(2*i+1, 1000))
	}
	for ended := 0; ended < streams; {
		f, ok := p.next().(*http2.DataFrame)
		if !ok {
			t.Fatalf("%d of %d responses are complete", ended, streams)
		}
		if f.StreamEnded() {
			ended++
		}
	}
}

// TestBlockedStreamsShareConnWindow verifies that blocked streams use the
// connection's window completely, when it grows by little and when it suffices for all.
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
	got, ended := 0, 0
	take := func(n int) {
		t.Helper()
		for got < n {
			switch f := p.next().(type) {
			case nil:
				t.Fatalf("the connection ended after %d bytes", got)
			case *http2.DataFrame:
				if got += len(f.Data()); f.StreamEnded() {
					ended++
				}
			}
		}
		if got > n {
			t.Fatalf("received %d bytes with a window of %d", got, n)
		}
	}
	window := 1<<16 - 1
	take(window)
	for range 20 {
		p.must(p.fr.WriteWindowUpdate(0, 1000))
		window += 1000
		take(window)
	}
	p.must(p.fr.WriteWindowUpdate(0, 1<<20))
	take(streams * size)
	for ended < streams {
		if f, ok := p.next().(*http2.DataFrame); ok && f.StreamEnded() {
			ended++
		}
	}
}
