package xprotocol

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// bufferedClient is a client and its connection, which is served only after all bytes of the client
// and its FIN have arrived.
type bufferedClient struct {
	socket *net.TCPConn  // the client's end
	conn   *network.Conn // the server's end
	server stream.Server
	cancel context.CancelFunc // ends the context of ServeConn
}

// dialBuffered connects a client, sends frames and calls closeClient.
func (p *testProxy) dialBuffered(server stream.Server, frames []byte, closeClient func(conn *net.TCPConn) error) *bufferedClient {
	p.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	c := &bufferedClient{socket: client.(*net.TCPConn), conn: network.NewConn(nc), server: server}
	if _, err := client.Write(frames); err != nil {
		p.t.Fatal(err)
	}
	if err := closeClient(c.socket); err != nil {
		p.t.Fatal(err)
	}
	_ = c.conn.AwaitPeerClose(false) // the FIN has arrived
	return c
}

// serve serves the connection until it ends.
func (c *bufferedClient) serve(ctx context.Context) {
	_ = c.server.ServeConn(ctx, c.conn)
	_ = c.conn.Close()
}

// newBufferedServer returns a server for bufferedClient connections.
func (p *testProxy) newBufferedServer(service protocol.Service, change func(o *stream.ServerOptions)) stream.Server {
	o := stream.ServerOptions{
		Listener: "buffered", Service: service, RPC: p.options, Log: slog.New(slog.DiscardHandler),
		Observe: p.observe, NewBatchObserver: func() stream.BatchObserver { return &batchRecorder{proxy: p} },
	}
	if change != nil {
		change(&o)
	}
	return p.engine.Protocol(p.codec).NewServer(o)
}

// serveBuffered calls dialBuffered and then serves the connection.
func (p *testProxy) serveBuffered(service protocol.Service, frames []byte, closeClient func(conn *net.TCPConn) error, change func(o *stream.ServerOptions)) *bufferedClient {
	p.t.Helper()
	c := p.dialBuffered(p.newBufferedServer(service, change), frames, closeClient)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.serve(ctx)
	}()
	p.t.Cleanup(func() {
		_ = c.socket.Close()
		cancel()
		<-done
	})
	return c
}

// recorded returns the observations so far.
func (p *testProxy) recorded() []observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.observed)
}

// requestFrames returns n request frames of a kind.
func requestFrames(n int, kind codec.Kind) (frames []byte) {
	for id := range uint64(n) {
		frame := appendToy(nil, kind, 0, 0, "svc echo\x00x")
		toyCodec{}.SetID(frame, id+1)
		frames = append(frames, frame...)
	}
	return frames
}

// TestRequestsOfDisconnectedClientAreNotServed verifies that requests do not start if their client
// disconnects before the engine reads them, and that every request is recorded.
func TestRequestsOfDisconnectedClientAreNotServed(t *testing.T) {
	const n = 50
	for name, closeClient := range map[string]func(conn *net.TCPConn) error{
		"FIN":        (*net.TCPConn).Close,
		"half-close": (*net.TCPConn).CloseWrite,
	} {
		t.Run(name, func(t *testing.T) {
			var served atomic.Int64
			service := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				served.Add(1)
				x.LocalReply(403, "", "")
				return nil
			})
			proxy := newTestProxy(t, service, nil)
			proxy.serveBuffered(service, requestFrames(n, codec.Request), closeClient, nil)
			proxy.await(func() bool { return len(proxy.observed) == n })
			if got := served.Load(); got != 0 {
				t.Errorf("%d requests were served, want none", got)
			}
			for _, o := range proxy.recorded() {
				if o.reason != protocol.ReasonDownstreamDisconnect {
					t.Fatalf("recorded as %v, want %v", o.reason, protocol.ReasonDownstreamDisconnect)
				}
			}
		})
	}
}

// TestUnstartedRequestIsReadOnlyForObserver verifies that the engine reads the fields of a request
// that did not start only if the observer needs them.
func TestUnstartedRequestIsReadOnlyForObserver(t *testing.T) {
	for needsFields, want := range map[bool]string{true: "svc echo", false: ""} {
		service := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
		proxy := newTestProxy(t, service, nil)
		proxy.readsUnstarted.Store(needsFields)
		proxy.serveBuffered(service, requestFrames(1, codec.Request), (*net.TCPConn).Close, nil)
		proxy.await(func() bool { return len(proxy.observed) == 1 })
		if got := proxy.recorded()[0]; got.path != want || got.reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("needs fields %v: recorded as %+v, want the path %q", needsFields, got, want)
		}
	}
}

// TestUnstartedRequestPanicAffectsNoOther verifies that all requests of a disconnected client end
// although the codec panics for the first one.
func TestUnstartedRequestPanicAffectsNoOther(t *testing.T) {
	const n = 5
	proxy := newPanicPointProxy(t, false)
	proxy.readsUnstarted.Store(true)
	client := proxy.dialBuffered(proxy.newBufferedServer(nil, nil), requestFrames(n, codec.Request), (*net.TCPConn).Close)
	proxy.arm("server ReadRequest")
	client.serve(t.Context())
	proxy.await(func() bool { return len(proxy.observed) == n })
	if !proxy.panicked() {
		t.Error("the panic did not happen")
	}
}

// TestUnstartedRequestsDoNotAllocate verifies that requests of disconnected clients allocate
// nothing, because floods consist of them.
func TestUnstartedRequestsDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	const few, many = 10, 410
	allocs := func(n int) float64 {
		proxy, server := newDisconnectProxy(t)
		frames := requestFrames(n, codec.Request)
		return testing.AllocsPerRun(100, func() { proxy.dialBuffered(server, frames, (*net.TCPConn).Close).serve(context.Background()) })
	}
	if got := (allocs(many) - allocs(few)) / (many - few); got > 0.1 {
		t.Errorf("%.2f allocations for each request, want none", got)
	}
}

// newDisconnectProxy returns a proxy that drops its observations, and a server for clients that
// disconnect early.
func newDisconnectProxy(t testing.TB) (*testProxy, stream.Server) {
	service := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
	proxy := newTestProxy(t, service, nil)
	proxy.dropObservations.Store(true)
	return proxy, proxy.newBufferedServer(service, nil)
}

// BenchmarkDisconnectedClients measures a connection whose client sends requests and disconnects,
// including connect and accept.
func BenchmarkDisconnectedClients(b *testing.B) {
	for _, n := range []int{1, 480} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			proxy, server := newDisconnectProxy(b)
			frames := requestFrames(n, codec.Request)
			b.ReportAllocs()
			for b.Loop() {
				proxy.dialBuffered(server, frames, (*net.TCPConn).Close).serve(context.Background())
			}
		})
	}
}

// TestOneWayRequestsOfDisconnectedClientAreServed verifies that one-way requests are served
// although their client has disconnected, and that a blocked service is not notified of the
// disconnect.
func TestOneWayRequestsOfDisconnectedClientAreServed(t *testing.T) {
	const n = 5
	release, results := make(chan struct{}), make(chan error, n)
	service := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		disconnected := make(chan struct{})
		defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
		x.Detach()
		results <- nil
		select {
		case <-release:
			results <- nil
		case <-ctx.Done():
			results <- ctx.Err()
		case <-disconnected:
			results <- errors.New("OnDisconnect was called")
		}
		return nil
	})
	proxy := newTestProxy(t, service, nil)
	proxy.serveBuffered(service, append(requestFrames(n, codec.OneWay), requestFrames(n, codec.Request)...), (*net.TCPConn).Close, nil)
	for range n {
		<-results
	}
	proxy.await(func() bool { return len(proxy.observed) == n }) // two-way requests, which did not start
	close(release)
	for range n {
		if err := <-results; err != nil {
			t.Errorf("a one-way request ended early: %v", err)
		}
	}
	proxy.await(func() bool { return len(proxy.observed) == 2*n })
	served := 0
	for _, o := range proxy.recorded() {
		if o.reason == protocol.ReasonNone {
			served++
		}
	}
	if served != n {
		t.Errorf("%d exchanges were served, want the %d one-way requests: %+v", served, n, proxy.recorded())
	}
}

// TestDrainEndAbandonsOneWayRequests verifies that one-way requests are abandoned when the context
// of the connection ends.
func TestDrainEndAbandonsOneWayRequests(t *testing.T) {
	started := make(chan struct{})
	service := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		disconnected := make(chan struct{})
		defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
		x.Detach()
		close(started)
		select {
		case <-ctx.Done():
		case <-disconnected:
		}
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "abandoned")
	})
	proxy := newTestProxy(t, service, nil)
	client := proxy.serveBuffered(service, requestFrames(1, codec.OneWay), (*net.TCPConn).Close, nil)
	<-started
	client.cancel()
	proxy.await(func() bool { return len(proxy.observed) == 1 })
}

// TestHalfClosedClientGetsResponses verifies that a half-closed client gets its responses if
// AllowHalfClose is set.
func TestHalfClosedClientGetsResponses(t *testing.T) {
	for _, limit := range []int{0, 1} {
		inBothModes(t, func(t *testing.T, upstream *forwardService) {
			const n = 5
			proxy := newTestProxy(t, upstream.service(), nil)
			upstream.client.Store(proxy.client(startHost(t, echo), nil))
			client := proxy.serveBuffered(upstream.service(), requestFrames(n, codec.Request), (*net.TCPConn).CloseWrite, func(o *stream.ServerOptions) {
				o.HTTP1.AllowHalfClose, o.RPC.MaxInFlight = true, limit
			})
			p := &peer{t: t, conn: client.socket}
			for range n {
				if _, frame := p.read(); frame == nil {
					t.Fatal("the connection ended before the last response")
				}
			}
			if _, frame := p.read(); frame != nil {
				t.Errorf("more than %d responses, want %d", n, n)
			}
		})
	}
}

// TestHalfClosedClientDisconnectEndsRequests verifies that a reset by a half-closed client ends its
// requests.
func TestHalfClosedClientDisconnectEndsRequests(t *testing.T) {
	inBothModes(t, func(t *testing.T, upstream *forwardService) {
		arrived, stop := make(chan struct{}), make(chan struct{})
		defer close(stop)
		proxy := newTestProxy(t, upstream.service(), nil)
		upstream.client.Store(proxy.client(startHost(t, func(p *peer) {
			p.read()
			close(arrived)
			<-stop // sends no response
		}), nil))
		client := proxy.serveBuffered(upstream.service(), requestFrames(1, codec.Request), (*net.TCPConn).CloseWrite, func(o *stream.ServerOptions) {
			o.HTTP1.AllowHalfClose = true
		})
		<-arrived
		_ = client.socket.SetLinger(0)
		_ = client.socket.Close()
		proxy.await(func() bool { return len(proxy.observed) == 1 })
		if got := proxy.recorded()[0].reason; got != protocol.ReasonDownstreamDisconnect {
			t.Errorf("recorded as %v, want %v", got, protocol.ReasonDownstreamDisconnect)
		}
	})
}

// errorPanicCodec is a codec that panics when it writes an error response.
type errorPanicCodec struct{ toyCodec }

func (errorPanicCodec) AppendErrorResponse([]byte, []byte, protocol.Reason, string) []byte {
	panic("a defect in AppendErrorResponse")
}

// TestUnsendableResponseEndsIdleConnection verifies that the connection is closed if no response
// can be written while its reader, on the same goroutine, is about to wait.
func TestUnsendableResponseEndsIdleConnection(t *testing.T) {
	for _, limit := range []int{0, 1} {
		proxy := newTestProxyWithCodec(t, errorPanicCodec{}, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
			return protocol.NewFault(protocol.ReasonDenied, nil)
		}), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = limit })
		p := proxy.dial()
		p.write(requestFrame(1, "x"))
		_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		var b [1]byte
		if n, err := p.conn.Read(b[:]); n != 0 || isTimeout(err) {
			t.Errorf("limit %d: read %d bytes, %v; want EOF", limit, n, err)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
