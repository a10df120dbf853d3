package xprotocol

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// panickingCodec is a codec that panics in one method if the frame ends with "boom".
type panickingCodec struct {
	toyCodec
	method string
}

func (c panickingCodec) panicIn(method string, frame []byte) {
	if c.method == method && strings.HasSuffix(string(frame), "boom") {
		panic(method)
	}
}

func (c panickingCodec) ReadRequest(frame []byte, r *protocol.Request, v *codec.FrameView) error {
	c.panicIn("ReadRequest", frame)
	return c.toyCodec.ReadRequest(frame, r, v)
}

func (c panickingCodec) AppendRequest(dst, frame []byte, r *protocol.Request, v *codec.FrameView, remaining time.Duration) ([]byte, error) {
	c.panicIn("AppendRequest", frame)
	return c.toyCodec.AppendRequest(dst, frame, r, v, remaining)
}

func (c panickingCodec) ReadResponse(frame []byte, r *protocol.Response, v *codec.FrameView) error {
	c.panicIn("ReadResponse", frame)
	return c.toyCodec.ReadResponse(frame, r, v)
}

func (c panickingCodec) AppendResponse(dst, frame []byte, r *protocol.Response, v *codec.FrameView) ([]byte, error) {
	c.panicIn("AppendResponse", frame)
	return c.toyCodec.AppendResponse(dst, frame, r, v)
}

// TestCodecPanicEndsOnlyItsRequest verifies that a panic of the codec fails one request with an
// internal error, and that both connections continue.
func TestCodecPanicEndsOnlyItsRequest(t *testing.T) {
	for _, method := range []string{"AppendRequest", "ReadResponse", "AppendResponse"} {
		t.Run(method, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, upstream *forwardService) {
				c := panickingCodec{method: method}
				proxy := newTestProxyWithCodec(t, c, upstream.service(), nil)
				u := proxy.client(startHost(t, echo), nil)
				u.codec = c // before anything is sent
				upstream.client.Store(u)
				p := proxy.dial()
				p.write(requestFrame(1, "boom"))
				head, frame := p.read()
				if head.ID != 1 || frame == nil || protocol.Reason(frame[2]) != protocol.Internal {
					t.Fatalf("id %d: response %q, want an internal error for id 1", head.ID, frame)
				}
				for _, q := range []*peer{p, proxy.dial()} {
					q.write(requestFrame(2, "ok"))
					if head, frame = q.read(); head.ID != 2 || frame == nil || string(frame[toyBody:]) != "ok" {
						t.Errorf("next request: response %[2]q with id %[1]d, want \"ok\" with id 2", head.ID, frame)
					}
				}
			})
		})
	}
}

// TestDisconnectAtLimitIsDetected verifies that Weft detects a disconnect while MaxInFlight is
// reached and nothing reads the connection.
func TestDisconnectAtLimitIsDetected(t *testing.T) {
	inBothModes(t, func(t *testing.T, upstream *forwardService) {
		arrived, stop := make(chan struct{}), make(chan struct{})
		defer close(stop)
		proxy := newTestProxy(t, upstream.service(), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = 1 })
		upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
			p.read()
			close(arrived)
			<-stop // sends no response
		}), nil))
		p := proxy.dial()
		p.write(requestFrame(1, "x"))
		<-arrived
		_ = p.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if forceClosed := proxy.ln.Drain(ctx); forceClosed != 0 || ctx.Err() != nil {
			t.Errorf("%d connections were force-closed at the end of the drain (%v), want none", forceClosed, ctx.Err())
		}
	})
}

// TestDrainRejectsUnstartedRequests verifies that every request that arrived before the drain gets
// a response, and that the last ones are rejected: those that have not started when the drain
// deadline is near.
func TestDrainRejectsUnstartedRequests(t *testing.T) {
	const requests, served = 20, 12
	started := make(chan struct{})
	var count atomic.Int32
	proxy := newTestProxy(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		conn := x.Meta.Conn.DownstreamConn.(*network.Conn)
		x.Detach()
		switch count.Add(1) {
		case 1:
			close(started)
			await(t, conn.Draining)
		case served:
			await(t, conn.DrainExpiring)
		}
		return protocol.NewFault(protocol.ReasonDenied, nil)
	}), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = 1 })
	p := proxy.dial()
	var frames []byte
	for id := range uint64(requests) {
		frames = append(frames, requestFrame(id+1, "")...)
	}
	p.write(frames)
	<-started
	drained := make(chan int)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		drained <- proxy.ln.Drain(ctx)
	}()
	responses := map[protocol.Reason]int{}
	for {
		head, frame := p.read()
		if frame == nil {
			break
		}
		if head.Kind == codec.Response {
			responses[protocol.Reason(frame[2])]++
		}
	}
	_ = p.conn.Close()
	if responses[protocol.ReasonDenied] != served || responses[protocol.Draining] != requests-served {
		t.Errorf("responses %v, want %d from the service and %d rejections", responses, served, requests-served)
	}
	if forceClosed := <-drained; forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
}
