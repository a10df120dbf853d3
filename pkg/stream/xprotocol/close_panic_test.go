package xprotocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	codec "github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// panicPointMessage is a body of a filter that wraps the response of a host. Close is a panic
// point; its panic leaves the inner body open.
type panicPointMessage struct {
	*codec.Message
	inner protocol.Body
	*panicPoint
}

func (m *panicPointMessage) Close() error {
	m.reach("response Close")
	return m.inner.Close()
}

// TestClosePanicReleasesUpstreamConn verifies that the response reaches the client and that
// OnRelease runs exactly once when Close of a filter's body panics.
func TestClosePanicReleasesUpstreamConn(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		t.Run(fmt.Sprintf("blocking: %t", blocking), func(t *testing.T) {
			proxy := newPanicPointProxy(t, blocking)
			proxy.wrap = func(body protocol.Body) protocol.Body {
				return &panicPointMessage{codec.MessageOf(body), body, &proxy.panicPoint}
			}
			released := make(chan bool, 10)
			proxy.connect(t, echo, func(o *stream.UpstreamConnOptions) {
				o.OnRelease = func(reusable bool) { released <- reusable }
			})
			proxy.arm("response Close")
			p := proxy.dial()
			for id := range uint64(2) {
				p.write(requestFrame(id+1, "x"))
				if _, frame := p.read(); frame == nil || protocol.Reason(frame[2]) != protocol.ReasonNone {
					t.Errorf("request %d: response %q, want no error", id+1, frame)
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
			if !proxy.panicked() || len(released) > 0 {
				t.Errorf("panicked: %v; %d extra calls of OnRelease; want true, 0", proxy.panicked(), len(released))
			}
		})
	}
}
