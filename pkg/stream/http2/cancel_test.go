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

// begun responds to exchanges and counts them.
type begun struct{ count atomic.Int64 }

func (s *begun) Serve(_ context.Context, x *protocol.Exchange) error {
	s.count.Add(1)
	x.LocalReply(200, "text/plain", "fine")
	return nil
}

// TestAStreamThatIsResetInTheSameReadNeverStarts sends several hundred requests, each followed by
// its RST_STREAM, and one that is not reset, in one write. It verifies that only the last one is
// served, and that the others are recorded as disconnects.
func TestAStreamThatIsResetInTheSameReadNeverStarts(t *testing.T) {
	const resets = 400 // too few to end the connection
	for name, forks := range map[string]bool{"on the reader": false, "on workers": true} {
		t.Run(name, func(t *testing.T) {
			s := new(begun)
			service := protocol.Service(s)
			if !forks {
				service = inPlace{s}
			}
			r := newRig(t, service, nil)
			p := r.dial()
			conn := p.conn
			var burst bytes.Buffer
			p.fr = http2.NewFramer(&burst, conn)
			p.fr.ReadMetaHeaders = newDecoder()
			for i := range uint32(resets) {
				p.request(2*i+1, true)
				p.ok(p.fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
			}
			p.request(2*resets+1, true)
			// One write may still arrive in several reads. At each boundary, a request may arrive
			// without its RST_STREAM.
			if _, err := conn.Write(burst.Bytes()); err != nil {
				t.Fatal(err)
			}
			for range resets + 1 {
				r.last()
			}
			const boundaries = 4
			if got := s.count.Load(); got < 1 || got > 1+boundaries {
				t.Errorf("%d requests were served, want the one that was not reset, and %d more at most", got, boundaries)
			}
			gone := 0
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, o := range r.observed {
				if o.reason == protocol.ReasonDownstreamDisconnect {
					gone++
				}
			}
			if gone < resets-boundaries {
				t.Errorf("%d requests were recorded as given up by their callers, want %d", gone, resets)
			}
		})
	}
}

// inPlace serves on the goroutine of the reader.
type inPlace struct{ protocol.Service }

func (s inPlace) Start(ctx context.Context, x *protocol.Exchange) error { return s.Serve(ctx, x) }

// TestACallerThatSendsAndLeavesIsNotServed verifies that a connection ends whose client sends
// requests and closes it immediately.
func TestACallerThatSendsAndLeavesIsNotServed(t *testing.T) {
	r := newRig(t, new(begun), nil)
	p := r.dial()
	for i := range uint32(100) {
		p.request(2*i+1, true)
	}
	_ = p.conn.(*net.TCPConn).SetLinger(0)
	_ = p.conn.Close()
	until := time.Now().Add(soon)
	for r.ln.Connections() > 0 && time.Now().Before(until) {
		<-time.After(time.Millisecond)
	}
	if n := r.ln.Connections(); n != 0 {
		t.Errorf("%d connections are still served", n)
	}
}

// TestAnExchangeKnowsThatItWasCanceled verifies that Canceled returns true once the client has
// reset the stream.
func TestAnExchangeKnowsThatItWasCanceled(t *testing.T) {
	asked, told := make(chan struct{}), make(chan bool, 2)
	r := newRig(t, serviceFunc(func(x *protocol.Exchange) error {
		told <- x.Canceled()
		gone := make(chan struct{})
		defer x.Caller.OnDisconnect(func() { close(gone) })()
		close(asked)
		<-gone
		told <- x.Canceled()
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection")
	}), nil)
	p := r.dial()
	p.request(1, true)
	within(t, asked, "the request is served")
	p.ok(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	if before, after := <-told, <-told; before || !after {
		t.Errorf("canceled: %v before the reset, %v behind it", before, after)
	}
	r.last()
}

type serviceFunc func(x *protocol.Exchange) error

func (f serviceFunc) Serve(_ context.Context, x *protocol.Exchange) error { return f(x) }

// TestAnExchangeBeyondTheWorkersIsRefused verifies that an exchange gets 503 immediately when all
// worker slots are reserved, and that the connection continues.
func TestAnExchangeBeyondTheWorkersIsRefused(t *testing.T) {
	h := newHeld()
	r := newRigOn(t, h, nil, func(e *Engine) {
		e.workers = stream.NewWorkers(stream.WorkerLimits{Running: 1, Reserved: 2}, (*exchange).work)
	})
	p := r.dial()
	p.request(1, true)
	within(t, h.begun, "the first request is served") // receives from h.begun
	p.request(3, true)                                // queued
	p.request(5, true)
	if got := p.head(5)[":status"]; got != "503" {
		t.Errorf("the request beyond the limit is answered with %s, want 503", got)
	}
	if o := r.last(); o.reason != protocol.Overloaded {
		t.Errorf("recorded %+v, want %v", o, protocol.Overloaded)
	}
	// An exchange that is canceled while it is queued is not served.
	p.ok(p.fr.WriteRSTStream(3, http2.ErrCodeCancel))
	p.ok(p.fr.WritePing(false, [8]byte{1}))
	for {
		if f, ok := p.next().(*http2.PingFrame); ok && f.IsAck() {
			break
		}
	}
	close(h.let)
	if got := p.head(1)[":status"]; got != "200" {
		t.Errorf("the first request is answered with %s, want 200", got)
	}
	r.last()
	r.last()
	if n := len(h.begun); n != 0 {
		t.Errorf("%d more requests were served", n)
	}
	// A worker releases its slot after it has recorded the exchange.
	late, look := time.After(10*time.Second), time.NewTicker(time.Millisecond)
	defer look.Stop()
	for r.engine.workers.Reserved() != 0 {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("%d places are reserved at the end", r.engine.workers.Reserved())
		}
	}
}

// TestAHostThatInformsWithoutEnd verifies that an exchange fails whose host sends interim responses
// endlessly.
func TestAHostThatInformsWithoutEnd(t *testing.T) {
	address := host(t, func(p *peer) {
		id := p.awaitHead()
		for range 10_000 {
			if p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.enc.block([]string{":status", "103", "link", "</a>"}), EndHeaders: true}) != nil {
				return
			}
		}
	})
	r := proxied(t, address, nil, nil)
	p := r.dial()
	p.request(1, true)
	interims := 0
	for {
		head := p.head(1)
		if head[":status"] != "103" {
			if head[":status"] != "502" {
				t.Errorf("answered with %v, want 502", head)
			}
			break
		}
		interims++
	}
	if interims > maxInterims {
		t.Errorf("%d interim responses were passed on, want at most %d", interims, maxInterims)
	}
	if o := r.last(); o.reason != protocol.UpstreamMalformed {
		t.Errorf("recorded %+v, want %v", o, protocol.UpstreamMalformed)
	}
}

// TestAnIdleStreamIsAnsweredBeforeItIsReset verifies that a client whose stream is idle without a
// response gets 504, or 408 if its request is incomplete.
func TestAnIdleStreamIsAnsweredBeforeItIsReset(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    bool // the request is complete
		grpc   bool
		status string
		reason protocol.Reason
	}{
		{"whole request", true, false, "504", protocol.StreamIdle},
		{"partial request", false, false, "408", protocol.RequestIdle},
		{"gRPC", true, true, "200", protocol.StreamIdle},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(o *stream.ServerOptions, u *stream.UpstreamConnOptions) {
				o.HTTP2.StreamIdleTimeout, u.HTTP2.StreamIdleTimeout = time.Minute, 0
			}, func(b *bubble) {
				p := b.caller()
				if tt.grpc {
					p.request(1, tt.end, ":method", "POST", "content-type", "application/grpc", "te", "trailers")
				} else {
					p.request(1, tt.end, ":method", "POST")
				}
				id := b.asked(true)
				reset := make(chan struct{})
				go func() {
					defer close(reset)
					b.host.resetOf(id)
				}()
				head := p.head(1)
				b.at(time.Minute, "the answer came")
				if head[":status"] != tt.status || tt.grpc && head["grpc-status"] != "14" {
					t.Errorf("answered with %v, want %s", head, tt.status)
				}
				if o := <-b.ended; o.reason != tt.reason {
					t.Errorf("recorded %+v, want %v", o, tt.reason)
				}
				<-reset
			})
		})
	}
}
