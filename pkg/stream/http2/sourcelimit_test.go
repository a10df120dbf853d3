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

// TestNewConnectionOfExceededSourceHasNoFreeResets opens connections from one address sequentially,
// each of which resets its first stream. It verifies that this reset ends the connection while the
// address exceeds its flood limit, and that clients of the address are still served if they got a
// response or reset nothing.
func TestNewConnectionOfExceededSourceHasNoFreeResets(t *testing.T) {
	for _, exceeded := range []bool{false, true} {
		t.Run(fmt.Sprintf("exceeded: %t", exceeded), func(t *testing.T) { // a separate test for each rig, because its cleanup counts buffers
			r := newRig(t, heldPathService(), nil)
			limiter := r.engine.floodLimiter("test")
			limiter.Take(&defaultLimits, netip.Addr{}, 0, time.Now())
			closed := 0
			for range 10 {
				if exceeded { // in each round, because a charge at the current time caps the debt
					limiter.Take(&defaultLimits, netip.MustParseAddr("127.0.0.1"), defaultLimits.Source.Burst, time.Now().Add(time.Hour))
				}
				p := r.dial()
				p.inOneWrite(func() {
					p.request(1, true, ":path", "/held")
					p.must(p.fr.WriteRSTStream(1, http2.ErrCodeCancel))
					p.must(p.fr.WritePing(false, [8]byte{7}))
				})
				if p.goAwayBeforePingAck() {
					closed++
				}
			}
			// A reset is charged only if it is read within 50 ms of its request, which a loaded
			// machine may miss.
			if !exceeded && closed > 0 || exceeded && closed < 5 {
				t.Errorf("the first reset closed %d of 10 connections; want 0 below the limit, at least 5 above it", closed)
			}
			p := r.dial()
			p.request(1, true)
			if got := p.awaitFields(1)[":status"]; got != "200" {
				t.Errorf("a new connection: status %s, want 200", got)
			}
			p.request(3, true, ":path", "/held")
			p.must(p.fr.WriteRSTStream(3, http2.ErrCodeCancel))
			p.request(5, true)
			if got := p.awaitFields(5)[":status"]; got != "200" {
				t.Errorf("after a reset by a client that got a response: status %s, want 200", got)
			}
		})
	}
}

// heldPathService returns a service that responds to every request except those for /held, which
// end when their client resets them.
func heldPathService() protocol.Service {
	return serviceFunc(func(x *protocol.Exchange) error {
		if x.Request.Path == "/held" { // a complete response would refund a reset
			disconnected := make(chan struct{})
			defer x.Downstream.OnDisconnect(func() { close(disconnected) })()
			<-disconnected
			return protocol.Faultf(protocol.ReasonDownstreamDisconnect, "the client closed its connection")
		}
		x.LocalReply(200, "text/plain", "ok")
		return nil
	})
}

// inOneWrite sends the frames that write passes to p.fr in one write.
func (p *peer) inOneWrite(write func()) {
	p.t.Helper()
	var burst bytes.Buffer
	framer := p.fr
	p.fr = http2.NewFramer(&burst, nil)
	write()
	p.fr = framer
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
