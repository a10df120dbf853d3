package xprotocol

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// forwardTo is a service that sends every request on one connection. The test sets client before it
// sends requests.
type forwardTo struct {
	client atomic.Pointer[UpstreamConn]
	whole  bool // runs blocking, on a stack of its own
}

func (f *forwardTo) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, f)
}

func (f *forwardTo) Serve(ctx context.Context, x *protocol.Exchange) error {
	return x.Serve(ctx, f.client.Load())
}

// service returns the asynchronous form of f, or f itself if whole is set.
func (f *forwardTo) service() protocol.Service {
	if f.whole {
		return f
	}
	return asyncForwardTo{f}
}

// asyncForwardTo is the asynchronous form of forwardTo.
type asyncForwardTo struct{ *forwardTo }

func (f asyncForwardTo) Start(ctx context.Context, x *protocol.Exchange) error {
	return f.client.Load().Start(ctx, x)
}

// inBothModes runs a test with an asynchronous service and with a blocking one.
func inBothModes(t *testing.T, test func(t *testing.T, upstream *forwardTo)) {
	t.Helper()
	t.Run("asynchronous", func(t *testing.T) { test(t, &forwardTo{}) })
	t.Run("blocking", func(t *testing.T) { test(t, &forwardTo{whole: true}) })
}

// echo responds to every request with its own text.
func echo(p *peer) {
	for {
		head, frame := p.read()
		if frame == nil {
			return
		}
		if head.Kind == codec.Request {
			_, text, _ := strings.Cut(string(frame[toyBody:]), "\x00")
			p.write(responseFrame(head, text))
		}
	}
}

func TestConcurrentResponsesHaveClientIDs(t *testing.T) {
	inBothModes(t, testConcurrentResponsesHaveClientIDs)
}

func testConcurrentResponsesHaveClientIDs(t *testing.T, upstream *forwardTo) {
	r := newRig(t, upstream.service(), nil)
	upstream.client.Store(r.client(startHost(t, echo), nil))
	p := r.dial()
	const n = 1000
	var all []byte
	for i := range uint64(n) {
		all = append(all, requestFrame(1000+7*i, fmt.Sprint("text ", i))...)
	}
	p.write(all)
	seen := map[uint64]bool{}
	for range n {
		head, frame := p.read()
		i := (head.ID - 1000) / 7
		if got, want := string(frame[toyBody:]), fmt.Sprint("text ", i); got != want || seen[i] {
			t.Fatalf("id %d: response %q, want %q", head.ID, got, want)
		}
		seen[i] = true
	}
}

func TestResponsesOutOfOrder(t *testing.T) { inBothModes(t, testResponsesOutOfOrder) }

func testResponsesOutOfOrder(t *testing.T, upstream *forwardTo) {
	r := newRig(t, upstream.service(), nil)
	upstream.client.Store(r.client(startHost(t, func(p *peer) {
		var heads []codec.Frame
		for range 3 {
			head, _ := p.read()
			heads = append(heads, head)
		}
		for _, i := range []int{2, 0, 1} {
			p.write(responseFrame(heads[i], fmt.Sprint(i)))
		}
		p.read()
	}), nil))
	p := r.dial()
	for i := range uint64(3) {
		p.write(requestFrame(10+i, ""))
	}
	for range 3 {
		head, frame := p.read()
		if got, want := string(frame[toyBody:]), fmt.Sprint(head.ID-10); got != want {
			t.Errorf("id %d: response %s, want %s", head.ID, got, want)
		}
	}
}

func TestHostFailureFailsRequestsImmediately(t *testing.T) {
	inBothModes(t, testHostFailureFailsRequestsImmediately)
}

func testHostFailureFailsRequestsImmediately(t *testing.T, upstream *forwardTo) {
	r := newRig(t, upstream.service(), nil)
	upstream.client.Store(r.client(startHost(t, func(p *peer) {
		for range 5 {
			p.read()
		}
	}), nil))
	p := r.dial()
	for i := range uint64(5) {
		p.write(requestFrame(i, ""))
	}
	for range 5 {
		_, frame := p.read()
		if got := protocol.Reason(frame[2]); got != protocol.UpstreamClosed {
			t.Errorf("response %v, want %v", got, protocol.UpstreamClosed)
		}
	}
	if upstream.client.Load().Usable(0) {
		t.Error("Usable = true after the host closed the connection")
	}
}

func TestDisconnectEndsRequests(t *testing.T) {
	inBothModes(t, testDisconnectEndsRequests)
}

func testDisconnectEndsRequests(t *testing.T, upstream *forwardTo) {
	r := newRig(t, upstream.service(), nil)
	arrived := make(chan struct{}, 3)
	upstream.client.Store(r.client(startHost(t, func(p *peer) {
		for {
			if _, frame := p.read(); frame == nil {
				return
			}
			arrived <- struct{}{}
		}
	}), nil))
	p := r.dial()
	for i := range uint64(3) {
		p.write(requestFrame(i, ""))
	}
	for range 3 {
		<-arrived
	}
	_ = p.conn.Close()
	r.await(func() bool { return len(r.observed) == 3 })
	for _, o := range r.observed {
		if o.reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("recorded as %v", o.reason)
		}
	}
}

func TestDeadlineEndsWait(t *testing.T) { inBothModes(t, testDeadlineEndsWait) }

func testDeadlineEndsWait(t *testing.T, upstream *forwardTo) {
	r := newRig(t, upstream.service(), nil)
	upstream.client.Store(r.client(startHost(t, func(p *peer) {
		p.read()
		p.read()
	}), nil))
	p := r.dial()
	b := appendToy(nil, codec.Request, 0, 30*time.Millisecond, "svc slow\x00")
	begin := time.Now()
	p.write(b)
	_, frame := p.read()
	if got := protocol.Reason(frame[2]); got != protocol.UpstreamTimeout {
		t.Errorf("response %v, want %v", got, protocol.UpstreamTimeout)
	}
	if d := time.Since(begin); d < 30*time.Millisecond || d > 5*time.Second {
		t.Errorf("response after %v, want 30ms to 5s", d)
	}
}

func TestBlockingServiceDoesNotBlockOthers(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if x.Request.ContentLength > 0 {
			x.Detach()
			<-release
		}
		x.LocalReply(403, "", "")
		return nil
	}), nil)
	p := r.dial()
	p.write(requestFrame(1, "wait"))
	p.write(requestFrame(2, ""))
	if head, _ := p.read(); head.ID != 2 {
		t.Errorf("the first response has id %d, want 2", head.ID)
	}
	close(release)
	if head, frame := p.read(); head.ID != 1 || protocol.Reason(frame[2]) != protocol.ReasonDenied {
		t.Errorf("id %d, %v", head.ID, protocol.Reason(frame[2]))
	}
}

func TestOneWayRequestsGetNoResponse(t *testing.T) {
	inBothModes(t, testOneWayRequestsGetNoResponse)
}

func testOneWayRequestsGetNoResponse(t *testing.T, upstream *forwardTo) {
	r := newRig(t, upstream.service(), nil)
	got := make(chan codec.Kind, 2)
	upstream.client.Store(r.client(startHost(t, func(p *peer) {
		for {
			head, frame := p.read()
			if frame == nil {
				return
			}
			got <- head.Kind
			if head.Kind == codec.Request {
				p.write(responseFrame(head, "yes"))
			}
		}
	}), nil))
	p := r.dial()
	p.write(appendToy(nil, codec.OneWay, 0, 0, "svc tell\x00x"))
	p.write(appendToy(nil, codec.OneWay, 0, 0, "no target: malformed"))
	p.write(requestFrame(5, ""))
	if head, _ := p.read(); head.ID != 5 {
		t.Errorf("the first response has id %d, want 5", head.ID)
	}
	if a, b := <-got, <-got; a != codec.OneWay || b != codec.Request {
		t.Errorf("the host received %v and %v", a, b)
	}
}

func TestHeartbeatsAreAcknowledged(t *testing.T) {
	r := newRig(t, &forwardTo{}, nil)
	p := r.dial()
	p.write(appendToyID(nil, codec.Heartbeat, 77, ""))
	if head, _ := p.read(); head.Kind != codec.HeartbeatAck || head.ID != 77 {
		t.Errorf("%+v", head)
	}
}

func TestMalformedInputClosesConnectionAndIsRecorded(t *testing.T) {
	r := newRig(t, &forwardTo{}, nil)
	p := r.dial()
	p.write([]byte("GET / HTTP/1.1\r\n\r\n"))
	if _, frame := p.read(); frame != nil {
		t.Errorf("response %q to malformed input", frame)
	}
	r.await(func() bool { return len(r.observed) == 1 })
	if got := r.observed[0].reason; got != protocol.MalformedRequest {
		t.Errorf("recorded as %v", got)
	}
}

// await waits until condition returns true. It calls condition with r.mu held.
func (r *rig) await(condition func() bool) {
	r.t.Helper()
	if !await(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return condition()
	}) {
		r.t.FailNow()
	}
}

// await polls condition until it returns true. After ten seconds it marks the test as failed and
// returns false.
func await(t testing.TB, condition func() bool) bool {
	t.Helper()
	timeout := time.After(10 * time.Second)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Error("timeout waiting for a condition")
			return false
		}
	}
	return true
}
