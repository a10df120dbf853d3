package http2

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

func TestHeadersWithUnderscores(t *testing.T) {
	for _, test := range []struct {
		name    string
		action  config.UnderscoreAction
		want    string // names of fields that the service receives
		counted int64
	}{
		{"allowed", config.AllowUnderscores, "x-b x_a x_t", 0},
		{"dropped", config.DropUnderscores, "x-b", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			names := make(chan []string, 1)
			var counted atomic.Int64
			r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
				if _, err := x.Request.Body.Read(make([]byte, 1)); err == nil {
					t.Error("the request has a body, want only trailers")
				}
				var list []string
				for _, h := range []*protocol.Header{&x.Request.Header, &x.Request.Trailer} {
					for name := range h.All() {
						list = append(list, strings.Clone(name))
					}
				}
				names <- list
				x.LocalReply(204, "", "")
				return nil
			}), func(o *stream.ServerOptions) {
				o.HTTP1.Underscores = test.action
				o.CountUnderscores = func(_ config.UnderscoreAction, n int) { counted.Add(int64(n)) }
			})
			p := r.dial()
			p.request(1, false, "x_a", "1", "x-b", "2")
			p.headers(1, true, "x_t", "3")
			if status := p.awaitFields(1)[":status"]; status != "204" {
				t.Errorf("status %s, want 204", status)
			}
			got := <-names
			slices.Sort(got)
			if text := strings.Join(got, " "); text != test.want || counted.Load() != test.counted {
				t.Errorf("fields %q, counted %d; want %q, %d", text, counted.Load(), test.want, test.counted)
			}
		})
	}
}

// TestUnderscoresResetStream verifies that a rejected request resets only its stream, and does not
// count as a violation of the protocol.
func TestUnderscoresResetStream(t *testing.T) {
	r := newRig(t, protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.LocalReply(204, "", "")
		return nil
	}), func(o *stream.ServerOptions) { o.HTTP1.Underscores = config.RejectUnderscores })
	p := r.dial()
	p.request(1, true, "x_a", "1")
	if code := p.awaitReset(1); code != http2.ErrCodeInternal {
		t.Errorf("RST_STREAM with %v, want %v", code, http2.ErrCodeInternal)
	}
	if o := r.awaitRecord(); o.reason != protocol.MalformedRequest {
		t.Errorf("reason %v, want %v", o.reason, protocol.MalformedRequest)
	}
	p.request(3, true, "x-a", "1")
	if status := p.awaitFields(3)[":status"]; status != "204" {
		t.Errorf("status of the next request: %s, want 204", status)
	}
}
