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

// TestNewConnectionOfExceededSourceHasNoFreeResets opens connections of one address sequentially,
// each of which resets its first stream. It verifies that this ends the connection while the
// address is over its budget. Clients of the address are still served if they got a response or
// reset nothing.
func TestNewConnectionOfExceededSourceHasNoFreeResets(t *testing.T) {
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprintf("over: %t", over), func(t *testing.T) { // the rig counts buffers
			r := newRig(t, heldPathService(), nil)
			b := r.engine.floodLimiter("test")
			b.Take(&defaultLimits, netip.Addr{}, 0, time.Now())
			ended := 0
			for range 10 {
				if over { // in each round, because a charge at the current time caps the debt
					b.Take(&defaultLimits, netip.MustParseAddr("127.0.0.1"), defaultLimits.Source.Burst, time.Now().Add(time.Hour))
				}
				p := r.dial()
				p.inOneWrite(func() {
					p.request(1, true, ":path", "/held")
					p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
					p.must(p.fr.WritePing(false, [8]byte{7}))
				})
				if p.goAwayBeforePingAck() {
					ended++
				}
			}
			// A reset is charged only if it is read within 50 ms of its request, which a loaded
			// machine may miss.
			if !over && ended > 0 || over && ended < 5 {
				t.Errorf("the first reset closed %d of 10 connections", ended)
			}
			p := r.dial()
			p.request(1, true)
			if got := p.awaitFields(1)[":status"]; got != "200" {
				t.Errorf("a new connection: status %s", got)
			}
			p.request(3, true, ":path", "/held")
			p.must(p.fr.WriteRSTStream(3, http2.ErrCodeCancel))
			p.request(5, true)
			if got := p.awaitFields(5)[":status"]; got != "200" {
				t.Errorf("after one reset, a client that got a response: status %s", got)
			}
		})
	}
}

// heldPathService returns a service that responds to every request except those for /held, which
// end when their client resets them.
func heldPathService() protocol.Service {
	return serviceFunc(func(x *protocol.Exchange) error {
		if x.Request.Path == "/held" { // a complete response would refund a reset
			gone := make(chan struct{})
			defer x.Downstream.OnDisconnect(func() { close(gone) })()
			<-gone
			return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "client closed its connection")
		}
		x.LocalReply(200, "text/plain", "fine")
		return nil
	})
}

// inOneWrite sends the frames that write passes to p.fr in one write.
func (p *peer) inOneWrite(write func()) {
	p.t.Helper()
	var burst bytes.Buffer
	direct := p.fr
	p.fr = http2.NewFramer(&burst, nil)
	write()
	p.fr = direct
	_, err := p.conn.Write(burst.Bytes())
	p.must(err)
}

// goAwayBeforePingAck reports whether GOAWAY with ENHANCE_YOUR_CALM arrives before the
// acknowledgement of a PING.
func (p *peer) goAwayBeforePingAck() bool {
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
