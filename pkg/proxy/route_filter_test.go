package proxy

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter/stream/fault"
	"github.com/weft-proxy/weft/pkg/filter/stream/rbac"
)

func TestRouteEnablesFilter(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(f *config.Filter)
		want   map[string]int
	}{
		{"enabled", func(*config.Filter) {}, map[string]int{"/plain": 403, "/off": 200, "/on": 403, "/own": 200}},
		{"disabled", func(f *config.Filter) { f.Disabled = true }, map[string]int{"/plain": 200, "/off": 200, "/on": 403, "/own": 200}},
		{"settings missing", func(f *config.Filter) { f.Config = config.FilterConfigMissing{} }, map[string]int{"/plain": 500, "/off": 500, "/on": 500, "/own": 500, "/none": 500}},
		{
			"disabled, settings missing", func(f *config.Filter) { f.Config, f.Disabled = config.FilterConfigMissing{}, true },
			map[string]int{"/plain": 200, "/off": 200, "/on": 500, "/own": 500, "/none": 404},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			s := parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
				"stream_filters": [{"type": "rbac", "config": {"rules": {"policies": {}}}}],
				"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
				"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [
					{"match": {"path": "/plain"}, "direct_response": {"status": 200}},
					{"match": {"path": "/off"}, "direct_response": {"status": 200}},
					{"match": {"path": "/on"}, "direct_response": {"status": 200}},
					{"match": {"path": "/own"}, "direct_response": {"status": 200}, "per_filter_config": {"rbac":
						{"rules": {"policies": {"all": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}}}}]}]}]}]}`)
			routes := s.Routes[0].VirtualHosts[0].Routes
			routes[1].Filters = map[string]any{"rbac": config.FilterDisabled{}}
			routes[2].Filters = map[string]any{"rbac": config.FilterEnabled{}}
			test.change(&s.Listeners[0].FilterChains[0].Proxy.StreamFilters[0])
			r.apply(s)
			for path, want := range test.want {
				c := dialClient(t, r.address("front"))
				if got := c.roundTrip(get(path)); got.StatusCode != want {
					t.Errorf("%s: status %d, want %d", path, got.StatusCode, want)
				}
			}
		})
	}
}

// TestRouteSettingsByKey verifies that each of two filters of one type has its own settings in
// routes, and that settings in the type of another filter have no effect.
func TestRouteSettingsByKey(t *testing.T) {
	r := newRig(t)
	s := parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
		"stream_filters": [{"type": "fault", "config": {}}, {"type": "fault", "config": {}}],
		"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [
			{"match": {"path": "/none"}, "direct_response": {"status": 200}},
			{"match": {"path": "/first"}, "direct_response": {"status": 200}},
			{"match": {"path": "/second"}, "direct_response": {"status": 200}},
			{"match": {"path": "/both"}, "direct_response": {"status": 200}},
			{"match": {"path": "/type"}, "direct_response": {"status": 200}},
			{"match": {"path": "/other"}, "direct_response": {"status": 200}}]}]}]}]}`)
	abort := func(status int) *fault.Config { return &fault.Config{Abort: fault.Abort{Status: status, Percent: 100}} }
	for i, settings := range []map[string]any{
		nil,
		{"a": abort(401)},
		{"b": abort(402)},
		{"a": config.FilterDisabled{}, "b": abort(403)},
		{"a": &rbac.Config{}},
		{"fault": abort(404)},
	} {
		s.Routes[0].VirtualHosts[0].Routes[i].Filters = settings
	}
	filters := s.Listeners[0].FilterChains[0].Proxy.StreamFilters
	filters[0].RouteKey, filters[1].RouteKey = "a", "b"
	r.apply(s)
	for path, want := range map[string]int{"/none": 200, "/first": 401, "/second": 402, "/both": 403, "/type": 200, "/other": 200} {
		c := dialClient(t, r.address("front"))
		if got := c.roundTrip(get(path)); got.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, got.StatusCode, want)
		}
	}
}
