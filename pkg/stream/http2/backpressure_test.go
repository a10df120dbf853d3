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
		streams         = 60
		piecesPerStream = 16 // fills the window of a stream
	)
	piece := make([]byte, syntax.MinFrameSize)
	window := http2.Setting{ID: http2.SettingInitialWindowSize, Val: piecesPerStream * syntax.MinFrameSize}
	requestsArrived, bodiesSent := make(chan struct{}), make(chan struct{})
	received := make(chan int, 1)
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
		close(requestsArrived)
		select {
		case <-bodiesSent:
		case <-t.Context().Done():
			return
		}
		_ = p.conn.SetWriteDeadline(time.Now().Add(eventTimeout)) // fails only on a closed connection
		for _, id := range ids {
			p.headers(id, false, ":status", "200")
			for range piecesPerStream {
				if err := p.fr.WriteData(id, false, piece); err != nil {
					t.Errorf("response on stream %d: %v", id, err)
					return
				}
			}
		}
		n := 0
		for n < streams*piecesPerStream*len(piece) {
			switch f := p.next().(type) {
			case nil:
				return
			case *http2.DataFrame:
				n += len(f.Data())
			}
		}
		received <- n
		for p.next() != nil { // to close the connection now could lose responses
		}
	}, window)
	service := new(forward)
	r := newRig(t, service, nil)
	u := r.dialUpstream(up, nil)
	service.conn.Store(u)
	p := r.dial(window)
	p.must(p.fr.WriteWindowUpdate(0, 1<<30))
	for i := range uint32(streams) {
		p.request(2*i+1, false, ":method", "POST")
	}
	awaitClosed(t, requestsArrived, "requests at the host")
	for i := range uint32(streams) {
		for range piecesPerStream {
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
		t.Errorf("%d pumps wait for the host, want 1 to %d", waiting, streams)
	}
	close(bodiesSent)
	for remaining := streams * piecesPerStream * len(piece); remaining > 0; {
		switch f := p.next().(type) {
		case nil:
			t.Fatalf("the connection ended with %d bytes of the responses missing, want 0", remaining)
		case *http2.DataFrame:
			remaining -= len(f.Data())
		}
	}
	select {
	case <-received:
	case <-time.After(eventTimeout):
		t.Error("timeout waiting until the host has received all bodies")
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
	body := &source.in
	body.start(source, nil, 0)
	body.add([]byte("body that is never sent"), nil, nil)
	body.markComplete()
	x.Request.Body = body
	c := r.engine.newCall()
	c.init(u, &x, nil, false)
	u.mu.Lock()
	u.openOrEnqueue(c, time.Now())
	u.mu.Unlock()
	_ = body.Close()
	c.out.start(body, &c.muxStream, c, c.id.Load())
	c.out.kick(nil)
	u.mu.Lock()
	state := c.stream.State()
	u.mu.Unlock()
	if state != syntax.Open {
		t.Errorf("stream state %v, want %v", state, syntax.Open)
	}
	c.stopUpload()
	c.free()
}

// TestFullWriteQueueOverflows verifies that a request fails with Overflow, and opens no stream, if
// the write queue of the host's connection is full.
func TestFullWriteQueueOverflows(t *testing.T) {
	r := newRig(t, protocol.BlockingFunc(nil), nil)
	u := r.dialUpstream(startHost(t, func(p *peer) {
		p.awaitHead()
		p.next()
	}), nil)
	u.mu.Lock() // keeps the queue unflushed until the request
	u.writeQueue.SetLimit(1)
	err := u.writeQueue.EndFrame(syntax.AppendPing(u.writeQueue.BeginFrame(17), false, [8]byte{}))
	c := &call{x: &protocol.Exchange{}}
	c.x.Request.Method, c.x.Request.Path, c.x.Request.Scheme, c.x.Request.Authority = "GET", "/", "http", "shop.test"
	c.x.Request.ContentLength = -1
	openErr := u.openStream(c, time.Now())
	streams := u.state.Len()
	u.mu.Unlock()
	if err != nil || protocol.ReasonOf(openErr) != protocol.Overflow || streams != 0 {
		t.Errorf("errors %v, %v (reason %v), %d streams; want an overflow and no stream", err, openErr, protocol.ReasonOf(openErr), streams)
	}
}
