package http2

import (
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestAPanicOfCloseEndsAnUploadAtOnce has the host reset a request whose content is still
// on its way, and whose body panics when it is closed, before it has closed what it wraps.
func TestAPanicOfCloseEndsAnUploadAtOnce(t *testing.T) {
	h := &hooks{point: "request body Close"}
	r, calls, log := panicRig(t, h, host(t, func(p *peer) {
		for id := p.awaitHead(); id != 0; id = p.awaitHead() {
			if id == 1 {
				p.ok(p.fr.WriteRSTStream(id, http2.ErrCodeInternal))
				continue
			}
			p.headers(id, true, ":status", "200")
		}
	}))
	p := r.dial()
	p.request(1, false, ":method", "POST", ":path", "/panic")
	p.ok(p.fr.WriteData(1, false, []byte("a part")))
	if got := p.head(1)[":status"]; got != "502" {
		t.Errorf("the request is answered with %s, want 502", got)
	}
	p.request(3, true)
	if got := p.head(3)[":status"]; got != "200" {
		t.Errorf("the next request is answered with %s, want 200", got)
	}
	idle(t, calls)
	if !log.has(injected) {
		t.Error("the panic was not logged")
	}
}

// idle waits until no call is on the host's connection.
func idle(t *testing.T, calls interface{ Load() int64 }) {
	t.Helper()
	until := time.Now().Add(soon)
	for calls.Load() != 0 && time.Now().Before(until) {
		<-time.After(time.Millisecond)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls are on the host's connection", n)
	}
}
