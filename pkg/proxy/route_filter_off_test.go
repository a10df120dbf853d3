package proxy

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestRouteDisablesFilter(t *testing.T) {
	r := newRig(t)
	s := parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
		"stream_filters": [{"type": "rbac", "config": {"rules": {"policies": {}}}}],
		"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [
			{"match": {"path": "/open"}, "direct_response": {"status": 200, "body": "open"}},
			{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": "shut"}}]}]}]}]}`)
	s.Routes[0].VirtualHosts[0].Routes[0].Filters = map[string]any{"rbac": config.FilterDisabled{}}
	r.apply(s)
	for path, want := range map[string]int{"/open": 200, "/": 403} {
		c := dialClient(t, r.address("front"))
		if got := c.roundTrip(get(path)); got.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, got.StatusCode, want)
		}
	}
}
