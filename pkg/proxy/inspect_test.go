package proxy

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestInspect: what is not looked at, or not for longer, is plaintext of
// no protocol.
func TestInspect(t *testing.T) {
	every := []config.PortRange{{Last: 65535}}
	chains := []string{filterChain("a", `"match": {"server_names": ["a.example"]},`, "one"), filterChain("b", toHTTP, "two"), filterChain("c", toAll, "three")}
	const asks, hello = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "\x16\x03"
	for name, tt := range map[string]struct {
		how     config.Inspection
		timeout time.Duration
		sent    string
		want    string // in the answer; "": none
	}{
		"as chains ask":                       {config.Inspection{}, time.Minute, asks, "two"},
		"not for HTTP":                        {config.Inspection{SkipHTTPPorts: every}, time.Minute, asks, "three"},
		"not for HTTP of other ports":         {config.Inspection{SkipHTTPPorts: []config.PortRange{{First: 1, Last: 1}}}, time.Minute, asks, "two"},
		"not for TLS":                         {config.Inspection{SkipTLSPorts: every}, time.Minute, hello, "400"},
		"not for TLS, for HTTP":               {config.Inspection{SkipTLSPorts: every}, time.Minute, asks, "two"},
		"for nothing":                         {config.Inspection{SkipTLSPorts: every, SkipHTTPPorts: every}, time.Minute, asks, "three"},
		"too slow":                            {config.Inspection{}, 20 * time.Millisecond, hello, ""},
		"too slow, and goes on":               {config.Inspection{ContinueOnTimeout: true}, 20 * time.Millisecond, hello, "400"},
		"too slow for HTTP, and goes on":      {config.Inspection{ContinueOnTimeout: true}, 20 * time.Millisecond, "GET", "408"},
		"in time, where it could go on":       {config.Inspection{ContinueOnTimeout: true}, time.Minute, asks, "two"},
		"with all the time that there is":     {config.Inspection{NoTimeout: true}, time.Nanosecond, asks, "two"},
		"for ever, which leaves nothing over": {config.Inspection{NoTimeout: true, ContinueOnTimeout: true}, time.Nanosecond, asks, "two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := chainSnapshot(t, "127.0.0.1:0", "", chains...)
			s.Listeners[0].InspectTimeout, s.Listeners[0].Inspection = tt.timeout, tt.how
			for _, c := range s.Listeners[0].FilterChains {
				c.Proxy.HTTP1.HeadTimeout = 200 * time.Millisecond
			}
			r.apply(s)
			c := dialClient(t, r.address("front"))
			c.send(tt.sent)
			got, err := io.ReadAll(c.r)
			if err != nil && tt.want != "" {
				t.Fatal(err)
			}
			if tt.want == "" && len(got) > 0 || !strings.Contains(string(got), tt.want) {
				t.Errorf("answered with %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSilentConnectionContinuesAfterTimeout: a server that speaks first is heard.
func TestSilentConnectionContinuesAfterTimeout(t *testing.T) {
	r := newRig(t)
	s := chainSnapshot(t, "127.0.0.1:0", "", filterChain("b", toHTTP, "two"), filterChain("c", toAll, "three"))
	s.Listeners[0].InspectTimeout, s.Listeners[0].Inspection.ContinueOnTimeout = time.Nanosecond, true
	r.apply(s)
	c := dialClient(t, r.address("front"))
	if got := c.roundTrip(get("/")); got.body != "three" {
		t.Errorf("answered with %q, want that of the chain for what has shown nothing", got.body)
	}
}

// TestSilentConnectionGetsIdleTimeout: and no longer, or until it is to
// end.
func TestSilentConnectionGetsIdleTimeout(t *testing.T) {
	chains := []string{filterChain("b", toHTTP, "two"), filterChain("c", toAll, "three")}
	t.Run("the idle time", func(t *testing.T) {
		r := newRig(t)
		s := chainSnapshot(t, "127.0.0.1:0", `"connection_idle_timeout": "50ms", `, chains...)
		s.Listeners[0].InspectTimeout, s.Listeners[0].Inspection.ContinueOnTimeout = time.Nanosecond, true
		r.apply(s)
		if c := dialClient(t, r.address("front")); !c.ended() {
			t.Error("the connection goes on")
		}
		r.await(1, "weft_listener_connections_closed_total", "front", "idle_timeout")
	})
	t.Run("the end of the process", func(t *testing.T) {
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
			t.Error("a connection that has said nothing holds up the end")
		}
	})
}
