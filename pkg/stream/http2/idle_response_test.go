package http2

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// trickle is a body of another protocol. It returns a byte each minute until remaining is 0, and
// then io.EOF, or blocks if hangs is set.
type trickle struct {
	remaining  int
	hangs      bool
	downstream protocol.Downstream // client whose disconnect closes the body; may be nil
	closed     chan struct{}
}

func newTrickle(n int, hangs bool, downstream protocol.Downstream) *trickle {
	return &trickle{n, hangs, downstream, make(chan struct{})}
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.remaining == 0 && !b.hangs {
		return 0, io.EOF
	}
	if b.downstream != nil {
		defer b.downstream.OnDisconnect(func() { _ = b.Close() })()
	}
	tick := time.After(time.Minute)
	if b.remaining == 0 {
		tick = nil
	}
	select {
	case <-b.closed:
		return 0, io.ErrClosedPipe
	case <-tick:
	}
	b.remaining--
	p[0] = 'x'
	return 1, nil
}

func (b *trickle) Buffered() int { return 0 }

func (b *trickle) Close() error {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	return nil
}

// TestResponseIdleTimeoutOfOtherProtocol verifies that an exchange fails if the host sends nothing
// for the idle timeout after it has the request, and that slow responses and slow requests do not
// fail.
func TestResponseIdleTimeoutOfOtherProtocol(t *testing.T) {
	for _, tt := range []struct {
		name          string
		idleTimeout   time.Duration
		deadline      time.Duration
		requestBytes  int  // bytes of the request's body, one per minute
		sendsHead     bool // the host sends a response head
		responseBytes int  // bytes of the response's body, one per minute
		endsResponse  bool // the host ends the response
		body          string
		reason        protocol.Reason // reason of the error of Serve or of the body
		elapsed       time.Duration   // when the exchange ends
	}{
		{"no head", 90 * time.Second, 0, 0, false, 0, false, "", protocol.StreamIdle, 90 * time.Second},
		{"partial body", 90 * time.Second, 0, 0, true, 2, false, "xx", protocol.StreamIdle, 210 * time.Second},
		{"slow response", 90 * time.Second, 0, 0, true, 4, true, "xxxx", protocol.ReasonNone, 4 * time.Minute},
		{"slow request", 90 * time.Second, 0, 3, true, 1, true, "x", protocol.ReasonNone, 4 * time.Minute},
		{"idle after a slow request", 90 * time.Second, 0, 3, false, 0, false, "", protocol.StreamIdle, 270 * time.Second},
		{"earlier deadline", time.Hour, 70 * time.Second, 0, false, 0, false, "", protocol.UpstreamTimeout, 70 * time.Second},
		{"no idle timeout", 0, 50 * time.Minute, 0, false, 0, false, "", protocol.UpstreamTimeout, 50 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(_ *stream.ServerOptions, u *stream.UpstreamConnOptions) { u.HTTP2.StreamIdleTimeout = 0 }, func(b *bubble) {
				hostDone := make(chan struct{})
				go func() {
					defer close(hostDone)
					id := b.awaitHostRequest(true)
					for range tt.requestBytes {
						for {
							f := b.host.next()
							if d, ok := f.(*http2.DataFrame); f == nil || ok && len(d.Data()) > 0 {
								break
							}
						}
					}
					if tt.sendsHead {
						b.host.headers(id, false, ":status", "200")
					}
					for i := range tt.responseBytes {
						time.Sleep(time.Minute)
						if b.host.fr.WriteData(id, tt.endsResponse && i == tt.responseBytes-1, []byte("x")) != nil {
							return
						}
					}
					for b.host.next() != nil { // until the test ends
					}
				}()
				var x protocol.Exchange
				x.Reset()
				x.Meta.Protocol = "test"
				x.IdleTimeout = tt.idleTimeout
				x.PerTryDeadline = time.Now().Add(100 * time.Hour)
				if tt.deadline > 0 {
					x.PerTryDeadline = time.Time{}
					x.Deadline = time.Now().Add(tt.deadline)
				}
				x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "POST", "http", "shop.test", "/"
				if tt.requestBytes > 0 {
					x.Request.Body, x.Request.ContentLength = newTrickle(tt.requestBytes, false, nil), -1
				}
				body := ""
				err := x.Serve(context.Background(), b.upstream)
				if err == nil {
					var data []byte
					data, err = io.ReadAll(x.Response.Body)
					body = string(data)
				} else if tt.idleTimeout == 90*time.Second && !x.PerTryDeadline.IsZero() {
					t.Error("PerTryDeadline is still set, which would cause a retry")
				}
				b.checkElapsed(tt.elapsed, "the exchange ended")
				if body != tt.body || protocol.ReasonOf(err) != tt.reason {
					t.Errorf("body %q, error %v; want %q, %v", body, err, tt.body, tt.reason)
				}
				if isIdle := tt.idleTimeout == 90*time.Second && err != nil; isIdle && !strings.Contains(err.Error(), "stream_idle_timeout") {
					t.Errorf("error %v, want it to contain stream_idle_timeout", err)
				}
				x.ResetResponse()
				_ = b.upstream.Close()
				<-hostDone
			})
		})
	}
}

// TestSlowResponseOfOtherProtocolIsNotIdle verifies that the idle timeout of a stream does not end
// a slow body of another protocol, but ends one that hangs.
func TestSlowResponseOfOtherProtocolIsNotIdle(t *testing.T) {
	for _, tt := range []struct {
		name     string
		hangs    bool
		bytes    int
		complete bool
		reason   protocol.Reason
		elapsed  time.Duration
	}{
		{"slow", false, 4, true, protocol.ReasonNone, 4 * time.Minute},
		{"idle", true, 2, false, protocol.StreamIdle, 210 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) {
				o.HTTP2.StreamIdleTimeout = 90 * time.Second
				o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					x.Response.Status, x.Response.Source = 200, protocol.UpstreamResponse
					x.Response.Body, x.Response.ContentLength = newTrickle(tt.bytes, tt.hangs, x.Downstream), -1
					return nil
				})
			}, func(b *bubble) {
				p := b.dial()
				p.request(1, true)
				p.awaitFields(1)
				received := 0
				for {
					f := p.next()
					if d, ok := f.(*http2.DataFrame); ok {
						received += len(d.Data())
						if d.StreamEnded() {
							break
						}
					}
					if _, reset := f.(*http2.RSTStreamFrame); f == nil || reset {
						if r, ok := f.(*http2.RSTStreamFrame); !tt.complete && (!ok || r.ErrCode != http2.ErrCodeInternal) {
							t.Errorf("the last frame is %v, want RST_STREAM with INTERNAL_ERROR", f)
						}
						if tt.complete {
							t.Errorf("the stream ended early with %v", f)
						}
						break
					}
				}
				b.checkElapsed(tt.elapsed, "the stream ended")
				if received != tt.bytes {
					t.Errorf("received %d bytes, want %d", received, tt.bytes)
				}
				if o := <-b.records; o.reason != tt.reason {
					t.Errorf("recorded %v, want %v", o.reason, tt.reason)
				}
			})
		})
	}
}

// TestIdleTunnelEnds verifies that a tunnel without bytes in either direction for the idle timeout
// is reset.
func TestIdleTunnelEnds(t *testing.T) {
	for _, tt := range []struct {
		name         string
		client, host int // bytes that each side sends, one per minute
		elapsed      time.Duration
	}{
		{"silent", 0, 0, 90 * time.Second},
		{"after bytes of the client", 2, 0, 210 * time.Second},
		{"after bytes of the host", 0, 3, 270 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) {
				o.HTTP2.StreamIdleTimeout = 90 * time.Second
				o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					local, remote := net.Pipe()
					go func() {
						for range tt.host {
							<-time.After(time.Minute)
							_, _ = remote.Write([]byte("x"))
						}
					}()
					go io.Copy(io.Discard, remote)
					x.Response.Status, x.Response.Source, x.Response.Tunnel = 200, protocol.UpstreamResponse, network.NewConn(local)
					return nil
				})
			}, func(b *bubble) {
				p := b.dial()
				p.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "shop.test")
				if head := p.awaitFields(1); head[":status"] != "200" {
					t.Fatalf("response %v to CONNECT, want status 200", head)
				}
				go func() {
					for range tt.client {
						<-time.After(time.Minute)
						_ = p.fr.WriteData(1, false, []byte("x"))
					}
				}()
				if code := p.awaitReset(1); code != http2.ErrCodeInternal {
					t.Errorf("reset with %v, want INTERNAL_ERROR", code)
				}
				b.checkElapsed(tt.elapsed, "the tunnel ended")
				if o := <-b.records; o.reason != protocol.StreamIdle {
					t.Errorf("recorded %v, want %v", o.reason, protocol.StreamIdle)
				}
			})
		})
	}
}
