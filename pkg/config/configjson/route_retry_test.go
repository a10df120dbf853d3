package configjson

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestRetryListsImplyRetryOn(t *testing.T) {
	for policy, want := range map[string]config.RetryOn{
		`{"status_codes": [503]}`:                                          config.RetryStatusCodes,
		`{"retriable_status_codes": [503]}`:                                config.RetryStatusCodes,
		`{"rpc_status_codes": [70], "retriable_headers": [{"name": "x"}]}`: config.RetryStatusCodes | config.RetryHeaders,
		`{"num_retries": 3}`:                                               0,
		`{"retry_on": false, "status_codes": [503]}`:                       0,
		`{"retry_on": true, "status_codes": [503]}`:                        config.RetryOnDefault,
		`{"retry_on": "true"}`:                                             config.RetryOnDefault,
		`{"retry_on": "reset", "status_codes": [503]}`:                     config.RetryReset,
	} {
		s, _ := Parse("config.json", []byte(`{"servers": [{
			"listeners": [{"name": "in", "address": "127.0.0.1:1", "filter_chains": [{"filters": [{"type": "proxy",
				"config": {"downstream_protocol": "Http1", "router_config_name": "t"}}]}]}],
			"routers": [{"router_config_name": "t", "virtual_hosts": [{"domains": ["*"], "routers": [
				{"match": {"prefix": "/"}, "route": {"cluster_name": "app", "retry_policy": `+policy+`}}]}]}]}],
			"cluster_manager": {"clusters": [{"name": "app", "hosts": [{"address": "127.0.0.1:2"}]}]}}`), testCapabilities(), Options{})
		if s == nil {
			t.Fatalf("%s is rejected, want it accepted", policy)
		}
		if got := s.Routes[0].VirtualHosts[0].Routes[0].Forward.Retry.On; got != want {
			t.Errorf("%s: On = %q, want %q", policy, got, want)
		}
	}
}
