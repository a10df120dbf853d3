package xprotocol

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// denyAll is a service that fails every request with ReasonDenied.
var denyAll = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
	return protocol.NewFault(protocol.ReasonDenied, nil)
})

func TestFramesAreIdenticalAtEverySplit(t *testing.T) {
	inBothModes(t, testFramesAreIdenticalAtEverySplit)
}

func testFramesAreIdenticalAtEverySplit(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	upstream.client.Store(proxy.client(startHost(t, echo), nil))
	frames := append(requestFrame(1, "first"), requestFrame(2, "second")...)
	for split := 1; split < len(frames); split++ {
		p := proxy.dial()
		p.write(frames[:split])
		p.write(frames[split:])
		got := map[uint64]string{}
		for range 2 {
			head, frame := p.read()
			got[head.ID] = string(frame[toyBody:])
		}
		if got[1] != "first" || got[2] != "second" {
			t.Fatalf("split at %d: responses %v, want \"first\" and \"second\"", split, got)
		}
		_ = p.conn.Close()
	}
}

func TestTooLargeFrameFailsImmediately(t *testing.T) {
	proxy := newTestProxy(t, denyAll, func(o *stream.ServerOptions) { o.RPC.MaxFrameSize = 1000 })
	p := proxy.dial()
	large := requestFrame(1, strings.Repeat("x", 5000))
	p.write(large[:100]) // enough for the response
	if head, frame := p.read(); head.ID != 1 || protocol.Reason(frame[2]) != protocol.BodyTooLarge {
		t.Errorf("response to id %d: %v, want %v to id 1", head.ID, protocol.Reason(frame[2]), protocol.BodyTooLarge)
	}
	p.write(large[100:])
	p.write(requestFrame(2, "")) // the connection continues
	if head, frame := p.read(); head.ID != 2 || protocol.Reason(frame[2]) != protocol.ReasonDenied {
		t.Errorf("response to id %d: %v, want %v to id 2", head.ID, protocol.Reason(frame[2]), protocol.ReasonDenied)
	}
}

func TestDeclaredSizeReservesNoMemory(t *testing.T) {
	proxy := newTestProxy(t, denyAll, func(o *stream.ServerOptions) {
		o.RPC.MaxFrameSize = 0
		o.RPC.FrameTimeout = 50 * time.Millisecond
	})
	p := proxy.dial()
	b := requestFrame(1, "x")
	binary.BigEndian.PutUint32(b[4:], 1<<31)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p.write(b)
	if _, frame := p.read(); frame != nil {
		t.Errorf("response %q, want a closed connection", frame)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
		t.Errorf("%d bytes were allocated, want none for the declared size", allocated)
	}
}

func TestTooLargeResponseFailsOnlyItsRequest(t *testing.T) {
	inBothModes(t, testTooLargeResponseFailsOnlyItsRequest)
}

func testTooLargeResponseFailsOnlyItsRequest(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		large, _ := p.read()
		small, _ := p.read()
		p.write(responseFrame(large, strings.Repeat("x", 5000)))
		p.write(responseFrame(small, "ok"))
		p.read()
	}), func(o *stream.UpstreamConnOptions) { o.RPC.MaxFrameSize = 1000 }))
	p := proxy.dial()
	p.write(requestFrame(1, ""))
	p.write(requestFrame(2, ""))
	if head, frame := p.read(); head.ID != 1 || protocol.Reason(frame[2]) != protocol.UpstreamMalformed {
		t.Errorf("response to id %d: %v, want %v to id 1", head.ID, protocol.Reason(frame[2]), protocol.UpstreamMalformed)
	}
	if head, frame := p.read(); head.ID != 2 || string(frame[toyBody:]) != "ok" {
		t.Errorf("response to id %d: %q, want \"ok\" to id 2", head.ID, frame)
	}
}

// TestTooLargeFrameIsRejectedAtEverySplit verifies that only a frame above MaxFrameSize is
// rejected, in one piece or in many, and that the next frame is served.
func TestTooLargeFrameIsRejectedAtEverySplit(t *testing.T) {
	const limit = 100
	for _, size := range []int{limit - 1, limit, limit + 1, 1000, 3 * stream.MaxReadSize} {
		for _, pieces := range []int{1, 7, 64 << 10} {
			t.Run(fmt.Sprintf("%d bytes in %d pieces", size, pieces), func(t *testing.T) {
				proxy := newTestProxy(t, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
					return protocol.NewFault(protocol.ReasonDenied, nil)
				}), func(o *stream.ServerOptions) { o.RPC.MaxFrameSize = limit })
				p := proxy.dial()
				text := strings.Repeat("x", size-len(requestFrame(1, "")))
				frames := append(requestFrame(1, text), requestFrame(2, "")...)
				go func() {
					for piece := range slices.Chunk(frames, max(len(frames)/pieces, 1)) {
						p.write(piece)
					}
				}()
				first := protocol.ReasonDenied
				if size > limit {
					first = protocol.BodyTooLarge
				}
				for i, want := range []protocol.Reason{first, protocol.ReasonDenied} {
					if head, frame := p.read(); head.ID != uint64(i+1) || protocol.Reason(frame[2]) != want {
						t.Errorf("request %d: response %v, want %v", head.ID, protocol.Reason(frame[2]), want)
					}
				}
			})
		}
	}
}

func TestRequestsBeyondLimitWait(t *testing.T) {
	const limit = 4
	var active, excess atomic.Int64
	started := make(chan struct{}, 3*limit)
	release := make(chan struct{})
	proxy := newTestProxy(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if active.Add(1) > limit {
			excess.Add(1)
		}
		x.Detach()
		started <- struct{}{}
		<-release
		active.Add(-1)
		x.LocalReply(403, "", "")
		return nil
	}), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = limit })
	p := proxy.dial()
	for i := range uint64(3 * limit) {
		p.write(requestFrame(i, strings.Repeat("x", stream.MinReadSize)))
	}
	for range limit { // the limit is reached
		<-started
	}
	for range 3 * limit {
		release <- struct{}{}
		p.read()
	}
	if n := excess.Load(); n > 0 {
		t.Errorf("%d requests were in flight beyond the limit", n)
	}
}

func TestLateResponseIsDropped(t *testing.T) { inBothModes(t, testLateResponseIsDropped) }

func testLateResponseIsDropped(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	lateFrames := make(chan codec.Frame, 1)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		first, _ := p.read()
		second, _ := p.read()
		p.write(responseFrame(first, "late"))
		p.write(responseFrame(first, "twice"))
		p.write(responseFrame(second, "second"))
		lateFrames <- first
		p.read()
	}), nil))
	p := proxy.dial()
	b := appendToy(nil, codec.Request, 0, 10*time.Millisecond, "svc slow\x00")
	toyCodec{}.SetID(b, 1)
	p.write(b)
	if head, frame := p.read(); head.ID != 1 || protocol.Reason(frame[2]) != protocol.UpstreamTimeout {
		t.Fatalf("response to id %d: %v, want %v to id 1", head.ID, protocol.Reason(frame[2]), protocol.UpstreamTimeout)
	}
	p.write(requestFrame(2, ""))
	if head, frame := p.read(); head.ID != 2 || string(frame[toyBody:]) != "second" {
		t.Errorf("response to id %d: %q, want \"second\" to id 2", head.ID, frame)
	}
	<-lateFrames
}

func TestSilentHostGetsHeartbeatsAndIsClosed(t *testing.T) {
	inBothModes(t, testSilentHostGetsHeartbeatsAndIsClosed)
}

func testSilentHostGetsHeartbeatsAndIsClosed(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	heartbeats := make(chan uint64, 16)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		for {
			head, frame := p.read()
			if frame == nil {
				return
			}
			if head.Kind == codec.Heartbeat {
				heartbeats <- head.ID
			}
		}
	}), func(o *stream.UpstreamConnOptions) {
		o.RPC.HeartbeatInterval, o.RPC.MaxMissedHeartbeats = 10*time.Millisecond, 3
	}))
	p := proxy.dial()
	p.write(requestFrame(1, ""))
	if _, frame := p.read(); protocol.Reason(frame[2]) != protocol.UpstreamClosed {
		t.Errorf("response %v, want %v", protocol.Reason(frame[2]), protocol.UpstreamClosed)
	}
	if n := len(heartbeats); n != 3 {
		t.Errorf("%d heartbeats, want 3", n)
	}
}

func TestHostThatAcknowledgesHeartbeatsIsKept(t *testing.T) {
	inBothModes(t, testHostThatAcknowledgesHeartbeatsIsKept)
}

func testHostThatAcknowledgesHeartbeatsIsKept(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	acknowledged := make(chan struct{})
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		for n := 0; ; {
			head, frame := p.read()
			if frame == nil {
				return
			}
			if head.Kind == codec.Heartbeat {
				p.write(toyCodec{}.AppendHeartbeatAck(nil, frame))
				if n++; n == 5 {
					close(acknowledged)
				}
			}
		}
	}), func(o *stream.UpstreamConnOptions) {
		o.RPC.HeartbeatInterval, o.RPC.MaxMissedHeartbeats = 5*time.Millisecond, 2
	}))
	<-acknowledged
	if !upstream.client.Load().Usable(0) {
		t.Error("the connection was closed although the host acknowledges heartbeats")
	}
}

func TestHostGoAwayStopsNewRequests(t *testing.T) {
	inBothModes(t, testHostGoAwayStopsNewRequests)
}

func testHostGoAwayStopsNewRequests(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	var reusable atomic.Bool
	reusable.Store(true)
	done := make(chan struct{})
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		head, _ := p.read()
		p.write(toyCodec{}.AppendGoAway(nil, 0))
		p.write(responseFrame(head, "last response"))
		p.read()
	}), func(o *stream.UpstreamConnOptions) {
		o.OnRelease = func(ok bool) { reusable.Store(ok); close(done) }
	}))
	p := proxy.dial()
	p.write(requestFrame(1, ""))
	if _, frame := p.read(); string(frame[toyBody:]) != "last response" {
		t.Errorf("response %q, want \"last response\"", frame)
	}
	<-done
	if reusable.Load() || upstream.client.Load().Usable(0) {
		t.Error("the connection is reusable after GOAWAY")
	}
}

func TestDrainSendsGoAwayAndFinishesInFlight(t *testing.T) {
	inBothModes(t, testDrainSendsGoAwayAndFinishesInFlight)
}

func testDrainSendsGoAwayAndFinishesInFlight(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	response := make(chan struct{})
	arrived := make(chan struct{})
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		head, _ := p.read()
		close(arrived)
		<-response
		p.write(responseFrame(head, "complete"))
		p.read()
	}), nil))
	p := proxy.dial()
	p.write(requestFrame(1, ""))
	<-arrived
	drained := make(chan int)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		drained <- proxy.ln.Drain(ctx)
	}()
	if head, _ := p.read(); head.Kind != codec.GoAway {
		t.Errorf("first frame has kind %d, want GOAWAY", head.Kind)
	}
	close(response)
	if _, frame := p.read(); string(frame[toyBody:]) != "complete" {
		t.Errorf("response %q, want \"complete\"", frame)
	}
	if _, frame := p.read(); frame != nil {
		t.Errorf("another frame after the response: %q, want EOF", frame)
	}
	if forceClosed := <-drained; forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
}

// optInGoAwayCodec is a protocol in which GOAWAY is opt-in, because many peers do not support it.
type optInGoAwayCodec struct{ toyCodec }

var optInGoAwayTraits = codec.Traits{Name: "opt-in", Version: "opt-in/1", MaxID: 1<<63 - 1, FrameHeaderLen: toyHead, OptInGoAway: true}

func (optInGoAwayCodec) Traits() *codec.Traits { return &optInGoAwayTraits }

func TestOptInGoAwayIsSentOnlyIfConfigured(t *testing.T) {
	for _, sendGoAway := range []bool{false, true} {
		arrived, response := make(chan struct{}), make(chan struct{})
		proxy := newTestProxyWithCodec(t, optInGoAwayCodec{}, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			x.Detach()
			close(arrived)
			<-response
			return protocol.NewFault(protocol.ReasonDenied, nil)
		}), func(o *stream.ServerOptions) { o.RPC.SendGoAway = sendGoAway })
		p := proxy.dial()
		p.write(requestFrame(1, ""))
		<-arrived
		drained := make(chan int)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			drained <- proxy.ln.Drain(ctx)
		}()
		if sendGoAway {
			if head, _ := p.read(); head.Kind != codec.GoAway {
				t.Errorf("first frame has kind %d, want GOAWAY", head.Kind)
			}
		}
		close(response)
		if head, _ := p.read(); head.Kind != codec.Response {
			t.Errorf("frame has kind %d, want the response", head.Kind)
		}
		if forceClosed := <-drained; forceClosed != 0 {
			t.Errorf("%d connections were force-closed, want 0", forceClosed)
		}
	}
}

// TestDrainRespondsToClientThatKeepsSending verifies that a client that gets no GOAWAY and keeps
// sending gets a response to each request that arrives before the connection ends, and that no
// connection is force-closed.
func TestDrainRespondsToClientThatKeepsSending(t *testing.T) {
	proxy := newTestProxyWithCodec(t, optInGoAwayCodec{}, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		return protocol.NewFault(protocol.ReasonDenied, nil)
	}), nil)
	p := proxy.dial()
	drained := make(chan int)
	responded := uint32(0)
	for id := uint32(1); ; id++ { // sequential requests; the last one gets no response
		if id == 2 { // an idle connection would end immediately
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				drained <- proxy.ln.Drain(ctx)
			}()
		}
		if _, err := p.conn.Write(requestFrame(uint64(id), "")); err != nil {
			break
		}
		head, frame := p.read()
		if frame == nil {
			_ = p.conn.Close()
			break
		}
		if head.ID != uint64(id) {
			t.Fatalf("response to request %d, want %d", head.ID, id)
		}
		responded = id
	}
	if forceClosed := <-drained; forceClosed != 0 || responded < 10 {
		t.Errorf("%d connections were force-closed, %d responses; want 0 and at least 10", forceClosed, responded)
	}
}

// TestDrainEndsDespiteStuckRequest verifies that the drain force-closes a connection whose request
// does not end in time.
func TestDrainEndsDespiteStuckRequest(t *testing.T) {
	inBothModes(t, func(t *testing.T, upstream *forwardService) {
		proxy := newTestProxy(t, upstream.service(), nil)
		arrived := make(chan struct{})
		upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
			p.read()
			close(arrived)
			p.read() // sends no response
		}), nil))
		p := proxy.dial()
		p.write(requestFrame(1, ""))
		<-arrived
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if forceClosed := proxy.ln.Drain(ctx); forceClosed != 1 {
			t.Errorf("%d connections were force-closed, want 1", forceClosed)
		}
	})
}

func TestPanicEndsOnlyItsRequest(t *testing.T) {
	proxy := newTestProxy(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if x.Request.ContentLength > 0 {
			panic("a defect")
		}
		return protocol.NewFault(protocol.ReasonDenied, nil)
	}), nil)
	p := proxy.dial()
	p.write(append(requestFrame(1, "x"), requestFrame(2, "")...))
	for _, want := range []protocol.Reason{protocol.Internal, protocol.ReasonDenied} {
		if _, frame := p.read(); protocol.Reason(frame[2]) != want {
			t.Errorf("response %v, want %v", protocol.Reason(frame[2]), want)
		}
	}
}

func TestClientTimeoutIsForwardedReduced(t *testing.T) {
	upstream := &forwardService{}
	proxy := newTestProxy(t, protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		x.Deadline = x.Deadline.Add(-400 * time.Millisecond)
		return upstream.Serve(ctx, x)
	}), nil)
	got := make(chan uint32, 1)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		head, frame := p.read()
		got <- binary.BigEndian.Uint32(frame[toyHead:])
		p.write(responseFrame(head, ""))
		p.read()
	}), nil))
	p := proxy.dial()
	p.write(appendToy(nil, codec.Request, 0, time.Second, "svc m\x00"))
	p.read()
	if ms := <-got; ms > 600 || ms < 500 {
		t.Errorf("the host got a timeout of %d ms, want 500 to 600", ms)
	}
}

func TestErrorResponseText(t *testing.T) {
	proxy := newTestProxy(t, denyAll, nil)
	p := proxy.dial()
	p.write(requestFrame(1, ""))
	_, frame := p.read()
	if got, want := string(frame[toyBody:]), "weft: denied [svc.echo], listener test"; got != want {
		t.Errorf("error response %q, want %q", got, want)
	}
}

// TestIDsAreNotReused verifies that the table skips the slots of pending calls, and is exhausted
// before its ids run out.
func TestIDsAreNotReused(t *testing.T) {
	var table callTable
	table.max = minFreeIDs + 1000
	seen := map[uint64]bool{}
	var pending []uint64
	for i := 0; !table.exhausted(); i++ {
		id := table.add(new(call))
		if seen[id] {
			t.Fatalf("id %d was assigned twice", id)
		}
		seen[id] = true
		if i%3 == 0 {
			pending = append(pending, id)
		} else if table.remove(id) == nil {
			t.Fatalf("id %d is not in the table", id)
		}
	}
	for _, id := range pending {
		if k := table.remove(id); k == nil || k.id != id {
			t.Fatalf("id %d is not in the table", id)
		}
	}
	if table.used != 0 || table.last > table.max {
		t.Errorf("%d calls remain, last id %d of %d, want 0 calls", table.used, table.last, table.max)
	}
}

func TestInFlightRequestsComplete(t *testing.T) {
	const conns, requestsPerConn = 20, 500
	upstream := &forwardService{}
	proxy := newTestProxy(t, upstream.service(), nil)
	proxy.dropObservations.Store(true)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		var heads []codec.Frame
		for range conns * requestsPerConn {
			head, frame := p.read()
			if frame == nil {
				return
			}
			heads = append(heads, head)
		}
		var out []byte
		for _, head := range heads {
			out = append(out, responseFrame(head, "done")...)
		}
		p.write(out)
		p.read()
	}), nil))
	peers := make([]*peer, conns)
	for i := range peers {
		peers[i] = proxy.dial()
		var out []byte
		for id := range uint64(requestsPerConn) {
			out = append(out, requestFrame(id, fmt.Sprint(i))...)
		}
		peers[i].write(out)
	}
	for _, p := range peers {
		for range requestsPerConn {
			if _, frame := p.read(); string(frame[toyBody:]) != "done" {
				t.Fatalf("response %q, want \"done\"", frame)
			}
		}
	}
}
