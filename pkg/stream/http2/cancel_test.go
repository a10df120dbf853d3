package http2

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// countingService responds to exchanges and counts them.
type countingService struct{ count atomic.Int64 }

func (s *countingService) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, s)
}

func (s *countingService) Serve(_ context.Context, x *protocol.Exchange) error {
	s.count.Add(1)
	x.LocalReply(200, "text/plain", "ok")
	return nil
}

// TestStreamResetInSameReadIsNotServed sends several hundred requests, each followed by its
// RST_STREAM, and one that is not reset, in one write. It verifies that only the last one is
// served, and that the others are recorded as disconnects.
func TestStreamResetInSameReadIsNotServed(t *testing.T) {
	const resets = 400 // too few to end the connection
	for name, onWorkers := range map[string]bool{"on the reader": false, "on workers": true} {
		t.Run(name, func(t *testing.T) {
			s := new(countingService)
			service := protocol.Service(s)
			if !onWorkers {
				service = inlineService{s}
			}
			r := newRig(t, service, nil)
			p := r.dial()
			conn := p.conn
			var burst bytes.Buffer
			p.fr = http2.NewFramer(&burst, conn)
			p.fr.ReadMetaHeaders = newDecoder()
			for i := range uint32(resets) {
				p.request(2*i+1, true)
				p.must(p.fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
			}
			p.request(2*resets+1, true)
			// One write may still arrive in several reads. At each boundary, a request may arrive
			// without its RST_STREAM.
			if _, err := conn.Write(burst.Bytes()); err != nil {
				t.Fatal(err)
			}
			for range resets + 1 {
				r.awaitRecord()
			}
			const boundaries = 4
			if got := s.count.Load(); got < 1 || got > 1+boundaries {
				t.Errorf("%d requests were served, want 1 to 1+%d", got, boundaries)
			}
			disconnects := 0
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, o := range r.observed {
				if o.reason == protocol.ReasonDownstreamDisconnect {
					disconnects++
				}
			}
			if disconnects < resets-boundaries {
				t.Errorf("%d requests were recorded as disconnects, want at least %d", disconnects, resets-boundaries)
			}
		})
	}
}

// inlineService serves on the goroutine of the reader.
type inlineService struct{ protocol.BlockingService }

func (s inlineService) Start(ctx context.Context, x *protocol.Exchange) error { return s.Serve(ctx, x) }

// TestConnectionEndsWhenClientDisconnects verifies that a connection ends if its client sends
// requests and closes the connection immediately.
func TestConnectionEndsWhenClientDisconnects(t *testing.T) {
	r := newRig(t, new(countingService), nil)
	p := r.dial()
	for i := range uint32(100) {
		p.request(2*i+1, true)
	}
	_ = p.conn.(*net.TCPConn).SetLinger(0)
	_ = p.conn.Close()
	if !eventually(func() bool { return r.ln.Connections() == 0 }) {
		t.Errorf("%d connections are still open, want 0", r.ln.Connections())
	}
}

// TestCanceledAfterReset verifies that Canceled returns true once the client has reset the stream.
func TestCanceledAfterReset(t *testing.T) {
	started, canceled := make(chan struct{}), make(chan bool, 2)
	r := newRig(t, serviceFunc(func(x *protocol.Exchange) error {
		canceled <- x.Canceled()
		disconnected := make(chan struct{})
		defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
		close(started)
		<-disconnected
		canceled <- x.Canceled()
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection")
	}), nil)
	p := r.dial()
	p.request(1, true)
	awaitClosed(t, started, "start of the request")
	p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	if before, after := <-canceled, <-canceled; before || !after {
		t.Errorf("Canceled = %v before the reset, %v after it; want false, true", before, after)
	}
	r.awaitRecord()
}

type serviceFunc func(x *protocol.Exchange) error

func (f serviceFunc) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, f)
}

func (f serviceFunc) Serve(_ context.Context, x *protocol.Exchange) error { return f(x) }

// TestExchangeBeyondWorkersGets503 verifies that an exchange gets 503 immediately when all worker
// slots are reserved, and that the connection continues.
func TestExchangeBeyondWorkersGets503(t *testing.T) {
	h := newHeldService()
	r := newRigOn(t, h, nil, func(e *Engine) {
		e.workers = stream.NewWorkers(stream.WorkerLimits{MaxRunning: 1, MaxReserved: 2}, (*exchange).runOnWorker)
	})
	p := r.dial()
	p.request(1, true)
	awaitClosed(t, h.started, "start of the first request") // receives from h.started
	p.request(3, true)                                      // queued
	p.request(5, true)
	if got := p.awaitFields(5)[":status"]; got != "503" {
		t.Errorf("the request beyond the limit: status %s, want 503", got)
	}
	if o := r.awaitRecord(); o.reason != protocol.Overloaded {
		t.Errorf("recorded %+v, want %v", o, protocol.Overloaded)
	}
	// An exchange that is canceled while it is queued is not served.
	p.must(p.fr.WriteRSTStream(3, http2.ErrCodeCancel))
	p.must(p.fr.WritePing(false, [8]byte{1}))
	for {
		if f, ok := p.next().(*http2.PingFrame); ok && f.IsAck() {
			break
		}
	}
	close(h.release)
	if got := p.awaitFields(1)[":status"]; got != "200" {
		t.Errorf("the first request: status %s, want 200", got)
	}
	r.awaitRecord()
	r.awaitRecord()
	if n := len(h.started); n != 0 {
		t.Errorf("%d more requests were served, want 0", n)
	}
	// A worker releases its slot after it has recorded the exchange.
	if !eventually(func() bool { return r.engine.workers.Reserved() == 0 }) {
		t.Fatalf("%d slots are reserved at the end, want 0", r.engine.workers.Reserved())
	}
}

// TestEndlessInterimResponsesFail verifies that an exchange fails if its host sends interim
// responses endlessly.
func TestEndlessInterimResponsesFail(t *testing.T) {
	address := startHost(t, func(p *peer) {
		id := p.awaitHead()
		for range 10_000 {
			if p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.enc.block([]string{":status", "103", "link", "</a>"}), EndHeaders: true}) != nil {
				return
			}
		}
	})
	r := newProxyRig(t, address, nil, nil)
	p := r.dial()
	p.request(1, true)
	interims := 0
	for {
		fields := p.awaitFields(1)
		if fields[":status"] != "103" {
			if fields[":status"] != "502" {
				t.Errorf("response %v, want 502", fields)
			}
			break
		}
		interims++
	}
	if interims > maxInterims {
		t.Errorf("%d interim responses were forwarded, want at most %d", interims, maxInterims)
	}
	if o := r.awaitRecord(); o.reason != protocol.UpstreamMalformed {
		t.Errorf("recorded %+v, want %v", o, protocol.UpstreamMalformed)
	}
}

// TestIdleStreamGetsLocalReply verifies that a client whose stream is idle without a response gets
// 504, or 408 if its request is incomplete.
func TestIdleStreamGetsLocalReply(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    bool // the request is complete
		grpc   bool
		status string
		reason protocol.Reason
	}{
		{"complete request", true, false, "504", protocol.StreamIdle},
		{"incomplete request", false, false, "408", protocol.RequestIdle},
		{"gRPC", true, true, "200", protocol.StreamIdle},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(o *stream.ServerOptions, u *stream.UpstreamConnOptions) {
				o.HTTP2.StreamIdleTimeout, u.HTTP2.StreamIdleTimeout = time.Minute, 0
			}, func(b *bubble) {
				p := b.dial()
				if tt.grpc {
					p.request(1, tt.end, ":method", "POST", "content-type", "application/grpc", "te", "trailers")
				} else {
					p.request(1, tt.end, ":method", "POST")
				}
				id := b.awaitHostRequest(true)
				reset := make(chan struct{})
				go func() {
					defer close(reset)
					b.host.awaitReset(id)
				}()
				head := p.awaitFields(1)
				b.checkElapsed(time.Minute, "the response arrived")
				if head[":status"] != tt.status || tt.grpc && head["grpc-status"] != "14" {
					t.Errorf("response %v, want %s", head, tt.status)
				}
				if o := <-b.records; o.reason != tt.reason {
					t.Errorf("recorded %+v, want %v", o, tt.reason)
				}
				<-reset
			})
		})
	}
}
