package http2

import (
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// TestNoDeadlockWithHostThatWritesBeforeReading verifies that the engine reads from a host that
// reads nothing before it has written its responses, although more bytes are in flight in both
// directions than the sockets hold. Two adjacent proxies are such hosts for each other, and would
// otherwise wait forever.
func TestNoDeadlockWithHostThatWritesBeforeReading(t *testing.T) {
	const (
		streams = 60
		each    = 16 // pieces that fill the window of a stream
	)
	piece := make([]byte, syntax.MinFrameSize)
	window := http2.Setting{ID: http2.SettingInitialWindowSize, Val: each * syntax.MinFrameSize}
	asked, full := make(chan struct{}), make(chan struct{})
	got := make(chan int, 1)
	up := startHost(t, func(p *peer) {
		p.must(p.fr.WriteWindowUpdate(0, 1<<30))
		var ids []uint32
		for range streams {
			id := p.awaitHead()
			if id == 0 {
				return
			}
			ids = append(ids, id)
		}
		close(asked)
		select {
		case <-full:
		case <-t.Context().Done():
			return
		}
		_ = p.conn.SetWriteDeadline(time.Now().Add(eventTimeout)) // fails only on a closed connection
		for _, id := range ids {
			p.headers(id, false, ":status", "200")
			for range each {
				if err := p.fr.WriteData(id, false, piece); err != nil {
					t.Errorf("response on stream %d: %v", id, err)
					return
				}
			}
		}
		all := 0
		for all < streams*each*len(piece) {
			switch f := p.next().(type) {
			case nil:
				return
			case *http2.DataFrame:
				all += len(f.Data())
			}
		}
		got <- all
		for p.next() != nil { // closing the connection now could lose responses
		}
	}, window)
	to := new(forward)
	r := newRig(t, to, nil)
	u := r.dialUpstream(up, nil)
	to.client.Store(u)
	p := r.dial(window)
	p.must(p.fr.WriteWindowUpdate(0, 1<<30))
	for i := range uint32(streams) {
		p.request(2*i+1, false, ":method", "POST")
	}
	awaitClosed(t, asked, "requests at the host")
	for i := range uint32(streams) {
		for range each {
			p.must(p.fr.WriteData(2*i+1, false, piece))
		}
	}
	p.must(p.fr.WritePing(false, [8]byte{1}))
	for {
		if f, ok := p.next().(*http2.PingFrame); ok && f.IsAck() {
			break
		}
	}
	u.mu.Lock()
	waiting := u.waitingPumps.len()
	u.mu.Unlock()
	if waiting == 0 || waiting > streams {
		t.Errorf("%d pumps wait for the host, want one to %d", waiting, streams)
	}
	close(full)
	for left := streams * each * len(piece); left > 0; {
		switch f := p.next().(type) {
		case nil:
			t.Fatalf("the connection ended %d bytes before the end of the responses", left)
		case *http2.DataFrame:
			left -= len(f.Data())
		}
	}
	select {
	case <-got:
	case <-time.After(eventTimeout):
		t.Error("the host has not received all bodies")
	}
}

// TestClosedBodySendsNoEndStream verifies that a host does not get END_STREAM for a body that was
// closed before it was sent, although it was complete.
func TestClosedBodySendsNoEndStream(t *testing.T) {
	r := newUpstreamRig(t)
	u := r.dialUpstream(startHost(t, func(p *peer) { p.awaitHead(); p.next() }), nil)
	var x protocol.Exchange
	x.Reset()
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "POST", "http", "shop.test", "/"
	source := &muxStream{conn: &muxConn{creditThreshold: 1}}
	c := &source.in
	c.start(source, nil, 0)
	c.add([]byte("content that is never sent"), nil, nil)
	c.markComplete()
	x.Request.Body = c
	k := r.engine.newCall()
	k.init(u, &x, nil, false)
	u.mu.Lock()
	u.openOrEnqueue(k, time.Now())
	u.mu.Unlock()
	_ = c.Close()
	k.out.start(c, &k.muxStream, k, k.id.Load())
	k.out.kick(nil)
	u.mu.Lock()
	state := k.stream.State()
	u.mu.Unlock()
	if state != syntax.Open {
		t.Errorf("the stream is %v, want %v", state, syntax.Open)
	}
	k.stopUpload()
	k.free()
}

// TestFullWriteQueueOverflows verifies that a request overflows without opening a stream if the
// write queue of the host's connection is full.
func TestFullWriteQueueOverflows(t *testing.T) {
	r := newRig(t, protocol.BlockingFunc(nil), nil)
	u := r.dialUpstream(startHost(t, func(p *peer) {
		p.awaitHead()
		p.next()
	}), nil)
	u.mu.Lock() // keeps the queue unflushed until the request
	u.writeQueue.Limit(1)
	err := u.writeQueue.EndFrame(syntax.AppendPing(u.writeQueue.BeginFrame(17), false, [8]byte{}))
	k := &call{x: &protocol.Exchange{}}
	k.x.Request.Method, k.x.Request.Path, k.x.Request.Scheme, k.x.Request.Authority = "GET", "/", "http", "shop.test"
	k.x.Request.ContentLength = -1
	refused := u.openStream(k, time.Now())
	streams := u.state.Len()
	u.mu.Unlock()
	if err != nil || protocol.ReasonOf(refused) != protocol.Overflow || streams != 0 {
		t.Errorf("errors %v, %v (reason %v), %d streams; want an overflow and no stream", err, refused, protocol.ReasonOf(refused), streams)
	}
}
