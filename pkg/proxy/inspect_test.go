package proxy

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestInspect verifies how the inspection options of a listener select a filter chain. Without
// inspection, or after a timeout with ContinueOnTimeout, a connection is plaintext of an unknown
// protocol.
func TestInspect(t *testing.T) {
	allPorts := []config.PortRange{{Last: 65535}}
	chains := []string{filterChain("a", `"match": {"server_names": ["a.example"]},`, "one"), filterChain("b", matchHTTP, "two"), filterChain("c", matchAll, "three")}
	const httpRequest, tlsRecord = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "\x16\x03"
	for name, tt := range map[string]struct {
		inspection config.Inspection
		timeout    time.Duration
		input      string
		want       string // contained in the response; "": no response
	}{
		"as the chains require":               {config.Inspection{}, time.Minute, httpRequest, "two"},
		"HTTP inspection off":                 {config.Inspection{SkipHTTPPorts: allPorts}, time.Minute, httpRequest, "three"},
		"HTTP inspection off on another port": {config.Inspection{SkipHTTPPorts: []config.PortRange{{First: 1, Last: 1}}}, time.Minute, httpRequest, "two"},
		"TLS inspection off, TLS client":      {config.Inspection{SkipTLSPorts: allPorts}, time.Minute, tlsRecord, "400"},
		"TLS inspection off, HTTP client":     {config.Inspection{SkipTLSPorts: allPorts}, time.Minute, httpRequest, "two"},
		"all inspection off":                  {config.Inspection{SkipTLSPorts: allPorts, SkipHTTPPorts: allPorts}, time.Minute, httpRequest, "three"},
		"timeout":                             {config.Inspection{}, 20 * time.Millisecond, tlsRecord, ""},
		"timeout, TLS client continues":       {config.Inspection{ContinueOnTimeout: true}, 20 * time.Millisecond, tlsRecord, "400"},
		"timeout, HTTP client continues":      {config.Inspection{ContinueOnTimeout: true}, 20 * time.Millisecond, "GET", "408"},
		"in time, continue on timeout":        {config.Inspection{ContinueOnTimeout: true}, time.Minute, httpRequest, "two"},
		"no timeout":                          {config.Inspection{NoTimeout: true}, time.Nanosecond, httpRequest, "two"},
		"no timeout, continue on timeout":     {config.Inspection{NoTimeout: true, ContinueOnTimeout: true}, time.Nanosecond, httpRequest, "two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := chainSnapshot(t, "127.0.0.1:0", "", chains...)
			s.Listeners[0].InspectTimeout, s.Listeners[0].Inspection = tt.timeout, tt.inspection
			for _, c := range s.Listeners[0].FilterChains {
				c.Proxy.HTTP1.HeadTimeout = 200 * time.Millisecond
			}
			r.apply(s)
			c := dialClient(t, r.address("front"))
			c.send(tt.input)
			got, err := io.ReadAll(c.r)
			if err != nil && tt.want != "" {
				t.Fatal(err)
			}
			if tt.want == "" && len(got) > 0 || !strings.Contains(string(got), tt.want) {
				t.Errorf("response %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSilentConnectionContinuesAfterTimeout verifies that a silent connection gets a chain after
// the inspection timeout, so that protocols in which the server speaks first work.
func TestSilentConnectionContinuesAfterTimeout(t *testing.T) {
	r := newRig(t)
	s := chainSnapshot(t, "127.0.0.1:0", "", filterChain("b", matchHTTP, "two"), filterChain("c", matchAll, "three"))
	s.Listeners[0].InspectTimeout, s.Listeners[0].Inspection.ContinueOnTimeout = time.Nanosecond, true
	r.apply(s)
	c := dialClient(t, r.address("front"))
	if got := c.roundTrip(get("/")); got.body != "three" {
		t.Errorf("response %q, want that of the chain without criteria", got.body)
	}
}

// TestSilentConnectionGetsIdleTimeout verifies that a silent connection closes at its idle timeout
// or when the server drains.
func TestSilentConnectionGetsIdleTimeout(t *testing.T) {
	chains := []string{filterChain("b", matchHTTP, "two"), filterChain("c", matchAll, "three")}
	t.Run("idle timeout", func(t *testing.T) {
		r := newRig(t)
		s := chainSnapshot(t, "127.0.0.1:0", `"connection_idle_timeout": "50ms", `, chains...)
		s.Listeners[0].InspectTimeout, s.Listeners[0].Inspection.ContinueOnTimeout = time.Nanosecond, true
		r.apply(s)
		if c := dialClient(t, r.address("front")); !c.ended() {
			t.Error("the connection was not closed")
		}
		r.await(1, "weft_listener_connections_closed_total", "front", "idle_timeout")
	})
	t.Run("drain", func(t *testing.T) {
		r := newRig(t)
		s := chainSnapshot(t, "127.0.0.1:0", "", chains...)
		s.Listeners[0].InspectTimeout, s.Listeners[0].Inspection.ContinueOnTimeout = time.Minute, true
		r.apply(s)
		c := dialClient(t, r.address("front"))
		r.await(1, "weft_listener_connections_active", "front")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r.server.Drain(ctx)
		if ctx.Err() != nil || !c.ended() {
			t.Error("a silent connection delays Drain")
		}
	})
}
