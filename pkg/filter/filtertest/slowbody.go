package filtertest

import (
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// SlowBody is a request body that arrives after the first Read has waited for a second. If the
// client disconnects before that, Read returns a Fault, as with an engine.
type SlowBody struct {
	*protocol.StringBody

	disconnected chan struct{} // closed by disconnect
	disconnect   func()
	arrived      bool // owned by the reader
}

// NewSlowBody returns a SlowBody with text.
func NewSlowBody(text string) *SlowBody {
	disconnected := make(chan struct{})
	return &SlowBody{protocol.NewStringBody(text), disconnected, sync.OnceFunc(func() { close(disconnected) }), false}
}

// Read implements protocol.Body.
func (b *SlowBody) Read(p []byte) (int, error) {
	if !b.arrived {
		timer := time.NewTimer(time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			b.arrived = true
		case <-b.disconnected:
			return 0, newDisconnectFault()
		}
	}
	return b.StringBody.Read(p)
}

// Buffered implements protocol.Body.
func (b *SlowBody) Buffered() int { return 0 }
