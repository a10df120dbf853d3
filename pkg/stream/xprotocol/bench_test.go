package xprotocol

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// mirror responds to every request with its own body and allocates nothing: it turns a frame into a
// response by changing its second byte.
func mirror(p *peer) {
	b := make([]byte, 256<<10)
	have := 0
	for {
		n, err := p.conn.Read(b[have:])
		if err != nil {
			return
		}
		have += n
		complete := 0
		for {
			head, _ := toyCodec{}.ParseFrame(b[complete:have])
			if head.Size == 0 || head.Size > have-complete {
				break
			}
			b[complete+1] = byte(codec.Response)
			complete += head.Size
		}
		if _, err := p.conn.Write(b[:complete]); err != nil {
			return
		}
		have = copy(b, b[complete:have])
	}
}

// exchanger returns a function that, each time it is called, sends a batch of requests of 1 KB and
// reads their responses.
func exchanger(r *rig, inFlight int) func() {
	p := r.dial()
	var all []byte
	for i := range uint64(inFlight) {
		all = append(all, requestFrame(i, strings.Repeat("x", 1000))...)
	}
	responses := make([]byte, len(all))
	return func() {
		p.write(all)
		if _, err := io.ReadFull(p.conn, responses); err != nil {
			r.t.Fatal(err)
		}
	}
}

// newQuietRig returns a rig that records nothing.
func newQuietRig(t testing.TB, complete bool) *rig {
	upstream := &forwardTo{whole: complete}
	r := newRig(t, upstream.service(), nil)
	r.deaf.Store(true)
	upstream.client.Store(r.client(startHost(t, mirror), nil))
	return r
}

func TestRequestDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	for _, complete := range []bool{false, true} {
		exchange := exchanger(newQuietRig(t, complete), 16)
		for range 100 {
			exchange() // fills the pools
		}
		if got := testing.AllocsPerRun(500, exchange); got >= 1 {
			t.Errorf("blocking %v: %v allocations for 16 requests, want none", complete, got)
		}
	}
}

func BenchmarkForward(b *testing.B) {
	for _, complete := range []bool{false, true} {
		for _, inFlight := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("blocking=%v/%d", complete, inFlight), func(b *testing.B) {
				exchange := exchanger(newQuietRig(b, complete), inFlight)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += inFlight {
					exchange()
				}
			})
		}
	}
}

// BenchmarkFiber measures serving one request on a coroutine: start, park, wake, finish.
func BenchmarkFiber(b *testing.B) {
	f := newFiber()
	f.r = new(request)
	f.service = protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
		f.park()
		return nil
	})
	b.ReportAllocs()
	for b.Loop() {
		f.resume(nil)
		if !f.r.state.wake() {
			b.Fatal("the request is not pending")
		}
		f.resume(nil)
	}
	f.stop()
}

// BenchmarkGoroutine measures the same with one goroutine per request.
func BenchmarkGoroutine(b *testing.B) {
	var service protocol.BlockingService = protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
	done, wake := make(chan struct{}), make(chan struct{}, 1)
	b.ReportAllocs()
	for b.Loop() {
		go func() {
			<-wake
			_ = service.Serve(context.Background(), nil)
			done <- struct{}{}
		}()
		wake <- struct{}{}
		<-done
	}
}
