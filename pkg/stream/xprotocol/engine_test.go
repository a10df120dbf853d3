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

// forwardService is a service that sends every request on one connection. The test sets client
// before it sends requests.
type forwardService struct {
	client   atomic.Pointer[UpstreamConn]
	blocking bool // Serve runs on a fiber
}

func (f *forwardService) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, f)
}

func (f *forwardService) Serve(ctx context.Context, x *protocol.Exchange) error {
	return x.Serve(ctx, f.client.Load())
}

// service returns the asynchronous form of f, or f itself if blocking is set.
func (f *forwardService) service() protocol.Service {
	if f.blocking {
		return f
	}
	return asyncForwardService{f}
}

// asyncForwardService is the asynchronous form of forwardService.
type asyncForwardService struct{ *forwardService }

func (f asyncForwardService) Start(ctx context.Context, x *protocol.Exchange) error {
	return f.client.Load().Start(ctx, x)
}

// inBothModes runs a test with an asynchronous service and with a blocking one.
func inBothModes(t *testing.T, test func(t *testing.T, upstream *forwardService)) {
	t.Helper()
	t.Run("asynchronous", func(t *testing.T) { test(t, &forwardService{}) })
	t.Run("blocking", func(t *testing.T) { test(t, &forwardService{blocking: true}) })
}

// echo is a host that responds to every request with the text of the request.
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

func testConcurrentResponsesHaveClientIDs(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	upstream.client.Store(proxy.client(startHost(t, echo), nil))
	p := proxy.dial()
	const n = 1000
	var frames []byte
	for i := range uint64(n) {
		frames = append(frames, requestFrame(1000+7*i, fmt.Sprint("text ", i))...)
	}
	p.write(frames)
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

func testResponsesOutOfOrder(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
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
	p := proxy.dial()
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

func testHostFailureFailsRequestsImmediately(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		for range 5 {
			p.read()
		}
	}), nil))
	p := proxy.dial()
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
		t.Error("Usable = true after the host closed the connection, want false")
	}
}

func TestDisconnectEndsRequests(t *testing.T) {
	inBothModes(t, testDisconnectEndsRequests)
}

func testDisconnectEndsRequests(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	arrived := make(chan struct{}, 3)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		for {
			if _, frame := p.read(); frame == nil {
				return
			}
			arrived <- struct{}{}
		}
	}), nil))
	p := proxy.dial()
	for i := range uint64(3) {
		p.write(requestFrame(i, ""))
	}
	for range 3 {
		<-arrived
	}
	_ = p.conn.Close()
	proxy.await(func() bool { return len(proxy.observed) == 3 })
	for _, o := range proxy.observed {
		if o.reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("recorded as %v, want %v", o.reason, protocol.ReasonDownstreamDisconnect)
		}
	}
}

func TestDeadlineEndsWait(t *testing.T) { inBothModes(t, testDeadlineEndsWait) }

func testDeadlineEndsWait(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		p.read()
		p.read()
	}), nil))
	p := proxy.dial()
	b := appendToy(nil, codec.Request, 0, 30*time.Millisecond, "svc slow\x00")
	start := time.Now()
	p.write(b)
	_, frame := p.read()
	if got := protocol.Reason(frame[2]); got != protocol.UpstreamTimeout {
		t.Errorf("response %v, want %v", got, protocol.UpstreamTimeout)
	}
	if d := time.Since(start); d < 30*time.Millisecond || d > 5*time.Second {
		t.Errorf("response after %v, want 30ms to 5s", d)
	}
}

func TestBlockingServiceDoesNotBlockOthers(t *testing.T) {
	release := make(chan struct{})
	proxy := newTestProxy(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if x.Request.ContentLength > 0 {
			x.Detach()
			<-release
		}
		x.LocalReply(403, "", "")
		return nil
	}), nil)
	p := proxy.dial()
	p.write(requestFrame(1, "wait"))
	p.write(requestFrame(2, ""))
	if head, _ := p.read(); head.ID != 2 {
		t.Errorf("the first response has id %d, want 2", head.ID)
	}
	close(release)
	if head, frame := p.read(); head.ID != 1 || protocol.Reason(frame[2]) != protocol.ReasonDenied {
		t.Errorf("response to id %d: %v, want %v to id 1", head.ID, protocol.Reason(frame[2]), protocol.ReasonDenied)
	}
}

func TestOneWayRequestsGetNoResponse(t *testing.T) {
	inBothModes(t, testOneWayRequestsGetNoResponse)
}

func testOneWayRequestsGetNoResponse(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	got := make(chan codec.Kind, 2)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		for {
			head, frame := p.read()
			if frame == nil {
				return
			}
			got <- head.Kind
			if head.Kind == codec.Request {
				p.write(responseFrame(head, "ok"))
			}
		}
	}), nil))
	p := proxy.dial()
	p.write(appendToy(nil, codec.OneWay, 0, 0, "svc notify\x00x"))
	p.write(appendToy(nil, codec.OneWay, 0, 0, "no target: malformed"))
	p.write(requestFrame(5, ""))
	if head, _ := p.read(); head.ID != 5 {
		t.Errorf("the first response has id %d, want 5", head.ID)
	}
	if a, b := <-got, <-got; a != codec.OneWay || b != codec.Request {
		t.Errorf("the host received %v and %v, want %v and %v", a, b, codec.OneWay, codec.Request)
	}
}

func TestHeartbeatsAreAcknowledged(t *testing.T) {
	proxy := newTestProxy(t, &forwardService{}, nil)
	p := proxy.dial()
	p.write(appendToyID(nil, codec.Heartbeat, 77, ""))
	if head, _ := p.read(); head.Kind != codec.HeartbeatAck || head.ID != 77 {
		t.Errorf("frame %+v, want the acknowledgment of heartbeat 77", head)
	}
}

func TestMalformedInputClosesConnectionAndIsRecorded(t *testing.T) {
	proxy := newTestProxy(t, &forwardService{}, nil)
	p := proxy.dial()
	p.write([]byte("GET / HTTP/1.1\r\n\r\n"))
	if _, frame := p.read(); frame != nil {
		t.Errorf("response %q to malformed input, want EOF", frame)
	}
	proxy.await(func() bool { return len(proxy.observed) == 1 })
	if got := proxy.observed[0].reason; got != protocol.MalformedRequest {
		t.Errorf("recorded as %v, want %v", got, protocol.MalformedRequest)
	}
}

// await waits until condition returns true. It calls condition while it holds p.mu.
func (p *testProxy) await(condition func() bool) {
	p.t.Helper()
	if !await(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return condition()
	}) {
		p.t.FailNow()
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
