package http2

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// eventTimeout is the timeout for expected events.
const eventTimeout = 5 * time.Second

// awaitClosed waits until c has a value or is closed, and fails the test after eventTimeout.
func awaitClosed(t *testing.T, c <-chan struct{}, event string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(eventTimeout):
		t.Fatalf("timeout waiting for: %s", event)
	}
}

// eventually polls condition until it returns true, and reports whether it did within eventTimeout.
func eventually(condition func() bool) bool {
	timeout, ticker := time.NewTimer(eventTimeout), time.NewTicker(time.Millisecond)
	defer timeout.Stop()
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-timeout.C:
			return condition()
		}
	}
	return true
}

// heldService is a service that responds once release is closed, unless its client disconnects
// first.
type heldService struct{ started, disconnected, release chan struct{} }

func newHeldService() *heldService {
	return &heldService{make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{})}
}

func (h *heldService) Start(ctx context.Context, x *protocol.Exchange) error {
	return x.RunBlocking(ctx, h)
}

func (h *heldService) Serve(_ context.Context, x *protocol.Exchange) error {
	disconnected := make(chan struct{})
	stop := x.Downstream.OnDisconnect(func() { close(disconnected) })
	defer stop()
	h.started <- struct{}{}
	select {
	case <-h.release:
		x.LocalReply(200, "text/plain", "done")
		return nil
	case <-disconnected:
		h.disconnected <- struct{}{}
		return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client disconnected")
	}
}

func TestStreamsAboveLimitAreRefused(t *testing.T) {
	h := newHeldService()
	r := newRig(t, h, func(o *stream.ServerOptions) { o.HTTP2.MaxConcurrentStreams = 2 })
	p := r.dial()
	for _, id := range []uint32{1, 3} {
		p.request(id, true)
		<-h.started
	}
	p.request(5, true)
	if code := p.awaitReset(5); code != http2.ErrCodeRefusedStream {
		t.Errorf("stream 5 was reset with %v, want REFUSED_STREAM", code)
	}
	close(h.release)
	if got := p.awaitFields(1)[":status"]; got != "200" {
		t.Errorf("stream 1: status %q, want 200", got)
	}
}

func TestClientResetIsDisconnect(t *testing.T) {
	h := newHeldService()
	r := newRig(t, h, nil)
	p := r.dial()
	p.request(1, true)
	<-h.started
	p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
	select {
	case <-h.disconnected:
	case <-time.After(eventTimeout):
		t.Fatal("OnDisconnect was not called")
	}
	if o := r.awaitRecord(); o.reason != protocol.ReasonDownstreamDisconnect {
		t.Errorf("recorded %+v, want %v", o, protocol.ReasonDownstreamDisconnect)
	}
	p.request(3, true) // the connection continues
	<-h.started
	close(h.release)
	if got := p.awaitFields(3)[":status"]; got != "200" {
		t.Errorf("stream 3: status %q, want 200", got)
	}
}

func TestDisconnectCancelsUpstream(t *testing.T) {
	for name, disconnect := range map[string]func(p *peer){
		"reset":        func(p *peer) { p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel)) },
		"close":        func(p *peer) { _ = p.conn.Close() },
		"stream error": func(p *peer) { p.must(p.fr.WriteWindowUpdate(1, 1<<31-1)) },
	} {
		t.Run(name, func(t *testing.T) {
			started, ended := make(chan struct{}), make(chan struct{})
			origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				close(started)
				<-r.Context().Done()
				close(ended)
			})
			r := newProxyRig(t, origin, nil, nil)
			p := r.dial()
			p.request(1, true)
			awaitClosed(t, started, "request at the origin")
			disconnect(p)
			awaitClosed(t, ended, "cancellation at the origin")
			if o := r.awaitRecord(); o.reason != protocol.ReasonDownstreamDisconnect {
				t.Errorf("recorded %+v, want %v", o, protocol.ReasonDownstreamDisconnect)
			}
		})
	}
}

// sendManyBytes returns a handler that sends up to 64 MiB, and counts the bytes.
func sendManyBytes(sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 16<<10)
		for range 4096 {
			n, err := w.Write(buf)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

func TestSlowClientBlocksOnlyItsStreams(t *testing.T) {
	var sent atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("/flood", sendManyBytes(&sent))
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "small") })
	origin := startOrigin(t, mux.ServeHTTP)
	r := newProxyRig(t, origin, nil, nil)
	p := r.dial()
	const streams = 40 // together they would exhaust a small receive window of the upstream connection
	for i := range uint32(streams) {
		p.request(2*i+1, true, ":path", "/flood")
	}
	for heads := 0; heads < streams; {
		if _, ok := p.next().(*http2.MetaHeadersFrame); ok {
			heads++
		}
	}
	for range 20 {
		if status, body := get(t, newHTTP2Client(t), "http://"+r.address+"/small"); status != 200 || body != "small" {
			t.Fatalf("another client: response %d %q, want 200 \"small\"", status, body)
		}
	}
	// Per stream: a window on each side, and the buffers of sockets and the origin.
	if limit := int64(streams) * (1 << 20); sent.Load() > limit {
		t.Errorf("the origin sent %d bytes to clients that read nothing, want at most %d", sent.Load(), limit)
	}
}

//arch:clock no event reports that an upload is blocked
func TestUploadIsFlowControlled(t *testing.T) {
	release := make(chan struct{})
	received := make(chan int64, 1)
	origin := startOrigin(t, func(_ http.ResponseWriter, r *http.Request) {
		<-release
		n, _ := io.Copy(io.Discard, r.Body)
		received <- n
	})
	r := newProxyRig(t, origin, nil, nil)
	pr, pw := io.Pipe()
	var sent atomic.Int64
	const all = 16 << 20
	go func() {
		buf := make([]byte, 16<<10)
		for sent.Load() < all {
			n, err := pw.Write(buf)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
		_ = pw.Close()
	}()
	postErr := make(chan error, 1)
	go func() {
		resp, err := newHTTP2Client(t).Post("http://"+r.address+"/", "text/plain", pr)
		if err == nil {
			err = resp.Body.Close()
		}
		postErr <- err
	}()
	for before := int64(-1); before != sent.Load(); { // until it stops growing
		before = sent.Load()
		time.Sleep(100 * time.Millisecond)
	}
	if n := sent.Load(); n > 4<<20 {
		t.Errorf("%d bytes were sent to an origin that reads nothing, want at most 4 MiB", n)
	}
	close(release)
	if n := <-received; n != all {
		t.Errorf("the origin read %d bytes, want %d", n, all)
	}
	if err := <-postErr; err != nil {
		t.Error(err)
	}
}

func TestGRPCFaultsAreTrailersOnly(t *testing.T) {
	for reason, want := range map[protocol.Reason]string{
		protocol.ReasonNoRoute: "12", protocol.ReasonDenied: "7", protocol.UpstreamTimeout: "14", protocol.Overflow: "14",
	} {
		t.Run(reason.String(), func(t *testing.T) {
			r := newRig(t, protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
				return protocol.NewFault(reason, nil)
			}), nil)
			p := r.dial()
			p.request(1, false, ":method", "POST", "content-type", "application/grpc+proto", "te", "trailers")
			head := p.awaitFields(1)
			if head[":status"] != "200" || head["grpc-status"] != want || head["content-type"] != "application/grpc+proto" || head["END"] == "" {
				t.Errorf("%v, want a head with grpc-status %s that ends the stream", head, want)
			}
			if head["grpc-message"] == "" || head["content-length"] != "" {
				t.Errorf("response %v, want grpc-message and no content-length", head)
			}
		})
	}
}

func TestGRPCTimeoutIsForwardedReduced(t *testing.T) {
	inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) {
		next := o.Service
		o.Service = protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			time.Sleep(50 * time.Millisecond)
			return x.Serve(ctx, next)
		})
	}, func(b *bubble) {
		p := b.dial()
		p.request(1, true, ":method", "POST", "content-type", "application/grpc", "te", "trailers", "grpc-timeout", "1S")
		b.awaitPreface()
		id, fields := b.host.awaitRequest()
		if remaining, ok := parseGRPCTimeout(fields["grpc-timeout"]); !ok || remaining != 950*time.Millisecond {
			t.Errorf("grpc-timeout at the host: %v, want 950ms", remaining)
		}
		if head := p.awaitFields(1); head["grpc-status"] != "4" {
			t.Errorf("%v, want grpc-status 4", head)
		}
		b.checkElapsed(time.Second, "the response arrived")
		b.host.awaitReset(id)
		if o := <-b.records; o.reason != protocol.UpstreamTimeout {
			t.Errorf("recorded %+v, want %v", o, protocol.UpstreamTimeout)
		}
	})
}

func TestDrainServesRequestsBeforeFinalGoAway(t *testing.T) {
	h := newHeldService()
	r := newRig(t, h, nil)
	p := r.dial()
	p.request(1, true)
	<-h.started
	drained := make(chan int, 1)
	go func() {
		drainCtx, cancel := context.WithTimeout(context.Background(), eventTimeout)
		defer cancel()
		drained <- r.ln.Drain(drainCtx)
	}()
	first, ok := p.next().(*http2.GoAwayFrame)
	if !ok || first.LastStreamID != 1<<31-1 || first.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want a GOAWAY with the maximum stream identifier", first)
	}
	p.request(3, true) // sent before the client has seen the GOAWAY
	<-h.started
	ping, ok := p.next().(*http2.PingFrame)
	if !ok {
		t.Fatal("no PING after the first GOAWAY")
	}
	p.must(p.fr.WritePing(true, ping.Data))
	second, ok := p.next().(*http2.GoAwayFrame)
	if !ok || second.LastStreamID != 3 {
		t.Fatalf("got %v, want a GOAWAY with last stream 3", second)
	}
	close(h.release)
	for heads := 0; heads < 2; {
		switch f := p.next().(type) {
		case nil:
			t.Fatalf("the connection ended after %d of 2 responses", heads)
		case *http2.MetaHeadersFrame:
			heads++
			if got := f.PseudoValue("status"); got != "200" {
				t.Errorf("stream %d: status %q, want 200", f.StreamID, got)
			}
		}
	}
	if forceClosed := <-drained; forceClosed != 0 {
		t.Errorf("%d connections were force-closed, want 0", forceClosed)
	}
}

//arch:clock a listener parks connections after real time, which no event reports
func TestDrainSendsGoAwayToIdleConnections(t *testing.T) {
	for name, idle := range map[string]time.Duration{"not yet parked": 0, "parked": 3 * stream.ParkAfter} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, reply(200, "fine"), nil)
			p := r.dial()
			p.request(1, true)
			p.awaitFields(1)
			r.awaitRecord()
			time.Sleep(idle)
			drained := make(chan int, 1)
			go func() {
				drainCtx, cancel := context.WithTimeout(context.Background(), eventTimeout)
				defer cancel()
				drained <- r.ln.Drain(drainCtx)
			}()
			var lastStreamID uint32
			for {
				f := p.next()
				if f == nil {
					break
				}
				switch f := f.(type) {
				case *http2.PingFrame:
					p.must(p.fr.WritePing(true, f.Data))
				case *http2.GoAwayFrame:
					lastStreamID = f.LastStreamID
					if f.ErrCode != http2.ErrCodeNo {
						t.Errorf("GOAWAY with %v, want NO_ERROR", f.ErrCode)
					}
				}
			}
			if lastStreamID != 1 {
				t.Errorf("GOAWAY with last stream %d, want 1", lastStreamID)
			}
			_ = p.conn.Close()
			if forceClosed := <-drained; forceClosed != 0 {
				t.Errorf("%d connections were force-closed, want 0", forceClosed)
			}
		})
	}
}

func TestHeaderAboveLimitGets431(t *testing.T) {
	r := newRig(t, reply(200, "fine"), func(o *stream.ServerOptions) { o.HTTP1.MaxHeaderSize = 4096 })
	p := r.dial()
	p.request(1, true, "x-large", strings.Repeat("x", 8000))
	if got := p.awaitFields(1)[":status"]; got != "431" {
		t.Errorf("status %q, want 431", got)
	}
	p.request(3, true)
	if got := p.awaitFields(3)[":status"]; got != "200" {
		t.Errorf("the next request: status %q, want 200", got)
	}
}

func TestBodyAboveLimitGets413(t *testing.T) {
	origin := startOrigin(t, echo)
	limit := func(o *stream.ServerOptions) { o.HTTP1.MaxRequestBodySize = 1000 }
	t.Run("declared", func(t *testing.T) {
		r := newProxyRig(t, origin, limit, nil)
		p := r.dial()
		p.request(1, false, ":method", "POST", "content-length", "1001")
		if got := p.awaitFields(1)[":status"]; got != "413" {
			t.Errorf("status %q, want 413", got)
		}
	})
	t.Run("streamed", func(t *testing.T) {
		r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			_, err := io.Copy(io.Discard, x.Request.Body)
			return err
		}), limit)
		p := r.dial()
		p.request(1, false, ":method", "POST")
		p.must(p.fr.WriteData(1, false, make([]byte, 600)))
		p.must(p.fr.WriteData(1, false, make([]byte, 600)))
		if got := p.awaitFields(1)[":status"]; got != "413" {
			t.Errorf("status %q, want 413", got)
		}
	})
}

func TestEarlyResponseIsCompleteBeforeReset(t *testing.T) {
	r := newRig(t, reply(403, "no"), nil)
	p := r.dial()
	p.request(1, false, ":method", "POST")
	if got := p.awaitFields(1)[":status"]; got != "403" {
		t.Fatalf("status %q, want 403", got)
	}
	p.must(p.fr.WriteData(1, false, make([]byte, 1000)))
	if code := p.awaitReset(1); code != http2.ErrCodeNo {
		t.Errorf("the stream was reset with %v, want NO_ERROR", code)
	}
	p.request(3, false, ":method", "POST")
	p.awaitFields(3)
	p.must(p.fr.WriteData(3, true, nil)) // the request is complete: no reset
	p.request(5, true)
	for {
		switch f := p.next().(type) {
		case nil:
			t.Fatal("the connection has ended")
		case *http2.RSTStreamFrame:
			t.Fatalf("stream %d was reset with %v, want no reset", f.StreamID, f.ErrCode)
		case *http2.MetaHeadersFrame:
			return
		}
	}
}

func TestPanicInServiceFailsOneStream(t *testing.T) {
	r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		if x.Request.Path == "/panic" {
			panic(injected)
		}
		x.LocalReply(200, "", "")
		return nil
	}), nil)
	p := r.dial()
	p.request(1, true, ":path", "/panic")
	if got := p.awaitFields(1)[":status"]; got != "500" {
		t.Errorf("status %q, want 500", got)
	}
	p.request(3, true)
	if got := p.awaitFields(3)[":status"]; got != "200" {
		t.Errorf("the next request: status %q, want 200", got)
	}
}

func TestIdleStreamIsReset(t *testing.T) {
	origin := startOrigin(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r := newProxyRig(t, origin, func(o *stream.ServerOptions) { o.HTTP2.StreamIdleTimeout = 50 * time.Millisecond }, nil)
	p := r.dial()
	p.request(1, false, ":method", "POST")
	p.awaitReset(1)
	if o := r.awaitRecord(); o.reason == protocol.ReasonNone {
		t.Errorf("recorded %+v, want a reason", o)
	}
}

func TestConnectionErrorSendsGoAway(t *testing.T) {
	r := newRig(t, reply(200, ""), nil)
	p := r.dial()
	p.must(p.fr.WriteRawFrame(http2.FrameData, 0, 0, []byte("on stream 0")))
	for {
		f := p.next()
		if f == nil {
			t.Fatal("no GOAWAY")
		}
		if goAway, ok := f.(*http2.GoAwayFrame); ok {
			if goAway.ErrCode != http2.ErrCodeProtocol {
				t.Errorf("GOAWAY with %v, want PROTOCOL_ERROR", goAway.ErrCode)
			}
			break
		}
	}
	if f := p.next(); f != nil {
		t.Errorf("got %v after GOAWAY, want the end of the connection", f)
	}
}
