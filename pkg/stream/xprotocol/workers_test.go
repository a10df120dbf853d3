package xprotocol

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// blockingService is a service that blocks on something other than its upstream.
type blockingService struct{ started, release chan struct{} }

func (s blockingService) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, s)
}

func (s blockingService) Serve(_ context.Context, x *protocol.Exchange) error {
	x.Detach()
	s.started <- struct{}{}
	<-s.release
	return protocol.Faultf(protocol.ReasonNoRoute, "released")
}

// TestExchangesBeyondWorkersAreRejected verifies that an exchange is rejected as overloaded
// immediately if all worker slots are reserved, that the reader of the connection does not block,
// and that queued exchanges are served.
func TestExchangesBeyondWorkersAreRejected(t *testing.T) {
	const running, reserved = 2, 5
	service := blockingService{make(chan struct{}, 100), make(chan struct{})}
	proxy := newTestProxyWithEngine(t, toyCodec{}, service, nil, func(e *Engine) {
		e.workers = stream.NewWorkers(stream.WorkerLimits{MaxRunning: running, MaxReserved: reserved}, (*request).resumeFiberOnWorker)
	})
	p := proxy.dial()
	for id := range uint64(reserved) {
		p.write(requestFrame(id+1, "first"))
	}
	for range running {
		<-service.started
	}
	p.write(requestFrame(100, "beyond the limit"))
	head, frame := p.read()
	if frame == nil || head.ID != 100 || head.Kind != codec.Response {
		t.Fatalf("the first response is to %d, want the rejection of 100", head.ID)
	}
	close(service.release)
	responded := map[uint64]bool{}
	for range reserved {
		head, frame := p.read()
		if frame == nil {
			t.Fatal("a queued exchange got no response")
		}
		responded[head.ID] = true
	}
	if len(responded) != reserved || responded[100] {
		t.Errorf("responses %v, want one for each exchange with a slot", responded)
	}
	p.write(requestFrame(101, "after a release"))
	if head, frame := p.read(); frame == nil || head.ID != 101 {
		t.Errorf("response to %d, want 101", head.ID)
	}
	reasons := map[protocol.Reason]int{}
	proxy.await(func() bool { return len(proxy.observed) == reserved+2 }) // workers record after the response
	for _, o := range proxy.recorded() {
		reasons[o.reason]++
	}
	if reasons[protocol.Overloaded] != 1 || reasons[protocol.ReasonNoRoute] != reserved+1 {
		t.Errorf("recorded: %v, want one %v and %d %v", reasons, protocol.Overloaded, reserved+1, protocol.ReasonNoRoute)
	}
}
