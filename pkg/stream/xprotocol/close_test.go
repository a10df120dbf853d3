package xprotocol

import (
	"strings"
	"testing"

	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestCloseSendsOneWayRequest verifies that a one-way request is sent although the pool closes the
// connection in OnRelease.
func TestCloseSendsOneWayRequest(t *testing.T) {
	inBothModes(t, testCloseSendsOneWayRequest)
}

func testCloseSendsOneWayRequest(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	got := make(chan codec.Frame, 3)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		for {
			head, frame := p.read()
			if frame == nil {
				close(got)
				return
			}
			got <- head
		}
	}), func(o *stream.UpstreamConnOptions) {
		o.OnRelease = func(bool) { _ = upstream.client.Load().Close() }
	}))
	p := proxy.dial()
	p.write(appendToy(nil, codec.OneWay, 0, 0, "svc notify\x00x"))
	if head, ok := <-got; !ok || head.Kind != codec.OneWay {
		t.Errorf("the host got %v, %v, want the request", head, ok)
	}
}

// TestCloseSendsOneWayRequestToSlowHost verifies that a one-way request is sent completely to a
// host that reads nothing until Weft has closed the connection.
func TestCloseSendsOneWayRequestToSlowHost(t *testing.T) {
	inBothModes(t, testCloseSendsOneWayRequestToSlowHost)
}

func testCloseSendsOneWayRequestToSlowHost(t *testing.T, upstream *forwardService) {
	proxy := newTestProxy(t, upstream.service(), nil)
	closed, got := make(chan struct{}), make(chan int, 1)
	upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
		<-closed
		_, frame := p.read()
		got <- len(frame)
	}), func(o *stream.UpstreamConnOptions) {
		o.OnRelease = func(bool) {
			_ = upstream.client.Load().Close()
			close(closed)
		}
		o.RPC.HeartbeatInterval = 0 // on a busy machine, the request may take longer to arrive
	}))
	sent := appendToy(nil, codec.OneWay, 0, 0, "svc notify\x00"+strings.Repeat("x", 7<<20)) // more than sockets hold
	p := proxy.dial()
	p.write(sent)
	if n := <-got; n != len(sent) {
		t.Errorf("the host got %d bytes, want %d", n, len(sent))
	}
}
