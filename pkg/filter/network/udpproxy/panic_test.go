package udpproxy

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// fuse panics once, at the point for which it is armed.
type fuse struct {
	at   atomic.Pointer[string]
	hits atomic.Int64
}

func (f *fuse) reach(point string) {
	if at := f.at.Load(); at != nil && *at == point && f.at.CompareAndSwap(at, nil) {
		f.hits.Add(1)
		panic("a defect in " + point)
	}
}

// TestAPanicCostsADatagramAtMost verifies that a panic of the host leaser or of a lease is
// contained: other sessions continue, the affected session continues with its next datagram, and no
// host keeps a session that has ended.
func TestAPanicCostsADatagramAtMost(t *testing.T) {
	for _, point := range []string{"Assign", "Usable", "Heard", "End"} {
		t.Run(point, func(t *testing.T) {
			r := start(t, config.UDPProxy{IdleTimeout: time.Second}, "a")
			other, c := r.caller(), r.caller()
			r.ask(other, "before")
			if point != "Assign" {
				r.ask(c, "before")
			}
			r.hosts.fuse.at.Store(&point)
			if point != "End" {
				r.say(c, "one")
			}
			await(t, "the panic", func() bool { return r.hosts.fuse.hits.Load() == 1 })
			if got := r.ask(other, "two"); got != "a two 3" {
				t.Errorf("the other session got %q", got)
			}
			if got := r.ask(c, "two"); got != "a two 3" && got != "a one 3" {
				t.Errorf("the session got %q", got)
			}
			await(t, "the end of all sessions", func() bool { return r.Sessions() == 0 && r.hosts.list[0].sessions.Load() == 0 })
		})
	}
}
