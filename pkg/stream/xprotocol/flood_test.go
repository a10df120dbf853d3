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

// bufferedClient is a client's connection that is served only after all bytes of the client and its
// FIN have arrived.
type bufferedClient struct {
	caller *net.TCPConn
	conn   *network.Conn
	server stream.Server
	cancel context.CancelFunc // of the context of ServeConn
}

// dialLate connects a client, sends frames and calls end.
func (r *rig) dialLate(server stream.Server, frames []byte, end func(conn *net.TCPConn) error) *bufferedClient {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	s := &bufferedClient{caller: client.(*net.TCPConn), conn: network.NewConn(nc), server: server}
	if _, err := client.Write(frames); err != nil {
		r.t.Fatal(err)
	}
	if err := end(s.caller); err != nil {
		r.t.Fatal(err)
	}
	_ = s.conn.AwaitPeerClose(false) // the end has arrived
	return s
}

// serve serves the connection until it ends.
func (s *bufferedClient) serve(ctx context.Context) {
	_ = s.server.ServeConn(ctx, s.conn)
	_ = s.conn.Close()
}

// lateServer returns a server for bufferedClient connections.
func (r *rig) lateServer(service protocol.Service, change func(o *stream.ServerOptions)) stream.Server {
	o := stream.ServerOptions{
		Listener: "late", Service: service, RPC: r.options, Log: slog.New(slog.DiscardHandler),
		Observe: r.observe, NewBatchObserver: func() stream.BatchObserver { return &batchRecorder{rig: r} },
	}
	if change != nil {
		change(&o)
	}
	return r.engine.Protocol(r.codec).NewServer(o)
}

// serveLate is dialLate that then serves the connection.
func (r *rig) serveLate(service protocol.Service, frames []byte, end func(conn *net.TCPConn) error, change func(o *stream.ServerOptions)) *bufferedClient {
	r.t.Helper()
	s := r.dialLate(r.lateServer(service, change), frames, end)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.serve(ctx)
	}()
	r.t.Cleanup(func() {
		_ = s.caller.Close()
		cancel()
		<-ended
	})
	return s
}

// recorded returns the observations so far.
func (r *rig) recorded() []observation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.observed)
}

// requestFrames returns n request frames of a kind.
func requestFrames(n int, kind codec.Kind) (all []byte) {
	for id := range uint64(n) {
		frame := appendToy(nil, kind, 0, 0, "svc echo\x00x")
		toyCodec{}.SetID(frame, id+1)
		all = append(all, frame...)
	}
	return all
}

// TestRequestsOfDisconnectedClientAreNotServed verifies that no request starts whose client
// disconnects before the engine reads it, and that each one is recorded.
func TestRequestsOfDisconnectedClientAreNotServed(t *testing.T) {
	const n = 50
	for name, end := range map[string]func(conn *net.TCPConn) error{
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
			r := newRig(t, service, nil)
			r.serveLate(service, requestFrames(n, codec.Request), end, nil)
			r.await(func() bool { return len(r.observed) == n })
			if got := served.Load(); got != 0 {
				t.Errorf("%d requests were served, want none", got)
			}
			for _, o := range r.recorded() {
				if o.reason != protocol.ReasonDownstreamDisconnect {
					t.Fatalf("recorded as %v, want %v", o.reason, protocol.ReasonDownstreamDisconnect)
				}
			}
		})
	}
}

// TestUnstartedRequestIsReadForLogOnly verifies that the fields of a request that did
// not start are read only if the observer needs them.
func TestUnstartedRequestIsReadForLogOnly(t *testing.T) {
	for reads, want := range map[bool]string{true: "svc echo", false: ""} {
		service := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
		r := newRig(t, service, nil)
		r.reads.Store(reads)
		r.serveLate(service, requestFrames(1, codec.Request), (*net.TCPConn).Close, nil)
		r.await(func() bool { return len(r.observed) == 1 })
		if got := r.recorded()[0]; got.path != want || got.reason != protocol.ReasonDownstreamDisconnect {
			t.Errorf("reads %v: recorded as %+v, want the path %q", reads, got, want)
		}
	}
}

// TestUnstartedRequestPanicAffectsNoOther verifies that all requests of a disconnected
// client end although the codec panics for the first one.
func TestUnstartedRequestPanicAffectsNoOther(t *testing.T) {
	const n = 5
	f := newPanicPointRig(t, false)
	f.reads.Store(true)
	s := f.dialLate(f.lateServer(nil, nil), requestFrames(n, codec.Request), (*net.TCPConn).Close)
	f.arm("server ReadRequest")
	s.serve(t.Context())
	f.await(func() bool { return len(f.observed) == n })
	if !f.burned() {
		t.Error("the panic did not happen")
	}
}

// TestUnstartedRequestsDoNotAllocate verifies that requests of disconnected clients
// allocate nothing, because floods consist of them.
func TestUnstartedRequestsDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	const few, many = 10, 410
	leave := func(n int) float64 {
		r, server := newDisconnectRig(t)
		frames := requestFrames(n, codec.Request)
		return testing.AllocsPerRun(100, func() { r.dialLate(server, frames, (*net.TCPConn).Close).serve(context.Background()) })
	}
	if got := (leave(many) - leave(few)) / (many - few); got > 0.1 {
		t.Errorf("%.2f allocations for each request, want none", got)
	}
}

// newDisconnectRig returns a rig that records nothing, and a server for clients that disconnect
// early.
func newDisconnectRig(t testing.TB) (*rig, stream.Server) {
	service := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return nil })
	r := newRig(t, service, nil)
	r.deaf.Store(true)
	return r, r.lateServer(service, nil)
}

// BenchmarkCallersThatLeave measures a connection whose client sends requests and disconnects,
// including connect and accept.
func BenchmarkCallersThatLeave(b *testing.B) {
	for _, n := range []int{1, 480} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r, server := newDisconnectRig(b)
			frames := requestFrames(n, codec.Request)
			b.ReportAllocs()
			for b.Loop() {
				r.dialLate(server, frames, (*net.TCPConn).Close).serve(context.Background())
			}
		})
	}
}

// TestOneWayRequestsOfDisconnectedClientAreServed verifies that one-way requests are served
// although their client has disconnected, and that a blocked service is not notified of the
// disconnect.
func TestOneWayRequestsOfDisconnectedClientAreServed(t *testing.T) {
	const n = 5
	release, waiting := make(chan struct{}), make(chan error, n)
	service := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
		disconnected := make(chan struct{})
		defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
		x.Detach()
		waiting <- nil
		select {
		case <-release:
			waiting <- nil
		case <-ctx.Done():
			waiting <- ctx.Err()
		case <-disconnected:
			waiting <- errors.New("OnDisconnect was called")
		}
		return nil
	})
	r := newRig(t, service, nil)
	r.serveLate(service, append(requestFrames(n, codec.OneWay), requestFrames(n, codec.Request)...), (*net.TCPConn).Close, nil)
	for range n {
		<-waiting
	}
	r.await(func() bool { return len(r.observed) == n }) // two-way requests, which did not start
	close(release)
	for range n {
		if err := <-waiting; err != nil {
			t.Errorf("a one-way request ended early: %v", err)
		}
	}
	r.await(func() bool { return len(r.observed) == 2*n })
	served := 0
	for _, o := range r.recorded() {
		if o.reason == protocol.ReasonNone {
			served++
		}
	}
	if served != n {
		t.Errorf("%d exchanges were served, want the %d one-way requests: %+v", served, n, r.recorded())
	}
}

// TestDrainEndAbandonsOneWayRequests verifies that one-way requests are abandoned when the
// context of the connection ends.
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
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "gave up")
	})
	r := newRig(t, service, nil)
	s := r.serveLate(service, requestFrames(1, codec.OneWay), (*net.TCPConn).Close, nil)
	<-started
	s.cancel()
	r.await(func() bool { return len(r.observed) == 1 })
}

// TestHalfClosedClientGetsResponses verifies that a half-closed client gets its responses if
// AllowHalfClose is set.
func TestHalfClosedClientGetsResponses(t *testing.T) {
	for _, limit := range []int{0, 1} {
		inBothModes(t, func(t *testing.T, upstream *forwardTo) {
			const n = 5
			r := newRig(t, upstream.service(), nil)
			upstream.client.Store(r.client(startHost(t, echo), nil))
			s := r.serveLate(upstream.service(), requestFrames(n, codec.Request), (*net.TCPConn).CloseWrite, func(o *stream.ServerOptions) {
				o.HTTP1.AllowHalfClose, o.RPC.MaxInFlight = true, limit
			})
			p := &peer{t: t, conn: s.caller}
			for range n {
				if _, frame := p.read(); frame == nil {
					t.Fatal("the connection ended before the last response")
				}
			}
			if _, frame := p.read(); frame != nil {
				t.Errorf("%d responses, want %d", n+1, n)
			}
		})
	}
}

// TestHalfClosedClientDisconnectEndsRequests verifies that a reset by a half-closed client ends
// its requests.
func TestHalfClosedClientDisconnectEndsRequests(t *testing.T) {
	inBothModes(t, func(t *testing.T, upstream *forwardTo) {
		arrived, stop := make(chan struct{}), make(chan struct{})
		defer close(stop)
		r := newRig(t, upstream.service(), nil)
		upstream.client.Store(r.client(startHost(t, func(p *peer) {
			p.read()
			close(arrived)
			<-stop // sends no response
		}), nil))
		s := r.serveLate(upstream.service(), requestFrames(1, codec.Request), (*net.TCPConn).CloseWrite, func(o *stream.ServerOptions) {
			o.HTTP1.AllowHalfClose = true
		})
		<-arrived
		_ = s.caller.SetLinger(0)
		_ = s.caller.Close()
		r.await(func() bool { return len(r.observed) == 1 })
		if got := r.recorded()[0].reason; got != protocol.ReasonDownstreamDisconnect {
			t.Errorf("recorded as %v, want %v", got, protocol.ReasonDownstreamDisconnect)
		}
	})
}

// errorPanicCodec is a codec that panics when it writes an error response.
type errorPanicCodec struct{ toyCodec }

func (errorPanicCodec) AppendErrorResponse([]byte, []byte, protocol.Reason, string) []byte {
	panic("no faults today")
}

// TestUnsendableResponseEndsIdleConnection verifies that the connection is closed if no
// response can be written while its reader, on the same goroutine, is about to wait.
func TestUnsendableResponseEndsIdleConnection(t *testing.T) {
	for _, limit := range []int{0, 1} {
		r := newRigOf(t, errorPanicCodec{}, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
			return protocol.NewFault(protocol.ReasonDenied, nil)
		}), func(o *stream.ServerOptions) { o.RPC.MaxInFlight = limit })
		p := r.dial()
		p.write(requestFrame(1, "x"))
		_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		var one [1]byte
		if n, err := p.conn.Read(one[:]); n != 0 || isTimeout(err) {
			t.Errorf("limit %d: read %d bytes, %v; want the end of the connection", limit, n, err)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
