package http2

import (
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
)

// TestShutdownNoticeBeforeStreamIDsRunOut verifies that a client gets the shutdown notice before it
// has used up the stream identifiers, so that none of its requests fails.
func TestShutdownNoticeBeforeStreamIDsRunOut(t *testing.T) {
	h := newHeldService()
	r := newRig(t, h, nil)
	p := r.dial()
	p.request(1, true)
	<-h.started
	p.request(shutdownNoticeStreamID-2, true) // the last one without a notice
	<-h.started
	p.request(shutdownNoticeStreamID, true)
	<-h.started
	first, ok := p.next().(*http2.GoAwayFrame)
	if !ok || first.LastStreamID != syntax.MaxStreamID || first.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want a GOAWAY with the maximum stream identifier", first)
	}
	ping, ok := p.next().(*http2.PingFrame)
	if !ok {
		t.Fatal("no PING after the first GOAWAY")
	}
	p.request(shutdownNoticeStreamID+2, true) // sent before the client has seen the notice
	<-h.started
	p.must(p.fr.WritePing(true, ping.Data))
	second, ok := p.next().(*http2.GoAwayFrame)
	if !ok || second.LastStreamID != shutdownNoticeStreamID+2 || second.ErrCode != http2.ErrCodeNo {
		t.Fatalf("got %v, want a GOAWAY with last stream %d", second, shutdownNoticeStreamID+2)
	}
	close(h.release)
	statuses := make(map[uint32]string)
	for len(statuses) < 4 {
		switch f := p.next().(type) {
		case nil:
			t.Fatalf("the connection ended after the responses %v", statuses)
		case *http2.MetaHeadersFrame:
			statuses[f.StreamID] = f.PseudoValue("status")
		}
	}
	for _, id := range []uint32{1, shutdownNoticeStreamID - 2, shutdownNoticeStreamID, shutdownNoticeStreamID + 2} {
		if statuses[id] != "200" {
			t.Errorf("stream %d: status %q, want 200", id, statuses[id])
		}
	}
}

// TestUpstreamStreamIDExhaustion verifies that the exchange with the last stream identifier gets
// its response, and that the next one fails with ConnectFailure.
func TestUpstreamStreamIDExhaustion(t *testing.T) {
	r := newRig(t, newHeldService(), nil)
	r.engine.FirstStream = syntax.MaxStreamID - 2
	u := r.dialUpstream(startOrigin(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }), nil)
	for i := range 2 {
		if !u.Usable(0) {
			t.Fatalf("Usable = false after %d of 2 exchanges, want true", i)
		}
		if status, body, err := sendRequest(u, nil); status != 200 || body != "/" || err != nil {
			t.Fatalf("exchange %d: %d %q, %v; want 200 \"/\"", i, status, body, err)
		}
	}
	if u.Usable(0) {
		t.Error("Usable = true without stream identifiers, want false")
	}
	if _, _, err := sendRequest(u, nil); protocol.ReasonOf(err) != protocol.ConnectFailure {
		t.Errorf("exchange without a stream identifier: %v, want ConnectFailure", err)
	}
}
