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

// panicPoint makes one callback point panic once: the point for which it is armed.
type panicPoint struct {
	at             atomic.Pointer[string]
	sent, released atomic.Int64 // exchanges started on host connections; calls of OnRelease
}

func (f *panicPoint) arm(point string) { f.at.Store(&point) }

// burned reports whether the armed point was reached.
func (f *panicPoint) burned() bool { return f.at.Load() == nil }

func (f *panicPoint) reach(point string) {
	if at := f.at.Load(); at != nil && *at == point && f.at.CompareAndSwap(at, nil) {
		panic("a defect at " + point)
	}
}

// panickingPoints is a codec whose methods are callback points; side is "server" or "client".
type panickingPoints struct {
	toyCodec
	*panicPoint
	side string
}

func (c panickingPoints) Traits() *codec.Traits {
	c.reach(c.side + " Traits")
	return c.toyCodec.Traits()
}

func (c panickingPoints) ParseFrame(b []byte) (codec.Frame, error) {
	if bytes.Contains(b, []byte("boom")) || len(b) >= toyHead && codec.Kind(b[1]) == codec.Heartbeat {
		c.reach(c.side + " Next")
	}
	return c.toyCodec.ParseFrame(b)
}

func (c panickingPoints) SetID(frame []byte, id uint64) {
	c.reach(c.side + " SetID")
	c.toyCodec.SetID(frame, id)
}

func (c panickingPoints) ReadRequest(frame []byte, r *protocol.Request, v *codec.FrameView) error {
	c.reach(c.side + " ReadRequest")
	return c.toyCodec.ReadRequest(frame, r, v)
}

func (c panickingPoints) AppendRequest(dst, frame []byte, r *protocol.Request, v *codec.FrameView, left time.Duration) ([]byte, error) {
	c.reach(c.side + " AppendRequest")
	return c.toyCodec.AppendRequest(dst, frame, r, v, left)
}

func (c panickingPoints) ReadResponse(frame []byte, r *protocol.Response, v *codec.FrameView) error {
	c.reach(c.side + " ReadResponse")
	return c.toyCodec.ReadResponse(frame, r, v)
}

func (c panickingPoints) AppendResponse(dst, frame []byte, r *protocol.Response, v *codec.FrameView) ([]byte, error) {
	c.reach(c.side + " AppendResponse")
	return c.toyCodec.AppendResponse(dst, frame, r, v)
}

func (c panickingPoints) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	c.reach(c.side + " AppendFault")
	return c.toyCodec.AppendErrorResponse(dst, frame, reason, text)
}

func (c panickingPoints) AppendHeartbeat(dst []byte, id uint64) []byte {
	c.reach(c.side + " AppendPing")
	return c.toyCodec.AppendHeartbeat(dst, id)
}

func (c panickingPoints) AppendHeartbeatAck(dst, ping []byte) []byte {
	c.reach(c.side + " AppendPong")
	return c.toyCodec.AppendHeartbeatAck(dst, ping)
}

func (c panickingPoints) AppendGoAway(dst []byte, id uint64) []byte {
	c.reach(c.side + " AppendGoAway")
	return c.toyCodec.AppendGoAway(dst, id)
}

// panicPointService is a service with a callback point in Serve, Start, Finish, OnDisconnect and
// the body of its replies.
type panicPointService struct {
	*panicPoint
	next  *atomic.Pointer[UpstreamConn]
	forks bool                                    // runs blocking, on a stack of its own
	wrap  *func(body protocol.Body) protocol.Body // wraps the body of each response; points to nil: no wrapper
}

func (s *panicPointService) Serve(ctx context.Context, x *protocol.Exchange) error {
	s.reach("Serve")
	defer x.Downstream.OnDisconnect(func() { s.reach("gone") })()
	s.sent.Add(1)
	return s.answer(x, x.Serve(ctx, s.next.Load()))
}

func (s *panicPointService) Start(ctx context.Context, x *protocol.Exchange) error {
	if s.forks {
		return x.RunBlocking(ctx, protocol.BlockingFunc(s.Serve))
	}
	s.reach("Start")
	x.PushFinisher(s)
	s.sent.Add(1)
	return s.next.Load().Start(ctx, x)
}

func (s *panicPointService) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	s.reach("Finish")
	return s.answer(x, err)
}

// answer sets a local reply whose body is a callback point, if a point of a body is armed.
// Otherwise it applies wrap.
func (s *panicPointService) answer(x *protocol.Exchange, err error) error {
	if at := s.at.Load(); err == nil && at != nil && strings.HasPrefix(*at, "body ") {
		x.LocalReply(500, "", "")
		x.Response.Body = panicPointBody{s.panicPoint}
	} else if err == nil && *s.wrap != nil {
		x.Response.Body = (*s.wrap)(x.Response.Body)
	}
	return err
}

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

// panicPointObserver is a batchRecorder with callback points.
type panicPointObserver struct {
	*panicPoint
	batchRecorder
}

func (t *panicPointObserver) Observe(x *protocol.Exchange) {
	t.reach("tally Observe")
	t.batchRecorder.Observe(x)
}

func (t *panicPointObserver) Flush() {
	t.reach("tally Flush")
	t.batchRecorder.Flush()
}

// panicPointRig is a rig whose callback points share one panicPoint.
type panicPointRig struct {
	*rig
	panicPoint
	client atomic.Pointer[UpstreamConn]
	wrap   func(body protocol.Body) protocol.Body // set before the first request; nil: no wrapper
}

func newPanicPointRig(t *testing.T, forks bool) *panicPointRig {
	f := new(panicPointRig)
	var r *rig
	r = newRigOf(t, panickingPoints{panicPoint: &f.panicPoint, side: "server"}, &panicPointService{&f.panicPoint, &f.client, forks, &f.wrap}, func(o *stream.ServerOptions) {
		o.Observe = func(x *protocol.Exchange) {
			f.reach("Observe")
			r.observe(x)
		}
		o.NewBatchObserver = func() stream.BatchObserver {
			f.reach("NewTally")
			return &panicPointObserver{&f.panicPoint, batchRecorder{rig: r}}
		}
	})
	f.rig = r
	return f
}

// connect opens a connection to a host that runs serve, and makes the service use it.
func (f *panicPointRig) connect(t *testing.T, serve func(p *peer), change func(o *stream.UpstreamConnOptions)) {
	t.Helper()
	conn, err := network.Dialer{}.Dial(t.Context(), "tcp", startHost(t, serve), time.Now().Add(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	o := stream.UpstreamConnOptions{RPC: f.options, OnRelease: func(bool) {
		f.released.Add(1)
		f.reach("Released")
	}}
	if change != nil {
		change(&o)
	}
	u := newUpstreamConn(f.engine, panickingPoints{panicPoint: &f.panicPoint, side: "client"}, conn, o)
	t.Cleanup(func() { _ = u.Close() })
	f.client.Store(u)
}

// Outcomes of the request whose callback panics.
const (
	answered = "answered" // gets its response
	failed   = "failed"   // with an internal error
	closed   = "closed"   // its connection ended
)

func TestPanicIsContained(t *testing.T) {
	for point, want := range map[string]string{
		"server Next": closed, "server ReadRequest": failed, "server SetID": failed, "server AppendResponse": failed,
		"client SetID": failed, "client AppendRequest": failed, "client Next": failed, "client ReadResponse": failed,
		"server Traits": failed, "client Traits": failed,
		"Start": failed, "Finish": failed, "Serve": failed,
		"body Read": failed, "body Close": answered,
		"NewTally": answered, "tally Observe": answered, "tally Flush": answered,
		"Released": answered,
	} {
		for _, forks := range []bool{false, true} {
			if point == "Serve" && !forks || (point == "Start" || point == "Finish") && forks {
				continue // this kind of service does not call it
			}
			name := point
			if forks {
				name += ", on a stack"
			}
			t.Run(name, func(t *testing.T) { testPanicAt(t, point, want, forks) })
		}
	}
}

func testPanicAt(t *testing.T, point, want string, forks bool) {
	f := newPanicPointRig(t, forks)
	sent, release := make(chan struct{}), make(chan struct{})
	f.connect(t, func(p *peer) { // the bystander gets its response last
		for {
			head, frame := p.read()
			if frame == nil {
				return
			}
			if strings.HasSuffix(string(frame), "bystander") {
				close(sent)
				go func() {
					<-release
					p.conn.Write(responseFrame(head, "bystander")) // the client checks the response
				}()
				continue
			}
			p.conn.Write(responseFrame(head, "boom")) // the client checks the response
		}
	}, nil)
	by := f.dial()
	by.write(requestFrame(7, "bystander"))
	<-sent // later panics cannot come from the bystander
	f.arm(point)
	p := f.dial()
	p.write(requestFrame(1, "boom"))
	head, frame := p.read()
	got := answered
	switch {
	case frame == nil:
		got = closed
	case head.ID != 1:
		t.Fatalf("response to id %d, want 1", head.ID)
	case protocol.Reason(frame[2]) != protocol.ReasonNone:
		got = failed
	}
	if point == "body Close" && got == failed {
		got = answered // the service replies with 500
	}
	if got != want || !f.burned() {
		t.Errorf("outcome: %s (point reached: %v), want %s; frame %q", got, f.burned(), want, frame)
	}
	close(release)
	if _, frame = by.read(); frame == nil || point != "client Next" && protocol.Reason(frame[2]) != protocol.ReasonNone {
		t.Errorf("the concurrent exchange got the response %q, want its own", frame)
	}
	f.arm("none")
	if point == "client Next" {
		f.connect(t, echo, nil)
	}
	q := f.dial()
	q.write(requestFrame(2, "fine"))
	if _, frame = q.read(); frame == nil || protocol.Reason(frame[2]) != protocol.ReasonNone {
		t.Errorf("next request: response %q", frame)
	}
	for _, p := range []*peer{by, p, q} {
		_ = p.conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if forceClosed := f.ln.Drain(ctx); forceClosed != 0 {
		t.Errorf("%d connections were force-closed", forceClosed)
	}
	if sent, released := f.sent.Load(), f.released.Load(); sent != released {
		t.Errorf("%d exchanges started on host connections, %d calls of OnRelease", sent, released)
	}
}

// awaitRequests waits until n calls are pending on u.
func awaitRequests(t *testing.T, u *UpstreamConn, n int) {
	t.Helper()
	for late := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		u.mu.Lock()
		used := u.calls.used
		u.mu.Unlock()
		if used == n {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%d calls are pending, want %d", used, n)
		}
	}
}

// TestOnDisconnectPanicEndsConnection verifies that a panic for a frame that belongs to no exchange
// ends only its connection, on either side.
func TestOnDisconnectPanicEndsConnection(t *testing.T) {
	t.Run("server AppendPong", func(t *testing.T) {
		f := newPanicPointRig(t, false)
		f.connect(t, echo, nil)
		f.arm("server AppendPong")
		p := f.dial()
		p.write(toyCodec{}.AppendHeartbeat(nil, 1))
		if _, frame := p.read(); frame != nil || !f.burned() {
			t.Errorf("got %q, want the end of the connection", frame)
		}
	})
	t.Run("server AppendGoAway", func(t *testing.T) {
		f := newPanicPointRig(t, false)
		f.connect(t, echo, nil)
		p := f.dial()
		p.write(requestFrame(1, "fine"))
		p.read()
		f.arm("server AppendGoAway")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if forceClosed := f.ln.Drain(ctx); forceClosed != 0 {
			t.Errorf("%d connections were force-closed", forceClosed)
		}
		if _, frame := p.read(); frame != nil {
			t.Errorf("got %q, want the end of the connection", frame)
		}
	})
	for point, serve := range map[string]func(p *peer){
		"client AppendPong":  func(p *peer) { p.read(); p.write(toyCodec{}.AppendHeartbeat(nil, 1)); p.read() },
		"client AppendFault": func(p *peer) { p.read(); p.write(requestFrame(5, "call back")); p.read() },
		"client AppendPing":  func(p *peer) { p.read(); p.read() },
	} {
		for _, forks := range []bool{false, true} { // separate rigs, because each rig counts buffers
			t.Run(fmt.Sprintf("%s, forks: %t", point, forks), func(t *testing.T) {
				f := newPanicPointRig(t, forks)
				f.connect(t, serve, func(o *stream.UpstreamConnOptions) {
					if point == "client AppendPing" {
						o.RPC.HeartbeatInterval = 50 * time.Millisecond
					}
				})
				f.arm(point)
				p := f.dial()
				p.write(requestFrame(1, "x"))
				if _, frame := p.read(); frame == nil || protocol.Reason(frame[2]) == protocol.ReasonNone || !f.burned() {
					t.Errorf("response %q, want an error: the host's connection is lost", frame)
				}
			})
		}
	}
}

// TestOnDisconnectPanicIsContained verifies that a panic of an OnDisconnect callback, which
// has its own goroutine, is recovered.
func TestOnDisconnectPanicIsContained(t *testing.T) {
	f := newPanicPointRig(t, true)
	f.connect(t, func(p *peer) { p.read(); p.read() }, nil)
	f.arm("gone")
	p := f.dial()
	p.write(requestFrame(1, "x"))
	awaitRequests(t, f.client.Load(), 1)
	_ = p.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if forceClosed := f.ln.Drain(ctx); forceClosed != 0 || !f.burned() {
		t.Errorf("%d connections were force-closed (point reached: %v)", forceClosed, f.burned())
	}
}

// TestObserverPanicOnMalformedFrame verifies that a panic of the observer of a malformed
// frame ends only the connection.
func TestObserverPanicOnMalformedFrame(t *testing.T) {
	f := newPanicPointRig(t, false)
	f.arm("Observe")
	p := f.dial()
	p.write([]byte("no frame"))
	if _, frame := p.read(); frame != nil || !f.burned() {
		t.Errorf("got %q (point reached: %v), want the end of the connection", frame, f.burned())
	}
}

// TestDeadlinePanicEndsOneExchange verifies that a panic on the goroutine of the timer, which
// finishes expired exchanges, affects only one exchange.
func TestDeadlinePanicEndsOneExchange(t *testing.T) {
	for _, point := range []string{"Finish", "tally Observe", "tally Flush", "server AppendFault"} {
		t.Run(point, func(t *testing.T) {
			f := newPanicPointRig(t, false)
			f.connect(t, func(p *peer) { p.read(); p.read() }, nil)
			f.arm(point)
			p := f.dial()
			b := appendToy(nil, codec.Request, 0, 50*time.Millisecond, "svc echo\x00x")
			toyCodec{}.SetID(b, 1)
			p.write(b)
			_, frame := p.read()
			if frame == nil || !f.burned() {
				t.Errorf("response %q (point reached: %v)", frame, f.burned())
			}
			_ = p.conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if forceClosed := f.ln.Drain(ctx); forceClosed != 0 {
				t.Errorf("%d connections were force-closed", forceClosed)
			}
		})
	}
}
