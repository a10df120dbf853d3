package http2

import (
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// TestACallerWhoseStreamsRunOutIsToldToGo verifies that a client gets the shutdown notice before it
// has used up the stream identifiers, so that none of its requests fails.
func TestACallerWhoseStreamsRunOutIsToldToGo(t *testing.T) {
	h := newHeld()
	r := newRig(t, h, nil)
	p := r.dial()
	p.request(1, true)
	<-h.begun
	p.request(lastStreams-2, true) // the last one without a notice
	<-h.begun
	p.request(lastStreams, true)
	<-h.begun
	first, ok := p.next().(*http2.GoAwayFrame)
	if !ok || first.LastStreamID != syntax.MaxStreamID || first.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want a GOAWAY that takes every stream", first)
	}
	ping, ok := p.next().(*http2.PingFrame)
	if !ok {
		t.Fatal("no PING behind the first GOAWAY")
	}
	p.request(lastStreams+2, true) // sent before the client has seen the notice
	<-h.begun
	p.ok(p.fr.WritePing(true, ping.Data))
	second, ok := p.next().(*http2.GoAwayFrame)
	if !ok || second.LastStreamID != lastStreams+2 || second.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want a GOAWAY with last stream %d", second, lastStreams+2)
	}
	close(h.let)
	answered := make(map[uint32]string)
	for len(answered) < 4 {
		switch f := p.next().(type) {
		case nil:
			t.Fatalf("the connection ended after the answers %v", answered)
		case *http2.MetaHeadersFrame:
			answered[f.StreamID] = f.PseudoValue("status")
		}
	}
	for _, id := range []uint32{1, lastStreams - 2, lastStreams, lastStreams + 2} {
		if answered[id] != "200" {
			t.Errorf("stream %d: status %q", id, answered[id])
		}
	}
}

// TestAConnectionWithoutStreamsLeftTakesNoMore verifies that the exchange with the last stream
// identifier gets its response, and the next one fails as not sent.
func TestAConnectionWithoutStreamsLeftTakesNoMore(t *testing.T) {
	r := newRig(t, newHeld(), nil)
	r.engine.FirstStream = syntax.MaxStreamID - 2
	u := r.client(origin(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }), nil)
	for i := range 2 {
		if !u.Usable(0) {
			t.Fatalf("after %d of 2 exchanges it is not usable", i)
		}
		if status, content, err := do(u, nil); status != 200 || content != "/" || err != nil {
			t.Fatalf("exchange %d: %d %q, %v", i, status, content, err)
		}
	}
	if u.Usable(0) {
		t.Error("it is usable without streams")
	}
	if _, _, err := do(u, nil); protocol.ReasonOf(err) != protocol.ConnectFailure {
		t.Errorf("the exchange after the last: %v, want a failure to connect", err)
	}
}
