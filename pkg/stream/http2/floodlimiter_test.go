package http2

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/pkg/config"
	syntax "github.com/weft-proxy/weft/pkg/protocol/http2"
	"github.com/weft-proxy/weft/pkg/stream"
)

// defaultLimits are the default limits.
var defaultLimits = stream.FloodRateLimitsOf(new(config.HTTP2Options))

// TestSharedFloodLimitClosesConnections exhausts the flood limit of a source address, or of a
// listener. It verifies that a connection that resets streams then ends with GOAWAY, and is counted
// and logged, while a connection with few resets continues.
func TestSharedFloodLimitClosesConnections(t *testing.T) {
	for flood, exhaustLimit := range map[syntax.Flood]func(limiter *stream.FloodLimiter){
		syntax.FloodSource: func(limiter *stream.FloodLimiter) {
			// The time is in the future, so that no tokens are refunded during the test.
			limiter.Take(&defaultLimits, netip.MustParseAddr("127.0.0.1"), defaultLimits.Source.Burst, time.Now().Add(time.Hour))
		},
		syntax.FloodListener: func(limiter *stream.FloodLimiter) {
			limiter.Take(&defaultLimits, netip.Addr{}, defaultLimits.Listener.Burst, time.Now().Add(time.Hour))
		},
	} {
		t.Run(flood.String(), func(t *testing.T) {
			log := new(logBuffer)
			r := newRig(t, heldPathService(), func(o *stream.ServerOptions) {
				o.Log = slog.New(slog.NewTextHandler(log, nil))
			})
			limiter := r.engine.floodLimiter("test")
			limiter.Take(&defaultLimits, netip.Addr{}, 0, time.Now())
			exhaustLimit(limiter)

			wellBehaved := r.dial()
			id := uint32(3)
			wellBehaved.request(1, true)
			if got := wellBehaved.awaitFields(1)[":status"]; got != "200" {
				t.Errorf("a new connection of the address: status %s, want 200", got)
			}
			for range minCharges - 1 {
				wellBehaved.request(id, true, ":path", "/held")
				wellBehaved.must(wellBehaved.fr.WriteRSTStream(id, http2.ErrCodeCancel))
				id += 2
			}
			p := r.dial()
			for i := range uint32(minCharges) {
				p.request(2*i+1, true, ":path", "/held")
				p.must(p.fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
			}
			for {
				f := p.next()
				if f == nil {
					t.Fatal("the connection ended without GOAWAY")
				}
				if goAway, ok := f.(*http2.GoAwayFrame); ok {
					if goAway.ErrCode != http2.ErrCodeEnhanceYourCalm {
						t.Errorf("GOAWAY with %v, want %v", goAway.ErrCode, http2.ErrCodeEnhanceYourCalm)
					}
					break
				}
			}
			_ = p.conn.Close()
			select {
			case got := <-r.floods:
				if got != flood {
					t.Errorf("reported as %v, want %v", got, flood)
				}
			case <-time.After(eventTimeout):
				t.Error("the flood was not reported")
			}
			if !log.contains("because of a flood") || !log.contains("flood="+flood.String()) {
				t.Error("the close was not logged")
			}
			wellBehaved.request(id, true)
			if got := wellBehaved.awaitFields(id)[":status"]; got != "200" {
				t.Errorf("the connection with few resets: status %s, want 200", got)
			}
		})
	}
}

// TestFloodLimiterIsSharedAcrossReloads verifies that two servers of one listener, as before and
// after a reload, share a flood limiter, and that another listener has a different one.
func TestFloodLimiterIsSharedAcrossReloads(t *testing.T) {
	r := newRig(t, new(countingService), nil)
	before, after := newServer(r.engine, stream.ServerOptions{Listener: "a"}), newServer(r.engine, stream.ServerOptions{Listener: "a"})
	other := newServer(r.engine, stream.ServerOptions{Listener: "b"})
	if before.floodLimiter != after.floodLimiter {
		t.Error("two servers of one listener have different flood limiters")
	}
	if before.floodLimiter == other.floodLimiter {
		t.Error("two listeners share a flood limiter")
	}
}

// TestFloodLimitsAreConfigurable verifies that the configured limits for resets of a connection, a
// source address and a listener end a connection that exceeds them.
func TestFloodLimitsAreConfigurable(t *testing.T) {
	bucket := config.TokenBucket{Burst: 3, PerSecond: 1}
	for flood, configure := range map[syntax.Flood]func(o *config.HTTP2Options){
		syntax.FloodRapidReset: func(o *config.HTTP2Options) { o.ConnectionResets = bucket },
		syntax.FloodSource:     func(o *config.HTTP2Options) { o.SourceResets = bucket },
		syntax.FloodListener:   func(o *config.HTTP2Options) { o.ListenerResets = bucket },
	} {
		t.Run(flood.String(), func(t *testing.T) {
			r := newRig(t, heldPathService(), func(o *stream.ServerOptions) { configure(&o.HTTP2) })
			p := r.dial()
			p.inOneWrite(func() {
				for i := range uint32(minCharges + 1) {
					p.request(2*i+1, true, ":path", "/held")
					p.must(p.fr.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
				}
				p.must(p.fr.WritePing(false, [8]byte{7}))
			})
			if !p.goAwayBeforePingAck() {
				t.Error("the connection was not closed")
			}
			select {
			case got := <-r.floods:
				if got != flood {
					t.Errorf("reported as %v, want %v", got, flood)
				}
			case <-time.After(eventTimeout):
				t.Error("the flood was not reported")
			}
		})
	}
}
