package configjson

import "testing"

func TestNullRouteFilterSettingsAreIgnored(t *testing.T) {
	for settings, want := range map[string]int{"null": 0, "{}": 1} {
		s, diags := Parse("config.json", []byte(`{"servers": [{
			"listeners": [{"name": "in", "address": "127.0.0.1:1", "stream_filters": [{"type": "fault", "config": {"status": 500}}],
				"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "t"}}]}]}],
			"routers": [{"router_config_name": "t", "virtual_hosts": [{"domains": ["*"], "routers": [
				{"direct_response": {}, "per_filter_config": {"fault": `+settings+`}}]}]}]
		}]}`), testCapabilities(), Options{})
		if s == nil || len(diags) > 0 {
			t.Fatal(diags)
		}
		if got := s.Routes[0].VirtualHosts[0].Routes[0].Filters; len(got) != want {
			t.Errorf("%s: filter settings of the route %v, want %d", settings, got, want)
		}
	}
}
