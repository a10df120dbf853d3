package xprotocol

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// defective is a codec that panics in one of its methods, at messages that say so.
type defective struct {
	toy
	in string
}

func (d defective) boom(method string, frame []byte) {
	if d.in == method && strings.HasSuffix(string(frame), "boom") {
		panic(method)
	}
}

func (d defective) ReadRequest(frame []byte, r *protocol.Request, v *codec.FrameView) error {
	d.boom("ReadRequest", frame)
	return d.toy.ReadRequest(frame, r, v)
}

func (d defective) AppendRequest(dst, frame []byte, r *protocol.Request, v *codec.FrameView, left time.Duration) ([]byte, error) {
	d.boom("AppendRequest", frame)
	return d.toy.AppendRequest(dst, frame, r, v, left)
}

func (d defective) ReadResponse(frame []byte, r *protocol.Response, v *codec.FrameView) error {
	d.boom("ReadResponse", frame)
	return d.toy.ReadResponse(frame, r, v)
}

func (d defective) AppendResponse(dst, frame []byte, r *protocol.Response, v *codec.FrameView) ([]byte, error) {
	d.boom("AppendResponse", frame)
	return d.toy.AppendResponse(dst, frame, r, v)
}

// TestADefectOfACodecCostsOneRequest: it is answered, the connections on both sides
// go on, and nothing is left behind.
func TestADefectOfACodecCostsOneRequest(t *testing.T) {
	for _, method := range []string{"AppendRequest", "ReadResponse", "AppendResponse"} {
		t.Run(method, func(t *testing.T) {
			inBothWays(t, func(t *testing.T, to *forwardTo) {
				c := defective{in: method}
				r := newRigOf(t, c, to.service(), nil)
				u := r.client(host(t, echoes), nil)
				u.codec = c // before anything is sent
				to.client.Store(u)
				p := r.dial()
				p.write(ask(1, "boom"))
				head, frame := p.read()
				if head.ID != 1 || frame == nil || protocol.Reason(frame[2]) != protocol.Internal {
					t.Fatalf("id %d answered with %q, want 1 with an internal error", head.ID, frame)
				}
				for _, q := range []*peer{p, r.dial()} {
					q.write(ask(2, "fine"))
					if head, frame = q.read(); head.ID != 2 || frame == nil || string(frame[toyBody:]) != "fine" {
						t.Errorf("afterwards id %d is answered with %q", head.ID, frame)
					}
				}
			})
		})
	}
}

// TestACallerThatLeavesAtTheLimitIsNoticed: nobody reads its connection then.
func TestACallerThatLeavesAtTheLimitIsNoticed(t *testing.T) {
	inBothWays(t, func(t *testing.T, to *forwardTo) {
		arrived, stop := make(chan struct{}), make(chan struct{})
		defer close(stop)
		r := newRig(t, to.service(), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = 1 })
		to.client.Store(r.client(host(t, func(p *peer) {
			p.read()
			close(arrived)
			<-stop // never an answer
		}), nil))
		p := r.dial()
		p.write(ask(1, "x"))
		<-arrived
		_ = p.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if cut := r.ln.Drain(ctx); cut != 0 || ctx.Err() != nil {
			t.Errorf("%d connections were cut at the end of the drain (%v), want none", cut, ctx.Err())
		}
	})
}

// TestADrainRefusesWhatItHasNotBegun: what had arrived is answered, one way or the
// other.
func TestADrainRefusesWhatItHasNotBegun(t *testing.T) {
	begun := make(chan struct{}, 20)
	r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		begun <- struct{}{}
		x.Detach()
		<-time.After(250 * time.Millisecond)
		return protocol.NewFault(protocol.ReasonDenied, nil)
	}), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = 1 })
	p := r.dial()
	var all []byte
	for id := range uint64(20) {
		all = append(all, ask(id+1, "")...)
	}
	p.write(all)
	<-begun
	drained := make(chan int)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		drained <- r.ln.Drain(ctx)
	}()
	answers := map[protocol.Reason]int{}
	for {
		head, frame := p.read()
		if frame == nil {
			break
		}
		if head.Kind == codec.Response {
			answers[protocol.Reason(frame[2])]++
		}
	}
	_ = p.conn.Close()
	if served, refused := answers[protocol.ReasonDenied], answers[protocol.Draining]; served+refused != 20 || refused == 0 {
		t.Errorf("answered with %v, want 20 answers, the last of them refusals", answers)
	}
	if cut := <-drained; cut != 0 {
		t.Errorf("%d connections were cut", cut)
	}
}
