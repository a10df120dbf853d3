package http2

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// TestPanicInBodyCloseEndsUpload makes the host reset a request whose body is still arriving. It
// verifies that the exchange ends even if Close of a filter's body panics before it closes the
// wrapped body.
func TestPanicInBodyCloseEndsUpload(t *testing.T) {
	h := &panicService{point: "request body Close"}
	r, calls, log := panicRig(t, h, startHost(t, func(p *peer) {
		for id := p.awaitHead(); id != 0; id = p.awaitHead() {
			if id == 1 {
				p.must(p.fr.WriteRSTStream(id, http2.ErrCodeInternal))
				continue
			}
			p.headers(id, true, ":status", "200")
		}
	}))
	p := r.dial()
	p.request(1, false, ":method", "POST", ":path", "/panic")
	p.must(p.fr.WriteData(1, false, []byte("a part")))
	if got := p.awaitFields(1)[":status"]; got != "502" {
		t.Errorf("the request: status %s, want 502", got)
	}
	p.request(3, true)
	if got := p.awaitFields(3)[":status"]; got != "200" {
		t.Errorf("the next request: status %s, want 200", got)
	}
	awaitNoCalls(t, calls)
	if !log.contains(injected) {
		t.Error("the panic was not logged")
	}
}

// panickingBody is a body whose second Read panics, or its first one if the test sets reads to 1.
type panickingBody struct {
	protocol.Body
	reads atomic.Int64
}

func (b *panickingBody) Read(p []byte) (int, error) {
	if b.reads.Add(1) > 1 {
		panic(injected)
	}
	return b.Body.Read(p)
}

// TestPanicInBodyReadResetsHostStream makes the body of a request panic when it is read: on the
// goroutine that sends it, before and after the head of the response, and on the goroutine that
// serves the request, which sends small bodies. It verifies that the host's stream is reset, and
// that both connections continue.
func TestPanicInBodyReadResetsHostStream(t *testing.T) {
	for _, tt := range []struct {
		name, length string // content-length; "": none
		responded    bool   // the host sends the response head before the panic
	}{
		{"streamed body", "", false}, {"streamed body after the response head", "", true},
		{"small body", "12", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resets := make(chan uint32, 10)
			h := new(panicService)
			calls, log := new(atomic.Int64), new(logBuffer)
			service := protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
				calls.Add(1)
				if x.Request.Body != nil {
					x.Request.Body = &panickingBody{Body: x.Request.Body}
					if tt.length != "" {
						x.Request.Body.(*panickingBody).reads.Store(1)
					}
				}
				return x.Serve(ctx, &h.forward)
			})
			r := newRigOn(t, service, nil, func(e *Engine) { e.goroutines.Log = slog.New(slog.NewTextHandler(log, nil)) })
			h.conn.Store(r.dialUpstream(startHost(t, func(p *peer) {
				for {
					switch f := p.next().(type) {
					case nil:
						return
					case *http2.MetaHeadersFrame:
						if f.StreamEnded() || tt.responded {
							p.headers(f.StreamID, f.StreamEnded(), ":status", "200")
						}
					case *http2.RSTStreamFrame:
						resets <- f.StreamID
					}
				}
			}), func(o *stream.UpstreamConnOptions) { o.OnRelease = func(bool) { calls.Add(-1) } }))
			p := r.dial()
			fields := []string{":method", "POST"}
			if tt.length != "" {
				fields = append(fields, "content-length", tt.length)
			}
			p.request(1, false, fields...)
			if tt.responded {
				if got := p.awaitFields(1)[":status"]; got != "200" {
					t.Errorf("the request: status %s, want 200", got)
				}
			}
			p.must(p.fr.WriteData(1, false, []byte("a part")))
			p.must(p.fr.WriteData(1, true, []byte("a part")))
			if tt.responded {
				p.awaitReset(1)
			} else if got := p.awaitFields(1)[":status"]; got != "500" {
				t.Errorf("the request: status %s, want 500", got)
			}
			receiveOrFail(t, resets)
			p.request(3, true)
			if got := p.awaitFields(3)[":status"]; got != "200" {
				t.Errorf("the next request: status %s, want 200", got)
			}
			awaitNoCalls(t, calls)
			r.awaitRecord()
			r.awaitRecord()
			r.mu.Lock()
			defer r.mu.Unlock()
			if !log.contains(injected) && !slices.ContainsFunc(r.observed, func(o observation) bool { return strings.Contains(o.detail, injected) }) {
				t.Errorf("the panic was not logged; records %+v, want it in one of them", r.observed)
			}
		})
	}
}

// receiveOrFail receives from c, or fails the test.
func receiveOrFail[T any](t *testing.T, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(eventTimeout):
		t.Fatal("timeout waiting for a value")
	}
}

// awaitNoCalls waits until no call is on the host's connection.
func awaitNoCalls(t *testing.T, calls *atomic.Int64) {
	t.Helper()
	if !eventually(func() bool { return calls.Load() == 0 }) {
		t.Errorf("%d calls are on the host's connection, want 0", calls.Load())
	}
}
