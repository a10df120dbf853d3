package service

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest/example"
)

// completeBody is a body that reports whether all of it has arrived.
type completeBody struct {
	*protocol.StringBody
	complete bool
}

func (b completeBody) Complete() (complete, empty bool) { return b.complete, false }

// TestHedgeable verifies which requests are hedged: those that may be sent twice and whose
// bodies are complete or small. Other requests get one attempt at a time.
func TestHedgeable(t *testing.T) {
	withBody := func(x *protocol.Exchange) {
		x.Request.Body, x.Request.ContentLength = protocol.NewStringBody("content"), int64(len("content"))
		x.Request.Trailer.Add("x-sum", "7")
	}
	grpc := func(complete bool) func(x *protocol.Exchange) {
		return func(x *protocol.Exchange) {
			x.Meta.Protocol, x.Request.Method = string(config.HTTP2), "POST"
			x.Request.Header.Add("content-type", "application/grpc")
			x.Request.Body = completeBody{protocol.NewStringBody("content"), complete}
		}
	}
	for name, test := range map[string]struct {
		change func(x *protocol.Exchange)
		want   bool
	}{
		"GET":                     {func(*protocol.Exchange) {}, true},
		"PUT with a body":         {func(x *protocol.Exchange) { x.Request.Method = "PUT"; withBody(x) }, true},
		"complete gRPC request":   {grpc(true), true},
		"incomplete gRPC request": {grpc(false), false},
		"POST":                    {func(x *protocol.Exchange) { x.Request.Method = "POST"; withBody(x) }, false},
		"PUT with a large body": {func(x *protocol.Exchange) {
			x.Request.Method = "PUT"
			withBody(x)
			x.Request.ContentLength = maxHedgedBodySize + 1
		}, false},
		"PUT of unknown length": {func(x *protocol.Exchange) { x.Request.Method = "PUT"; withBody(x); x.Request.ContentLength = -1 }, false},
		"upgrade":               {func(x *protocol.Exchange) { x.Request.Upgrade = "websocket" }, false},
		"CONNECT":               {func(x *protocol.Exchange) { x.Request.Method = "CONNECT" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHedgeScript(9, "never", "200 at 5ms")
				service, background := s.newHedge(t, config.Forward{
					Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond},
					Hedge: &config.HedgePolicy{InitialRequests: 2},
				}, nil)
				x := newTestExchange()
				x.Meta.Start = time.Now()
				x.Meta.Conn = &protocol.ConnMeta{}
				test.change(x)
				_ = x.Serve(t.Context(), service) // only the log matters
				x.ResetResponse()
				background.Wait()
				if log := strings.Join(s.sortedLog(), ", "); strings.HasPrefix(log, "0s to a, 0s to b") != test.want {
					t.Errorf("events at the hosts: %q; want hedged: %t", log, test.want)
				}
				for _, got := range s.sent {
					if got != "content" {
						t.Errorf("a host received the body %q, want %q", got, "content")
					}
				}
			})
		})
	}
}

// TestRequestCopyEqualsOriginal verifies that each attempt has a copy of the original request and
// shares no mutable data with other attempts.
func TestRequestCopyEqualsOriginal(t *testing.T) {
	x := newTestExchange("x-one: 1")
	x.Request.Method = "PUT"
	x.Request.Body, x.Request.ContentLength = protocol.NewStringBody("content"), 7
	x.Request.Trailer.Add("x-sum", "7")
	x.Record.TargetCluster, x.Record.WeightedIndex, x.Record.Hash = "app", 3, 4
	x.Metadata.Set(protocol.BalancerNamespace, "zone", "a")
	c, err := copyRequest(x)
	if err != nil {
		t.Fatal(err)
	}
	var a, b protocol.Exchange
	a.Reset()
	b.Reset()
	if c.fill(&a) != nil || c.fill(&b) != nil {
		t.Fatal("fill returned an error")
	}
	a.Request.Header.Set("x-one", "other")
	a.Metadata.Set(protocol.BalancerNamespace, "zone", "b")
	describe := func(x *protocol.Exchange) string {
		zone, _ := x.Metadata.Lookup(protocol.BalancerNamespace, "zone")
		return fmt.Sprint(x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path, headerLines(&x.Request.Header),
			headerLines(&x.Request.Trailer), x.Request.ContentLength, x.Record.TargetCluster, x.Record.WeightedIndex, x.Record.Hash, zone, x.Meta)
	}
	if got, want := describe(&b), describe(x); got != want {
		t.Errorf("copy:\n%s,\nwant:\n%s", got, want)
	}
}

// exampleFrame returns a request of the example protocol with alternating header names and values.
func exampleFrame(texts ...string) []byte {
	b := example.Codec{}.AppendGoAway(nil, 7)
	head := len(b)
	b[2] = '?'
	for _, text := range texts {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
	}
	binary.BigEndian.PutUint32(b[12:], uint32(len(b)-head))
	return b
}

// TestRequestCopyKeepsChangedHeaders verifies that copies of RPC requests keep the received frame,
// or have the headers that filters changed.
func TestRequestCopyKeepsChangedHeaders(t *testing.T) {
	codec := example.Codec{}
	for _, changed := range []bool{false, true} {
		x := newTestExchange()
		x.Request.Header.Reset()
		x.Request.Method = ""
		m := new(xprotocol.Message)
		m.Set(codec, exampleFrame("service", "org.example.Shop", "method", "buy", "x-user", "ada"))
		x.Request.Body = m
		if err := codec.ReadRequest(m.Frame, &x.Request, &m.View); err != nil {
			t.Fatal(err)
		}
		if changed {
			x.Request.Header.Set("x-user", "bob")
		}
		want, err := codec.AppendRequest(nil, m.Frame, &x.Request, &m.View, 0)
		if err != nil {
			t.Fatal(err)
		}
		c, err := copyRequest(x)
		if err != nil {
			t.Fatal(err)
		}
		clear(m.Frame) // the engine may reuse the frame
		var a protocol.Exchange
		a.Reset()
		if err := c.fill(&a); err != nil {
			t.Fatal(err)
		}
		msg := xprotocol.MessageOf(a.Request.Body)
		got, err := codec.AppendRequest(nil, msg.Frame, &a.Request, &msg.View, 0)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("changed: %t: copy encoded as\n%q, %v; want\n%q", changed, got, err, want)
		}
	}
}

// TestContextEndCancelsAttempts verifies that the end of the context cancels attempts and that the
// exchange does not wait for them.
func TestContextEndCancelsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHedgeScript(9, "never")
		service, background := s.newHedge(t, config.Forward{Hedge: &config.HedgePolicy{InitialRequests: 2}}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(40*time.Millisecond, cancel)
		x := newTestExchange()
		err := x.Serve(ctx, service)
		if got := protocol.ReasonOf(err); got != protocol.ReasonDownstreamDisconnect || time.Since(s.start) != 40*time.Millisecond {
			t.Errorf("%v after %v; want %v after 40ms", err, time.Since(s.start), protocol.ReasonDownstreamDisconnect)
		}
		background.Wait()
		if got, want := strings.Join(s.sortedLog(), ", "), "0s to a, 0s to b, 40ms a is canceled, 40ms b is canceled"; got != want {
			t.Errorf("events at the hosts: %q, want %q", got, want)
		}
	})
}

// TestAttemptPanicFailsOnlyItsAttempt verifies that a panic fails only its attempt and that another
// attempt provides the response.
func TestAttemptPanicFailsOnlyItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHedgeScript(9, "200 at 5ms")
		var first sync.Once
		next := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			panics := false
			first.Do(func() { panics = true })
			if panics {
				x.Downstream.(*attempt).recordHost(&testScope{"p", 0}, &s.cluster)
				panic("in an attempt")
			}
			return s.Serve(ctx, x)
		})
		service, background := s.newHedgeTo(t, next, config.Forward{Hedge: &config.HedgePolicy{InitialRequests: 2}}, nil)
		x := newTestExchange()
		if err := x.Serve(t.Context(), service); err != nil || x.Response.Status != 200 {
			t.Errorf("status %d, Serve = %v; want 200, nil", x.Response.Status, err)
		}
		x.ResetResponse()
		background.Wait()
	})
}

// TestHedgeBeforeFirstHostIsCounted verifies that a hedged attempt is counted although the first
// attempt had no host yet when the hedge was launched.
func TestHedgeBeforeFirstHostIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHedgeScript(9, "200 at 5ms")
		var begun atomic.Int32
		next := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
			if begun.Add(1) == 1 {
				<-time.After(22 * time.Millisecond) // longer than the per-try timeout
			}
			return s.Serve(ctx, x)
		})
		f := config.Forward{Hedge: &config.HedgePolicy{OnPerTryTimeout: true}, Retry: &config.RetryPolicy{On: config.RetryOnDefault, NumRetries: 1, PerTryTimeout: 20 * time.Millisecond}}
		service, background := s.newHedgeTo(t, next, f, nil)
		x := newTestExchange()
		if err := x.Serve(t.Context(), service); err != nil || x.Response.Status != 200 {
			t.Errorf("status %d, Serve = %v; want 200, nil", x.Response.Status, err)
		}
		x.ResetResponse()
		background.Wait()
		if got, want := s.attempts, 2; got != want {
			t.Errorf("%d attempts, want %d", got, want)
		}
		if got := s.cluster.hedged.Load(); got != 1 {
			t.Errorf("%d hedged attempts were counted, want 1", got)
		}
	})
}

// stalledBody is a body that delivers one part and then blocks until Close.
type stalledBody struct {
	part   *strings.Reader
	closed chan struct{}
}

func (b *stalledBody) Buffered() int { return b.part.Len() }
func (b *stalledBody) Close() error  { close(b.closed); return nil }
func (b *stalledBody) Read(p []byte) (int, error) {
	if b.part.Len() > 0 {
		return b.part.Read(p)
	}
	<-b.closed
	return 0, protocol.NewFault(protocol.ReasonDownstreamDisconnect, io.ErrClosedPipe)
}

// TestReadBodyStopsAtDeadline verifies that a slow client gets a timeout at the deadline of the
// route, as without a hedge_policy.
func TestReadBodyStopsAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHedgeScript(9, "200 at 5ms")
		service, background := s.newHedge(t, config.Forward{Timeout: 300 * time.Millisecond, Hedge: &config.HedgePolicy{InitialRequests: 2}}, nil)
		x := newTestExchange()
		x.Meta.Start = time.Now()
		x.Request.Method, x.Request.ContentLength = "PUT", 7
		x.Request.Body = &stalledBody{strings.NewReader("cont"), make(chan struct{})}
		err := x.Serve(t.Context(), service)
		if got, elapsed := protocol.ReasonOf(err), time.Since(x.Meta.Start); got != protocol.UpstreamTimeout || elapsed != 300*time.Millisecond {
			t.Errorf("%v after %v, want %v after 300ms", err, elapsed, protocol.UpstreamTimeout)
		}
		background.Wait()
		if len(s.log) > 0 {
			t.Errorf("events at the hosts: %q, want none", s.log)
		}
	})
}

// panicOnClose is a body of a filter whose Close panics and leaves the wrapped body open.
type panicOnClose struct{ protocol.Body }

func (panicOnClose) Close() error { panic("in Close") }

// testDownstream is the downstream side of an engine, which can close the request body.
type testDownstream struct{ body protocol.Body }

func (testDownstream) SendInterim(int, *protocol.Header) error { return nil }
func (testDownstream) OnDisconnect(func()) (stop func())       { return func() {} }
func (d testDownstream) CloseRequestBody()                     { _ = d.body.Close() }

// TestBodyClosePanicFailsExchange verifies that a panic of Close at the deadline fails the
// exchange.
func TestBodyClosePanicFailsExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHedgeScript(9, "200 at 5ms")
		service, background := s.newHedge(t, config.Forward{Timeout: 300 * time.Millisecond, Hedge: &config.HedgePolicy{InitialRequests: 2}}, nil)
		x := newTestExchange()
		x.Meta.Start = time.Now()
		x.Request.Method, x.Request.ContentLength = "PUT", 7
		body := &stalledBody{strings.NewReader("cont"), make(chan struct{})}
		x.Downstream, x.Request.Body = testDownstream{body}, panicOnClose{body}
		err := x.Serve(t.Context(), service)
		if elapsed := time.Since(x.Meta.Start); protocol.PanicIn(err) == nil || elapsed != 300*time.Millisecond {
			t.Errorf("%v after %v, want a panic after 300ms", err, elapsed)
		}
		background.Wait()
	})
}
