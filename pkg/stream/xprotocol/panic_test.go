package xprotocol

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// panicPoint panics once, at the callback for which it is armed.
type panicPoint struct {
	armed          atomic.Pointer[string] // name of the callback; nil after the panic
	sent, released atomic.Int64           // exchanges started on host connections; calls of OnRelease
}

func (p *panicPoint) arm(point string) { p.armed.Store(&point) }

// panicked reports whether the armed callback was called.
func (p *panicPoint) panicked() bool { return p.armed.Load() == nil }

// reach panics if p is armed for the callback.
func (p *panicPoint) reach(point string) {
	if armed := p.armed.Load(); armed != nil && *armed == point && p.armed.CompareAndSwap(armed, nil) {
		panic("a defect at " + point)
	}
}

// panicPointCodec is a codec whose methods are panic points. side is "server" or "client".
type panicPointCodec struct {
	toyCodec
	*panicPoint
	side string
}

func (c panicPointCodec) Traits() *codec.Traits {
	c.reach(c.side + " Traits")
	return c.toyCodec.Traits()
}

func (c panicPointCodec) ParseFrame(b []byte) (codec.Frame, error) {
	if bytes.Contains(b, []byte("boom")) || len(b) >= toyHead && codec.Kind(b[1]) == codec.Heartbeat {
		c.reach(c.side + " ParseFrame")
	}
	return c.toyCodec.ParseFrame(b)
}

func (c panicPointCodec) SetID(frame []byte, id uint64) {
	c.reach(c.side + " SetID")
	c.toyCodec.SetID(frame, id)
}

func (c panicPointCodec) ReadRequest(frame []byte, r *protocol.Request, v *codec.FrameView) error {
	c.reach(c.side + " ReadRequest")
	return c.toyCodec.ReadRequest(frame, r, v)
}

func (c panicPointCodec) AppendRequest(dst, frame []byte, r *protocol.Request, v *codec.FrameView, remaining time.Duration) ([]byte, error) {
	c.reach(c.side + " AppendRequest")
	return c.toyCodec.AppendRequest(dst, frame, r, v, remaining)
}

func (c panicPointCodec) ReadResponse(frame []byte, r *protocol.Response, v *codec.FrameView) error {
	c.reach(c.side + " ReadResponse")
	return c.toyCodec.ReadResponse(frame, r, v)
}

func (c panicPointCodec) AppendResponse(dst, frame []byte, r *protocol.Response, v *codec.FrameView) ([]byte, error) {
	c.reach(c.side + " AppendResponse")
	return c.toyCodec.AppendResponse(dst, frame, r, v)
}

func (c panicPointCodec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	c.reach(c.side + " AppendErrorResponse")
	return c.toyCodec.AppendErrorResponse(dst, frame, reason, text)
}

func (c panicPointCodec) AppendHeartbeat(dst []byte, id uint64) []byte {
	c.reach(c.side + " AppendHeartbeat")
	return c.toyCodec.AppendHeartbeat(dst, id)
}

func (c panicPointCodec) AppendHeartbeatAck(dst, heartbeat []byte) []byte {
	c.reach(c.side + " AppendHeartbeatAck")
	return c.toyCodec.AppendHeartbeatAck(dst, heartbeat)
}

func (c panicPointCodec) AppendGoAway(dst []byte, id uint64) []byte {
	c.reach(c.side + " AppendGoAway")
	return c.toyCodec.AppendGoAway(dst, id)
}

// panicPointService is a service with panic points in Serve, Start, Finish, OnDisconnect and the
// body of its local replies.
type panicPointService struct {
	*panicPoint
	next     *atomic.Pointer[UpstreamConn]
	blocking bool                                    // Serve runs on a fiber
	wrap     *func(body protocol.Body) protocol.Body // wraps the body of each response; points to nil: no wrapper
}

func (s *panicPointService) Serve(ctx context.Context, x *protocol.Exchange) error {
	s.reach("Serve")
	defer x.Downstream.OnDisconnect(func() { s.reach("OnDisconnect") })()
	s.sent.Add(1)
	return s.replaceResponse(x, x.Serve(ctx, s.next.Load()))
}

func (s *panicPointService) Start(ctx context.Context, x *protocol.Exchange) error {
	if s.blocking {
		return x.RunBlocking(ctx, protocol.BlockingFunc(s.Serve))
	}
	s.reach("Start")
	x.PushFinisher(s)
	s.sent.Add(1)
	return s.next.Load().Start(ctx, x)
}

func (s *panicPointService) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	s.reach("Finish")
	return s.replaceResponse(x, err)
}

// replaceResponse sets a local reply with a panicPointBody if a panic point of a body is armed.
// Otherwise it applies wrap.
func (s *panicPointService) replaceResponse(x *protocol.Exchange, err error) error {
	if armed := s.armed.Load(); err == nil && armed != nil && strings.HasPrefix(*armed, "body ") {
		x.LocalReply(500, "", "")
		x.Response.Body = panicPointBody{s.panicPoint}
	} else if err == nil && *s.wrap != nil {
		x.Response.Body = (*s.wrap)(x.Response.Body)
	}
	return err
}

// panicPointBody is a body with panic points in Read and Close.
type panicPointBody struct{ *panicPoint }

func (b panicPointBody) Read(p []byte) (int, error) {
	b.reach("body Read")
	return copy(p, "text"), nil
}
func (panicPointBody) Buffered() int { return 4 }
func (b panicPointBody) Close() error {
	b.reach("body Close")
	return nil
}

// panicPointObserver is a batchRecorder with panic points.
type panicPointObserver struct {
	*panicPoint
	batchRecorder
}

func (o *panicPointObserver) Observe(x *protocol.Exchange) {
	o.reach("BatchObserver Observe")
	o.batchRecorder.Observe(x)
}

func (o *panicPointObserver) Flush() {
	o.reach("BatchObserver Flush")
	o.batchRecorder.Flush()
}

// panicPointProxy is a testProxy whose panic points share one panicPoint.
type panicPointProxy struct {
	*testProxy
	panicPoint
	client atomic.Pointer[UpstreamConn]
	wrap   func(body protocol.Body) protocol.Body // set before the first request; nil: no wrapper
}

func newPanicPointProxy(t *testing.T, blocking bool) *panicPointProxy {
	p := new(panicPointProxy)
	var proxy *testProxy
	proxy = newTestProxyWithCodec(t, panicPointCodec{panicPoint: &p.panicPoint, side: "server"}, &panicPointService{&p.panicPoint, &p.client, blocking, &p.wrap}, func(o *stream.ServerOptions) {
		o.Observe = func(x *protocol.Exchange) {
			p.reach("Observe")
			proxy.observe(x)
		}
		o.NewBatchObserver = func() stream.BatchObserver {
			p.reach("NewBatchObserver")
			return &panicPointObserver{&p.panicPoint, batchRecorder{proxy: proxy}}
		}
	})
	p.testProxy = proxy
	return p
}

// connect opens a connection to a host that runs serve, and makes the service use it.
func (proxy *panicPointProxy) connect(t *testing.T, serve func(p *peer), change func(o *stream.UpstreamConnOptions)) {
	t.Helper()
	conn, err := network.Dialer{}.Dial(t.Context(), "tcp", startHost(t, serve), time.Now().Add(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	o := stream.UpstreamConnOptions{RPC: proxy.options, OnRelease: func(bool) {
		proxy.released.Add(1)
		proxy.reach("OnRelease")
	}}
	if change != nil {
		change(&o)
	}
	u := newUpstreamConn(proxy.engine, panicPointCodec{panicPoint: &proxy.panicPoint, side: "client"}, conn, o)
	t.Cleanup(func() { _ = u.Close() })
	proxy.client.Store(u)
}

// Outcomes of the request whose callback panics.
const (
	responded = "responded" // the client gets the response
	failed    = "failed"    // the client gets an internal error
	closed    = "closed"    // the connection ends
)

func TestPanicIsContained(t *testing.T) {
	for point, want := range map[string]string{
		"server ParseFrame": closed, "server ReadRequest": failed, "server SetID": failed, "server AppendResponse": failed,
		"client SetID": failed, "client AppendRequest": failed, "client ParseFrame": failed, "client ReadResponse": failed,
		"server Traits": failed, "client Traits": failed,
		"Start": failed, "Finish": failed, "Serve": failed,
		"body Read": failed, "body Close": responded,
		"NewBatchObserver": responded, "BatchObserver Observe": responded, "BatchObserver Flush": responded,
		"OnRelease": responded,
	} {
		for _, blocking := range []bool{false, true} {
			if point == "Serve" && !blocking || (point == "Start" || point == "Finish") && blocking {
				continue // this kind of service has no such callback
			}
			name := point
			if blocking {
				name += ", blocking"
			}
			t.Run(name, func(t *testing.T) { testPanicAt(t, point, want, blocking) })
		}
	}
}

func testPanicAt(t *testing.T, point, want string, blocking bool) {
	proxy := newPanicPointProxy(t, blocking)
	sent, release := make(chan struct{}), make(chan struct{})
	proxy.connect(t, func(p *peer) { // the concurrent request gets its response last
		for {
			head, frame := p.read()
			if frame == nil {
				return
			}
			if strings.HasSuffix(string(frame), "bystander") {
				close(sent)
				go func() {
					<-release
					p.conn.Write(responseFrame(head, "bystander")) // a failed write makes the client's read fail
				}()
				continue
			}
			p.conn.Write(responseFrame(head, "boom")) // a failed write makes the client's read fail
		}
	}, nil)
	bystander := proxy.dial()
	bystander.write(requestFrame(7, "bystander"))
	<-sent // later panics cannot come from the bystander
	proxy.arm(point)
	p := proxy.dial()
	p.write(requestFrame(1, "boom"))
	head, frame := p.read()
	got := responded
	switch {
	case frame == nil:
		got = closed
	case head.ID != 1:
		t.Fatalf("response to id %d, want 1", head.ID)
	case protocol.Reason(frame[2]) != protocol.ReasonNone:
		got = failed
	}
	if point == "body Close" && got == failed {
		got = responded // the service replies with 500
	}
	if got != want || !proxy.panicked() {
		t.Errorf("outcome: %s (panicked: %v), want %s; frame %q", got, proxy.panicked(), want, frame)
	}
	close(release)
	if _, frame = bystander.read(); frame == nil || point != "client ParseFrame" && protocol.Reason(frame[2]) != protocol.ReasonNone {
		t.Errorf("the concurrent exchange got the response %q, want its own", frame)
	}
	proxy.arm("none")
	if point == "client ParseFrame" {
		proxy.connect(t, echo, nil)
	}
	next := proxy.dial()
	next.write(requestFrame(2, "ok"))
	if _, frame = next.read(); frame == nil || protocol.Reason(frame[2]) != protocol.ReasonNone {
		t.Errorf("next request: response %q, want no error", frame)
	}
	for _, p := range []*peer{bystander, p, next} {
		_ = p.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if forceClosed := proxy.ln.Drain(ctx); forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
	if sent, released := proxy.sent.Load(), proxy.released.Load(); sent != released {
		t.Errorf("%d exchanges started on host connections, %d calls of OnRelease, want equal numbers", sent, released)
	}
}

// awaitRequests waits until n calls are pending on u.
func awaitRequests(t *testing.T, u *UpstreamConn, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		u.mu.Lock()
		used := u.calls.used
		u.mu.Unlock()
		if used == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d calls are pending, want %d", used, n)
		}
	}
}

// TestControlFramePanicEndsConnection verifies that a panic for a frame that belongs to no exchange
// ends only its connection, on either side.
func TestControlFramePanicEndsConnection(t *testing.T) {
	t.Run("server AppendHeartbeatAck", func(t *testing.T) {
		proxy := newPanicPointProxy(t, false)
		proxy.connect(t, echo, nil)
		proxy.arm("server AppendHeartbeatAck")
		p := proxy.dial()
		p.write(toyCodec{}.AppendHeartbeat(nil, 1))
		if _, frame := p.read(); frame != nil || !proxy.panicked() {
			t.Errorf("got %q, want EOF", frame)
		}
	})
	t.Run("server AppendGoAway", func(t *testing.T) {
		proxy := newPanicPointProxy(t, false)
		proxy.connect(t, echo, nil)
		p := proxy.dial()
		p.write(requestFrame(1, "ok"))
		p.read()
		proxy.arm("server AppendGoAway")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if forceClosed := proxy.ln.Drain(ctx); forceClosed != 0 {
			t.Errorf("%d connections were force-closed, want 0", forceClosed)
		}
		if _, frame := p.read(); frame != nil {
			t.Errorf("got %q, want EOF", frame)
		}
	})
	for point, serve := range map[string]func(p *peer){
		"client AppendHeartbeatAck":  func(p *peer) { p.read(); p.write(toyCodec{}.AppendHeartbeat(nil, 1)); p.read() },
		"client AppendErrorResponse": func(p *peer) { p.read(); p.write(requestFrame(5, "request of the host")); p.read() },
		"client AppendHeartbeat":     func(p *peer) { p.read(); p.read() },
	} {
		for _, blocking := range []bool{false, true} { // separate proxies, because each one counts buffers
			t.Run(fmt.Sprintf("%s, blocking: %t", point, blocking), func(t *testing.T) {
				proxy := newPanicPointProxy(t, blocking)
				proxy.connect(t, serve, func(o *stream.UpstreamConnOptions) {
					if point == "client AppendHeartbeat" {
						o.RPC.HeartbeatInterval = 50 * time.Millisecond
					}
				})
				proxy.arm(point)
				p := proxy.dial()
				p.write(requestFrame(1, "x"))
				if _, frame := p.read(); frame == nil || protocol.Reason(frame[2]) == protocol.ReasonNone || !proxy.panicked() {
					t.Errorf("response %q, want an error: the host's connection is lost", frame)
				}
			})
		}
	}
}

// TestOnDisconnectPanicIsContained verifies that a panic of an OnDisconnect callback, which has its
// own goroutine, is recovered.
func TestOnDisconnectPanicIsContained(t *testing.T) {
	proxy := newPanicPointProxy(t, true)
	proxy.connect(t, func(p *peer) { p.read(); p.read() }, nil)
	proxy.arm("OnDisconnect")
	p := proxy.dial()
	p.write(requestFrame(1, "x"))
	awaitRequests(t, proxy.client.Load(), 1)
	_ = p.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if forceClosed := proxy.ln.Drain(ctx); forceClosed != 0 || !proxy.panicked() {
		t.Errorf("%d connections were force-closed (panicked: %v); want 0 and true", forceClosed, proxy.panicked())
	}
}

// TestObserverPanicOnMalformedFrame verifies that a panic of the observer of a malformed frame ends
// only the connection.
func TestObserverPanicOnMalformedFrame(t *testing.T) {
	proxy := newPanicPointProxy(t, false)
	proxy.arm("Observe")
	p := proxy.dial()
	p.write([]byte("no frame"))
	if _, frame := p.read(); frame != nil || !proxy.panicked() {
		t.Errorf("got %q (panicked: %v), want EOF", frame, proxy.panicked())
	}
}

// TestDeadlinePanicEndsOneExchange verifies that a panic on the goroutine of the timer, which
// finishes expired exchanges, affects only one exchange.
func TestDeadlinePanicEndsOneExchange(t *testing.T) {
	for _, point := range []string{"Finish", "BatchObserver Observe", "BatchObserver Flush", "server AppendErrorResponse"} {
		t.Run(point, func(t *testing.T) {
			proxy := newPanicPointProxy(t, false)
			proxy.connect(t, func(p *peer) { p.read(); p.read() }, nil)
			proxy.arm(point)
			p := proxy.dial()
			b := appendToy(nil, codec.Request, 0, 50*time.Millisecond, "svc echo\x00x")
			toyCodec{}.SetID(b, 1)
			p.write(b)
			_, frame := p.read()
			if frame == nil || !proxy.panicked() {
				t.Errorf("response %q (panicked: %v); want a response and true", frame, proxy.panicked())
			}
			_ = p.conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if forceClosed := proxy.ln.Drain(ctx); forceClosed != 0 {
				t.Errorf("%d connections were force-closed, want 0", forceClosed)
			}
		})
	}
}
