package http2

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestANewConnectionOfAnAddressOverItsBudgetHasNoFreeResets has an address open one
// connection after the other, each of which resets its first stream. While the address is
// over its budget that ends the connection. Callers behind the same address that have had
// an answer, or reset nothing, are served.
func TestANewConnectionOfAnAddressOverItsBudgetHasNoFreeResets(t *testing.T) {
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprintf("over: %t", over), func(t *testing.T) { // with a rig of its own, which counts buffers
			r := newRig(t, holds(), nil)
			b := r.engine.budget("test")
			b.Charge(&usual, netip.Addr{}, 0, time.Now())
			ended := 0
			for range 10 {
				if over { // again, since each charge ends what is owed beyond the budget
					b.Charge(&usual, netip.MustParseAddr("127.0.0.1"), usual.Source.Burst, time.Now().Add(time.Hour))
				}
				p := r.dial()
				p.inOneWrite(func() {
					p.request(1, true, ":path", "/held")
					p.ok(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
					p.ok(p.fr.WritePing(false, [8]byte{7}))
				})
				if p.awayBeforePong() {
					ended++
				}
			}
			// A reset is charged only if it is read within 50 ms of its request, which a busy
			// machine may miss.
			if !over && ended > 0 || over && ended < 5 {
				t.Errorf("the first reset ended %d of 10 connections", ended)
			}
			p := r.dial()
			p.request(1, true)
			if got := p.head(1)[":status"]; got != "200" {
				t.Errorf("a new connection is answered with %s", got)
			}
			p.request(3, true, ":path", "/held")
			p.ok(p.fr.WriteRSTStream(3, http2.ErrCodeCancel))
			p.request(5, true)
			if got := p.head(5)[":status"]; got != "200" {
				t.Errorf("behind one reset, a caller that had an answer is answered with %s", got)
			}
		})
	}
}

// holds answers every request but those for /held, which end when their caller resets them.
func holds() protocol.Service {
	return serviceFunc(func(x *protocol.Exchange) error {
		if x.Request.Path == "/held" { // an answer would pay for a reset
			gone := make(chan struct{})
			defer x.Caller.OnDisconnect(func() { close(gone) })()
			<-gone
			return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the caller has gone")
		}
		x.LocalReply(200, "text/plain", "fine")
		return nil
	})
}

// inOneWrite sends the frames that write writes with p.fr in one piece.
func (p *peer) inOneWrite(write func()) {
	p.t.Helper()
	var burst bytes.Buffer
	direct := p.fr
	p.fr = http2.NewFramer(&burst, nil)
	write()
	p.fr = direct
	_, err := p.conn.Write(burst.Bytes())
	p.ok(err)
}

// awayBeforePong reports whether GOAWAY with ENHANCE_YOUR_CALM comes, and not the answer to
// a PING.
func (p *peer) awayBeforePong() bool {
	for {
		switch f := p.next().(type) {
		case nil:
			p.t.Fatal("the connection ended without GOAWAY")
		case *http2.GoAwayFrame:
			return f.ErrCode == http2.ErrCodeEnhanceYourCalm
		case *http2.PingFrame:
			if f.IsAck() {
				return false
			}
		}
	}
}
