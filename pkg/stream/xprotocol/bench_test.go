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

// mirror is a host that sends every request back as a response. It allocates nothing per request:
// it turns a frame into a response by changing its second byte.
func mirror(p *peer) {
	b := make([]byte, 256<<10)
	buffered := 0
	for {
		n, err := p.conn.Read(b[buffered:])
		if err != nil {
			return
		}
		buffered += n
		parsed := 0
		for {
			head, _ := toyCodec{}.ParseFrame(b[parsed:buffered])
			if head.Size == 0 || head.Size > buffered-parsed {
				break
			}
			b[parsed+1] = byte(codec.Response)
			parsed += head.Size
		}
		if _, err := p.conn.Write(b[:parsed]); err != nil {
			return
		}
		buffered = copy(b, b[parsed:buffered])
	}
}

// newBatchExchange returns a function that sends a batch of requests of 1 KB and reads their
// responses.
func newBatchExchange(proxy *testProxy, inFlight int) func() {
	p := proxy.dial()
	var frames []byte
	for i := range uint64(inFlight) {
		frames = append(frames, requestFrame(i, strings.Repeat("x", 1000))...)
	}
	responses := make([]byte, len(frames))
	return func() {
		p.write(frames)
		if _, err := io.ReadFull(p.conn, responses); err != nil {
			proxy.t.Fatal(err)
		}
	}
}

// newUnobservedProxy returns a proxy that drops its observations.
func newUnobservedProxy(t testing.TB, blocking bool) *testProxy {
	upstream := &forwardService{blocking: blocking}
	proxy := newTestProxy(t, upstream.service(), nil)
	proxy.dropObservations.Store(true)
	upstream.client.Store(proxy.client(startHost(t, mirror), nil))
	return proxy
}

func TestRequestDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	for _, blocking := range []bool{false, true} {
		exchange := newBatchExchange(newUnobservedProxy(t, blocking), 16)
		for range 100 {
			exchange() // fills the pools
		}
		if got := testing.AllocsPerRun(500, exchange); got >= 1 {
			t.Errorf("blocking %v: %v allocations for 16 requests, want none", blocking, got)
		}
	}
}

func BenchmarkForward(b *testing.B) {
	for _, blocking := range []bool{false, true} {
		for _, inFlight := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("blocking=%v/%d", blocking, inFlight), func(b *testing.B) {
				exchange := newBatchExchange(newUnobservedProxy(b, blocking), inFlight)
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

// BenchmarkGoroutine measures the same work as BenchmarkFiber on one goroutine per request.
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
