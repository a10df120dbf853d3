package http2

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// newUpstreamRig returns a rig for tests of an upstream connection alone.
func newUpstreamRig(t *testing.T) *rig { return newRig(t, reply(500, "not called"), nil) }

func TestUnprocessedRequestIsSafeToRetry(t *testing.T) {
	for name, reject := range map[string]func(p *peer, id uint32){
		"GOAWAY":         func(p *peer, _ uint32) { p.must(p.fr.WriteGoAway(0, http2.ErrCodeNo, nil)) },
		"REFUSED_STREAM": func(p *peer, id uint32) { p.must(p.fr.WriteRSTStream(id, http2.ErrCodeRefusedStream)) },
	} {
		t.Run(name, func(t *testing.T) {
			address := startHost(t, func(p *peer) {
				if id := p.awaitHead(); id > 0 {
					reject(p, id)
				}
				p.awaitHead()
			})
			var reusable atomic.Int64
			u := newUpstreamRig(t).dialUpstream(address, func(o *stream.UpstreamConnOptions) {
				o.OnRelease = func(reuse bool) {
					if reuse {
						reusable.Add(1)
					}
				}
			})
			body := protocol.NewStringBody("body that can be sent again")
			_, _, err := sendRequest(u, func(x *protocol.Exchange) {
				x.Request.Method, x.Request.Body, x.Request.ContentLength = "POST", body, int64(body.Buffered())
			})
			if reason := protocol.ReasonOf(err); !reason.Spec().SafeToRetry {
				t.Errorf("ended with %v, want ConnectFailure", err)
			}
			if body.Buffered() == 0 {
				t.Error("the body was not rewound")
			}
			if want := name == "REFUSED_STREAM"; u.Usable(0) != want || reusable.Load() == 1 != want {
				t.Errorf("Usable = %v, OnRelease(true) was called %d times; want a usable connection: %t", u.Usable(0), reusable.Load(), want)
			}
		})
	}
}

func TestUnprocessedRequestWithoutRewindIsNotRetried(t *testing.T) {
	address := startHost(t, func(p *peer) {
		if id := p.awaitHead(); id > 0 {
			p.must(p.fr.WriteRSTStream(id, http2.ErrCodeRefusedStream))
		}
		p.awaitHead()
	})
	u := newUpstreamRig(t).dialUpstream(address, nil)
	_, _, err := sendRequest(u, func(x *protocol.Exchange) {
		x.Request.Method, x.Request.Body = "POST", nonRewindableBody{strings.NewReader("once")}
	})
	if reason := protocol.ReasonOf(err); reason != protocol.UpstreamReset {
		t.Errorf("ended with %v, want %v", err, protocol.UpstreamReset)
	}
}

// nonRewindableBody is a body that cannot be rewound.
type nonRewindableBody struct{ *strings.Reader }

func (b nonRewindableBody) Buffered() int { return b.Len() }
func (b nonRewindableBody) Close() error  { return nil }

func TestHostResetIsUpstreamReset(t *testing.T) {
	for code, want := range map[http2.ErrCode]protocol.Reason{
		http2.ErrCodeInternal: protocol.UpstreamReset,
		http2.ErrCodeCancel:   protocol.UpstreamReset,
	} {
		t.Run(code.String(), func(t *testing.T) {
			address := startHost(t, func(p *peer) {
				if id := p.awaitHead(); id > 0 {
					p.must(p.fr.WriteRSTStream(id, code))
				}
				p.awaitHead()
			})
			_, _, err := sendRequest(newUpstreamRig(t).dialUpstream(address, nil), nil)
			if protocol.ReasonOf(err) != want {
				t.Errorf("ended with %v, want %v", err, want)
			}
		})
	}
}

func TestMalformedResponse(t *testing.T) {
	for name, respond := range map[string]func(p *peer, id uint32){
		"no status":             func(p *peer, id uint32) { p.headers(id, true, "x", "y") },
		"uppercase":             func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "X-Upper", "y") },
		"content-length":        func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "content-length", "5") },
		"line break in a value": func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "x", "a\r\nb: c") },
		"DATA on stream 0":      func(p *peer, _ uint32) { p.must(p.fr.WriteRawFrame(http2.FrameData, 0, 0, []byte("x"))) },
		"PUSH_PROMISE":          func(p *peer, id uint32) { p.must(p.fr.WriteRawFrame(http2.FramePushPromise, 4, id, make([]byte, 5))) },
		"DATA before the head":  func(p *peer, id uint32) { p.must(p.fr.WriteData(id, true, []byte("x"))) },
	} {
		t.Run(name, func(t *testing.T) {
			address := startHost(t, func(p *peer) {
				if id := p.awaitHead(); id > 0 {
					respond(p, id)
				}
				p.awaitHead()
			})
			_, _, err := sendRequest(newUpstreamRig(t).dialUpstream(address, nil), nil)
			if protocol.ReasonOf(err) != protocol.UpstreamMalformed {
				t.Errorf("ended with %v, want %v", err, protocol.UpstreamMalformed)
			}
		})
	}
}

func TestConnectionLossFailsExchanges(t *testing.T) {
	heads := make(chan struct{}, 10)
	closeConn := make(chan struct{})
	address := startHost(t, func(p *peer) {
		for range 5 {
			p.awaitHead()
			heads <- struct{}{}
		}
		<-closeConn
	})
	u := newUpstreamRig(t).dialUpstream(address, nil)
	var exchanges sync.WaitGroup
	for range 5 {
		exchanges.Go(func() {
			if _, _, err := sendRequest(u, nil); protocol.ReasonOf(err) != protocol.UpstreamClosed && protocol.ReasonOf(err) != protocol.UpstreamReset {
				t.Errorf("ended with %v, want %v or %v", err, protocol.UpstreamClosed, protocol.UpstreamReset)
			}
		})
	}
	for range 5 {
		<-heads
	}
	close(closeConn)
	exchanges.Wait()
	if u.Usable(0) {
		t.Error("the connection is still usable")
	}
	if _, _, err := sendRequest(u, nil); !protocol.ReasonOf(err).Spec().SafeToRetry {
		t.Errorf("the next exchange ended with %v, want an error after which a retry is safe", err)
	}
}

// TestExchangesWaitForStream verifies that no more requests are in flight at the host than its
// limit of concurrent streams.
func TestExchangesWaitForStream(t *testing.T) {
	const requests = 50
	var inflight, maxInflight atomic.Int64
	address := startHost(t, func(p *peer) {
		p.headers(p.awaitHead(), true, ":status", "204")
		// Another goroutine responds, so that a request that does not wait is read before the
		// response.
		ids := make(chan uint32, requests)
		var responder sync.WaitGroup
		responder.Go(func() {
			for id := range ids {
				for range 10 {
					runtime.Gosched()
				}
				inflight.Add(-1)
				p.headers(id, true, ":status", "204")
			}
		})
		defer responder.Wait()
		defer close(ids)
		for id := p.awaitHead(); id != 0; id = p.awaitHead() {
			maxInflight.Store(max(maxInflight.Load(), inflight.Add(1)))
			ids <- id
		}
	}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
	u := newUpstreamRig(t).dialUpstream(address, nil)
	if status, _, err := sendRequest(u, nil); status != 204 || err != nil { // the host's settings arrive
		t.Fatalf("response %d, %v; want 204", status, err)
	}
	var exchanges sync.WaitGroup
	for range requests {
		exchanges.Go(func() {
			if status, _, err := sendRequest(u, nil); status != 204 || err != nil {
				t.Errorf("response %d, %v; want 204", status, err)
			}
		})
	}
	exchanges.Wait()
	if got := maxInflight.Load(); got != 1 {
		t.Errorf("up to %d requests were in flight, want 1", got)
	}
}

func TestDeadlineAppliesToPendingRequest(t *testing.T) {
	address := startHost(t, func(p *peer) {
		for p.awaitHead() != 0 { // sends no response
		}
	}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
	u := newUpstreamRig(t).dialUpstream(address, nil)
	start := time.Now()
	_, _, err := sendRequest(u, func(x *protocol.Exchange) { x.Deadline = time.Now().Add(50 * time.Millisecond) })
	if protocol.ReasonOf(err) != protocol.UpstreamTimeout || time.Since(start) > eventTimeout {
		t.Errorf("ended with %v after %v, want %v within %v", err, time.Since(start), protocol.UpstreamTimeout, eventTimeout)
	}
}

func TestDeadlineAppliesToResponse(t *testing.T) {
	reset := make(chan struct{})
	address := startHost(t, func(p *peer) {
		id := p.awaitHead()
		if p.awaitReset(id) == http2.ErrCodeCancel {
			close(reset)
		}
	})
	u := newUpstreamRig(t).dialUpstream(address, nil)
	_, _, err := sendRequest(u, func(x *protocol.Exchange) { x.Deadline = time.Now().Add(30 * time.Millisecond) })
	if protocol.ReasonOf(err) != protocol.UpstreamTimeout {
		t.Errorf("ended with %v, want %v", err, protocol.UpstreamTimeout)
	}
	awaitClosed(t, reset, "reset at the host")
}

func TestOtherProtocolDisconnectCancelsPending(t *testing.T) {
	reset := make(chan struct{})
	address := startHost(t, func(p *peer) {
		if p.awaitReset(p.awaitHead()) == http2.ErrCodeCancel {
			close(reset)
		}
	})
	u := newUpstreamRig(t).dialUpstream(address, nil)
	c := &disconnectingClient{callbacks: make(chan func(), 1)}
	go func() { (<-c.callbacks)() }()
	_, _, err := sendRequest(u, func(x *protocol.Exchange) { x.Downstream = c })
	if protocol.ReasonOf(err) != protocol.ReasonDownstreamDisconnect {
		t.Errorf("ended with %v, want %v", err, protocol.ReasonDownstreamDisconnect)
	}
	awaitClosed(t, reset, "reset at the host")
}

// disconnectingClient is a client that disconnects as soon as OnDisconnect is called.
type disconnectingClient struct{ callbacks chan func() }

func (*disconnectingClient) SendInterim(int, *protocol.Header) error { return nil }
func (c *disconnectingClient) OnDisconnect(onDisconnect func()) func() {
	c.callbacks <- onDisconnect
	return func() {}
}

func TestInterimResponsesAreForwarded(t *testing.T) {
	address := startOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(103)
		w.WriteHeader(103)
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "final")
	})
	r := newProxyRig(t, address, nil, nil)
	p := r.dial()
	p.request(1, true)
	for i := range 2 {
		if fields := p.awaitFields(1); fields[":status"] != "103" || fields["link"] != "</style.css>" {
			t.Errorf("interim response %d: %v, want status 103 with link", i, fields)
		}
	}
	if fields := p.awaitFields(1); fields[":status"] != "200" || fields["link"] != "" {
		t.Errorf("final response: %v, want status 200 without link", fields)
	}
}

func TestTrailersAreForwarded(t *testing.T) {
	received := make(chan string, 1)
	address := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		received <- r.Trailer.Get("X-Request-Sum")
		w.Header().Set(http.TrailerPrefix+"X-Answer-Sum", "2")
		_, _ = io.WriteString(w, "content")
	})
	r := newProxyRig(t, address, nil, nil)
	p := r.dial()
	p.request(1, false, ":method", "POST", "trailer", "x-request-sum")
	p.must(p.fr.WriteData(1, false, []byte("content")))
	p.headers(1, true, "x-request-sum", "1")
	if sum := <-received; sum != "1" {
		t.Errorf("the origin received the trailer %q, want 1", sum)
	}
	p.awaitFields(1)
	if fields := p.awaitFields(1); fields["x-answer-sum"] != "2" || fields["END"] == "" {
		t.Errorf("the client received the trailers %v, want x-answer-sum: 2", fields)
	}
	if o := r.awaitRecord(); o.trailers != 1 {
		t.Errorf("recorded %+v, want one trailer", o)
	}
}

func TestExtendedConnectOpensTunnel(t *testing.T) {
	address := startHost(t, func(p *peer) {
		p.headers(p.awaitHead(), true, ":status", "204")
		id := p.awaitHead()
		p.headers(id, false, ":status", "200")
		for {
			switch f := p.next().(type) {
			case nil:
				return
			case *http2.DataFrame:
				p.must(p.fr.WriteData(id, f.StreamEnded(), f.Data()))
			}
		}
	}, http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
	r := newProxyRig(t, address, nil, nil)
	p := r.dial()
	p.request(1, true) // the host's settings arrive before its response
	p.awaitFields(1)
	p.request(3, false, ":method", "CONNECT", ":protocol", "websocket")
	if fields := p.awaitFields(3); fields[":status"] != "200" {
		t.Fatalf("response %v to CONNECT, want status 200", fields)
	}
	p.must(p.fr.WriteData(3, false, []byte("ping")))
	for {
		f, ok := p.next().(*http2.DataFrame)
		if !ok || f.StreamID != 3 {
			continue
		}
		if string(f.Data()) != "ping" {
			t.Errorf("the tunnel echoed %q, want \"ping\"", f.Data())
		}
		break
	}
	p.must(p.fr.WriteData(3, true, nil))
	for {
		if f, ok := p.next().(*http2.DataFrame); ok && f.StreamID == 3 && f.StreamEnded() {
			break
		}
	}
	for r.awaitRecord().status != 101 { // until the tunnel was recorded
	}
}

func TestPingTimeoutFailsExchange(t *testing.T) {
	address := startHost(t, func(p *peer) {
		for {
			if _, err := p.fr.ReadFrame(); err != nil { // acknowledges no PING
				return
			}
		}
	})
	u := newUpstreamRig(t).dialUpstream(address, func(o *stream.UpstreamConnOptions) {
		o.HTTP2.PingInterval, o.HTTP2.PingTimeout = 20*time.Millisecond, 50*time.Millisecond
	})
	start := time.Now()
	_, _, err := sendRequest(u, nil)
	if err == nil || time.Since(start) > eventTimeout {
		t.Errorf("ended with %v after %v, want an error within %v", err, time.Since(start), eventTimeout)
	}
}

func TestOtherProtocolDisconnectCancelsBody(t *testing.T) {
	reset := make(chan struct{})
	address := startHost(t, func(p *peer) {
		id := p.awaitHead()
		p.headers(id, false, ":status", "200")
		p.must(p.fr.WriteData(id, false, []byte("partial")))
		if p.awaitReset(id) == http2.ErrCodeCancel {
			close(reset)
		}
	})
	u := newUpstreamRig(t).dialUpstream(address, nil)
	c := &disconnectingClient{callbacks: make(chan func(), 1)}
	go func() { (<-c.callbacks)() }()
	status, body, err := sendRequest(u, func(x *protocol.Exchange) { x.Downstream = c })
	if status != 200 || body != "partial" || protocol.ReasonOf(err) != protocol.ReasonDownstreamDisconnect {
		t.Errorf("response %d %q, error %v; want 200 \"partial\", %v", status, body, err, protocol.ReasonDownstreamDisconnect)
	}
	awaitClosed(t, reset, "reset at the host")
}
