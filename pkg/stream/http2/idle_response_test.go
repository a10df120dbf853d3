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

// trickle is a body of another protocol. It returns a byte each minute until left is 0, and then
// io.EOF, or blocks if hangs is set.
type trickle struct {
	left   int
	hangs  bool
	caller protocol.Downstream // client whose disconnect closes the body; may be nil
	ended  chan struct{}
}

func newTrickle(n int, hangs bool, caller protocol.Downstream) *trickle {
	return &trickle{n, hangs, caller, make(chan struct{})}
}

func (s *trickle) Read(p []byte) (int, error) {
	if s.left == 0 && !s.hangs {
		return 0, io.EOF
	}
	if s.caller != nil {
		defer s.caller.OnDisconnect(func() { _ = s.Close() })()
	}
	wait := time.After(time.Minute)
	if s.left == 0 {
		wait = nil
	}
	select {
	case <-s.ended:
		return 0, io.ErrClosedPipe
	case <-wait:
	}
	s.left--
	p[0] = 'x'
	return 1, nil
}

func (s *trickle) Buffered() int { return 0 }

func (s *trickle) Close() error {
	select {
	case <-s.ended:
	default:
		close(s.ended)
	}
	return nil
}

// TestResponseIdleTimeoutOfOtherProtocol verifies that an exchange fails if the host sends
// nothing for the idle timeout after it has the request, and that slow responses and slow requests
// do not fail.
func TestResponseIdleTimeoutOfOtherProtocol(t *testing.T) {
	for _, test := range []struct {
		name     string
		idle     time.Duration
		deadline time.Duration
		upload   int // bytes of the request's body, one a minute
		head     bool
		bytes    int // bytes of the response's body, one a minute
		last     bool
		content  string
		reason   protocol.Reason // of the error of Serve or of the body
		after    time.Duration
	}{
		{"no head", 90 * time.Second, 0, 0, false, 0, false, "", protocol.StreamIdle, 90 * time.Second},
		{"partial body", 90 * time.Second, 0, 0, true, 2, false, "xx", protocol.StreamIdle, 210 * time.Second},
		{"slow response", 90 * time.Second, 0, 0, true, 4, true, "xxxx", protocol.ReasonNone, 4 * time.Minute},
		{"slow request", 90 * time.Second, 0, 3, true, 1, true, "x", protocol.ReasonNone, 4 * time.Minute},
		{"idle after a slow request", 90 * time.Second, 0, 3, false, 0, false, "", protocol.StreamIdle, 270 * time.Second},
		{"earlier deadline", time.Hour, 70 * time.Second, 0, false, 0, false, "", protocol.UpstreamTimeout, 70 * time.Second},
		{"no idle timeout", 0, 50 * time.Minute, 0, false, 0, false, "", protocol.UpstreamTimeout, 50 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(_ *stream.ServerOptions, u *stream.UpstreamConnOptions) { u.HTTP2.StreamIdleTimeout = 0 }, func(b *bubble) {
				hosted := make(chan struct{})
				go func() {
					defer close(hosted)
					id := b.awaitHostRequest(true)
					for range test.upload {
						for {
							f := b.host.next()
							if d, ok := f.(*http2.DataFrame); f == nil || ok && len(d.Data()) > 0 {
								break
							}
						}
					}
					if test.head {
						b.host.headers(id, false, ":status", "200")
					}
					for i := range test.bytes {
						b.sleep(time.Minute)
						if b.host.fr.WriteData(id, test.last && i == test.bytes-1, []byte("x")) != nil {
							return
						}
					}
					for b.host.next() != nil { // until the test ends
					}
				}()
				var x protocol.Exchange
				x.Reset()
				x.Meta.Protocol = "test"
				x.IdleTimeout = test.idle
				x.PerTryDeadline = time.Now().Add(100 * time.Hour)
				if test.deadline > 0 {
					x.PerTryDeadline = time.Time{}
					x.Deadline = time.Now().Add(test.deadline)
				}
				x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = "POST", "http", "shop.test", "/"
				if test.upload > 0 {
					x.Request.Body, x.Request.ContentLength = newTrickle(test.upload, false, nil), -1
				}
				content := ""
				err := x.Serve(context.Background(), b.client)
				if err == nil {
					var all []byte
					all, err = io.ReadAll(x.Response.Body)
					content = string(all)
				} else if test.idle == 90*time.Second && !x.PerTryDeadline.IsZero() {
					t.Error("PerTryDeadline is still set, which would cause a retry")
				}
				b.checkElapsed(test.after, "the exchange ended")
				if content != test.content || protocol.ReasonOf(err) != test.reason {
					t.Errorf("%q, %v; want %q, %v", content, err, test.content, test.reason)
				}
				if quiet := test.idle == 90*time.Second && err != nil; quiet && !strings.Contains(err.Error(), "stream_idle_timeout") {
					t.Errorf("%v does not name stream_idle_timeout", err)
				}
				x.ResetResponse()
				_ = b.client.Close()
				<-hosted
			})
		})
	}
}

// TestSlowResponseOfOtherProtocolIsNotIdle verifies that the idle timeout of a stream does
// not end a slow body of another protocol, but ends one that hangs.
func TestSlowResponseOfOtherProtocolIsNotIdle(t *testing.T) {
	for _, test := range []struct {
		name   string
		hangs  bool
		bytes  int
		whole  bool
		reason protocol.Reason
		after  time.Duration
	}{
		{"slow", false, 4, true, protocol.ReasonNone, 4 * time.Minute},
		{"idle", true, 2, false, protocol.StreamIdle, 210 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) {
				o.HTTP2.StreamIdleTimeout = 90 * time.Second
				o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					x.Response.Status, x.Response.Source = 200, protocol.UpstreamResponse
					x.Response.Body, x.Response.ContentLength = newTrickle(test.bytes, test.hangs, x.Downstream), -1
					return nil
				})
			}, func(b *bubble) {
				p := b.dial()
				p.request(1, true)
				p.awaitFields(1)
				bytes := 0
				for {
					f := p.next()
					if d, ok := f.(*http2.DataFrame); ok {
						bytes += len(d.Data())
						if d.StreamEnded() {
							break
						}
					}
					if _, reset := f.(*http2.RSTStreamFrame); f == nil || reset {
						if r, ok := f.(*http2.RSTStreamFrame); !test.whole && (!ok || r.ErrCode != http2.ErrCodeInternal) {
							t.Errorf("the last frame is %v, want RST_STREAM with INTERNAL_ERROR", f)
						}
						if test.whole {
							t.Errorf("the stream ended early with %v", f)
						}
						break
					}
				}
				b.checkElapsed(test.after, "the stream ended")
				if bytes != test.bytes {
					t.Errorf("received %d bytes, want %d", bytes, test.bytes)
				}
				if o := <-b.ended; o.reason != test.reason {
					t.Errorf("recorded %v, want %v", o.reason, test.reason)
				}
			})
		})
	}
}

// TestAnIdleTunnelEnds verifies that a tunnel without bytes in either direction for the idle
// timeout is reset.
func TestAnIdleTunnelEnds(t *testing.T) {
	for _, test := range []struct {
		name         string
		caller, host int // bytes that each side sends, one per minute
		after        time.Duration
	}{
		{"silent", 0, 0, 90 * time.Second},
		{"after bytes of the client", 2, 0, 210 * time.Second},
		{"after bytes of the host", 0, 3, 270 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(o *stream.ServerOptions, _ *stream.UpstreamConnOptions) {
				o.HTTP2.StreamIdleTimeout = 90 * time.Second
				o.Service = protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
					near, far := net.Pipe()
					go func() {
						for range test.host {
							<-time.After(time.Minute)
							_, _ = far.Write([]byte("x"))
						}
					}()
					go io.Copy(io.Discard, far)
					x.Response.Status, x.Response.Source, x.Response.Tunnel = 200, protocol.UpstreamResponse, network.NewConn(near)
					return nil
				})
			}, func(b *bubble) {
				p := b.dial()
				p.headers(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/", ":authority", "shop.test")
				if head := p.awaitFields(1); head[":status"] != "200" {
					t.Fatalf("response %v to CONNECT", head)
				}
				go func() {
					for range test.caller {
						<-time.After(time.Minute)
						_ = p.fr.WriteData(1, false, []byte("x"))
					}
				}()
				if code := p.awaitReset(1); code != http2.ErrCodeInternal {
					t.Errorf("reset with %v, want INTERNAL_ERROR", code)
				}
				b.checkElapsed(test.after, "the tunnel ended")
				if o := <-b.ended; o.reason != protocol.StreamIdle {
					t.Errorf("recorded %v, want %v", o.reason, protocol.StreamIdle)
				}
			})
		})
	}
}
