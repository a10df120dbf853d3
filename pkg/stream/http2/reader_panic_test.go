package http2

import (
	"bufio"
	"testing"

	"golang.org/x/net/http2"
)

// brokenOwner is the owner of a stream. It panics the first time that its stream fails.
type brokenOwner struct {
	owner
	panicked bool
}

func (o *brokenOwner) fail(fault error, fx *effects) {
	if !o.panicked {
		o.panicked = true
		panic(injected)
	}
	o.owner.fail(fault, fx)
}

// TestPanicInUpstreamReaderLosesNoResponse makes the reader of a host's connection panic after it
// has processed the head of another response in the same read. It verifies that both exchanges end.
func TestPanicInUpstreamReaderLosesNoResponse(t *testing.T) {
	requestsArrived, ownerReplaced := make(chan struct{}), make(chan struct{})
	address := startHost(t, func(p *peer) {
		p.awaitHead()
		p.awaitHead()
		close(requestsArrived)
		<-ownerReplaced
		w := bufio.NewWriter(p.conn)
		p.fr = http2.NewFramer(w, p.in)
		p.headers(1, true, ":status", "204")
		p.must(p.fr.WriteGoAway(1, http2.ErrCodeNo, nil))
		p.must(w.Flush())
		p.next()
	})
	h := new(panicService)
	r, calls, _ := panicRig(t, h, address)
	p := r.dial()
	p.request(1, true)
	p.request(3, true)
	<-requestsArrived
	u := h.conn.Load()
	u.mu.Lock()
	ms := muxStreamOf(u.state.Stream(3))
	ms.owner = &brokenOwner{owner: ms.owner}
	u.mu.Unlock()
	close(ownerReplaced)
	if got := p.awaitFields(1)[":status"]; got != "204" {
		t.Errorf("the request whose response has arrived: status %s, want 204", got)
	}
	if got := p.awaitFields(3)[":status"]; got != "500" {
		t.Errorf("the other request: status %s, want 500", got)
	}
	awaitNoCalls(t, calls)
}
