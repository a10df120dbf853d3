package xprotocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// panicPointMessage is a filter's body that wraps a host's response. Close panics before it closes
// the inner body.
type panicPointMessage struct {
	*codec.Message
	inner protocol.Body
	*panicPoint
}

func (m *panicPointMessage) Close() error {
	m.reach("answer Close")
	return m.inner.Close()
}

// TestClosePanicReleasesUpstreamConn verifies that the response reaches the client and
// that OnRelease runs exactly once when Close of a filter's body panics.
func TestClosePanicReleasesUpstreamConn(t *testing.T) {
	for _, forks := range []bool{false, true} {
		t.Run(fmt.Sprintf("forks: %t", forks), func(t *testing.T) {
			f := newPanicPointRig(t, forks)
			f.wrap = func(body protocol.Body) protocol.Body {
				return &panicPointMessage{codec.MessageOf(body), body, &f.panicPoint}
			}
			released := make(chan bool, 10)
			f.connect(t, echo, func(o *stream.UpstreamConnOptions) {
				o.OnRelease = func(reusable bool) { released <- reusable }
			})
			f.arm("answer Close")
			p := f.dial()
			for id := range uint64(2) {
				p.write(requestFrame(id+1, "fine"))
				if _, frame := p.read(); frame == nil || protocol.Reason(frame[2]) != protocol.ReasonNone {
					t.Errorf("request %d: response %q", id+1, frame)
				}
				select {
				case reusable := <-released:
					if !reusable {
						t.Error("the host's connection was released as not reusable")
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("the host's connection was not released by request %d", id+1)
				}
			}
			if !f.burned() || len(released) > 0 {
				t.Errorf("panicked: %v; %d extra calls of OnRelease", f.burned(), len(released))
			}
		})
	}
}
