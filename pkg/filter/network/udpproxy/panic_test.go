package udpproxy

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// panicTrigger panics once, at the point for which it is armed.
type panicTrigger struct {
	armed  atomic.Pointer[string]
	panics atomic.Int64
}

func (p *panicTrigger) panicIfArmed(point string) {
	if armed := p.armed.Load(); armed != nil && *armed == point && p.armed.CompareAndSwap(armed, nil) {
		p.panics.Add(1)
		panic("a defect in " + point)
	}
}

// TestPanicsOfHostLeaserAreContained verifies that a panic of the host leaser or of a lease is
// contained: other sessions continue, the affected session continues with its next datagram, and no
// host keeps a session that has ended.
func TestPanicsOfHostLeaserAreContained(t *testing.T) {
	for _, point := range []string{"Lease", "Usable", "Report", "Release"} {
		t.Run(point, func(t *testing.T) {
			r := startProxy(t, config.UDPProxy{IdleTimeout: time.Second}, "a")
			other, c := r.newClient(), r.newClient()
			r.exchangeText(other, "before")
			if point != "Lease" {
				r.exchangeText(c, "before")
			}
			r.hosts.trigger.armed.Store(&point)
			if point != "Release" {
				r.sendText(c, "one")
			}
			await(t, "the panic", func() bool { return r.hosts.trigger.panics.Load() == 1 })
			if got := r.exchangeText(other, "two"); got != "a two 3" {
				t.Errorf("the other session got %q, want %q", got, "a two 3")
			}
			if got := r.exchangeText(c, "two"); got != "a two 3" && got != "a one 3" {
				t.Errorf("the session got %q, want %q or %q", got, "a two 3", "a one 3")
			}
			await(t, "the end of all sessions", func() bool { return r.Sessions() == 0 && r.hosts.hosts[0].sessions.Load() == 0 })
		})
	}
}
