//go:build !noxds

package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/proxy"
)

// drainConfig is a file with an ingress and an egress listener, for a short graceful_timeout.
const drainConfig = `{
  "servers": [{"default_log_path": "stderr", "default_log_level": "OFF", "graceful_timeout": "20ms",
    "listeners": [
      {"name": "in", "type": "ingress", "address": "127.0.0.1:0",
        "filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]},
      {"name": "out", "type": "egress", "address": "127.0.0.2:0",
        "filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
    "routers": [{"router_config_name": "table", "virtual_hosts": [{"domains": ["*"], "routers": [
      {"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]}]}],
  "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}
}`

// TestDrainListeners verifies which listeners accept connections after /drain_listeners, and whether
// their connections close.
func TestDrainListeners(t *testing.T) {
	const accepts, closes, stopped = "accepts", "closes connections", "stopped"
	for _, c := range []struct{ query, in, out string }{
		{"", stopped, stopped},
		{"?inboundonly", stopped, accepts},
		{"?inboundonly&graceful", stopped, accepts},
		{"?graceful", stopped, stopped},
		{"?skip_exit", closes, closes},
		{"?inboundonly&graceful&skip_exit", closes, accepts},
	} {
		t.Run(c.query, func(t *testing.T) {
			address := startWeft(t, drainConfig)
			a := adminClient{address: address}
			read := func() (states map[string]string, draining map[string]bool) {
				t.Helper()
				var listeners []proxy.ListenerStatus
				if err := a.get(t.Context(), "/listeners", nil, &listeners); err != nil {
					t.Fatal(err)
				}
				states, draining = map[string]string{}, map[string]bool{}
				for _, l := range listeners {
					draining[l.Name] = l.Draining
					client := http.Client{Transport: &http.Transport{}}
					r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Address+"/", http.NoBody)
					if err != nil {
						t.Fatal(err)
					}
					response, err := client.Do(r)
					switch {
					case err != nil:
						states[l.Name] = stopped
						continue
					case response.Close:
						states[l.Name] = closes
					default:
						states[l.Name] = accepts
					}
					_ = response.Body.Close()
					client.CloseIdleConnections()
				}
				return states, draining
			}
			states, _ := read()
			if diff := cmp.Diff(map[string]string{"in": accepts, "out": accepts}, states); diff != "" {
				t.Fatalf("at the start (-want +got):\n%s", diff)
			}
			if status, body := adminPage(t, address, "POST", "/drain_listeners"+c.query); status != 200 || body != "OK\n" {
				t.Fatalf("status %d, body %q, want 200 and OK", status, body)
			}
			want := map[string]string{"in": c.in, "out": c.out}
			var draining map[string]bool
			waitFor(t, fmt.Sprintf("waiting for %v, last %v", want, states), func() bool {
				states, draining = read()
				return cmp.Equal(want, states) && draining["in"] == (c.in == stopped) && draining["out"] == (c.out == stopped)
			})
			if status, _ := adminPage(t, address, "GET", "/ready"); status != 200 {
				t.Errorf("/ready responds with %d, want 200 as in Envoy", status)
			}
		})
	}
}
