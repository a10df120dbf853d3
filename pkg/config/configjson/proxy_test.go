package configjson

import (
	"fmt"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestResetLimits verifies that each key sets its token bucket, and that the other token buckets
// keep their defaults.
func TestResetLimits(t *testing.T) {
	defaults := config.DefaultHTTP2Options()
	for key, bucketOf := range map[string]func(o *config.HTTP2Options) *config.TokenBucket{
		"http2_reset_budget":          func(o *config.HTTP2Options) *config.TokenBucket { return &o.ConnectionResets },
		"http2_source_reset_budget":   func(o *config.HTTP2Options) *config.TokenBucket { return &o.SourceResets },
		"http2_listener_reset_budget": func(o *config.HTTP2Options) *config.TokenBucket { return &o.ListenerResets },
	} {
		text := fmt.Sprintf(`{"servers": [{"listeners": [{"address": "127.0.0.1:1", "filter_chains": [{"filters": [{"type": "proxy",
			"config": {"downstream_protocol": "Http2", "router_config_name": "r", "extend_config": {"%s": {"burst": 400, "per_second": 7}}}}]}]}],
			"routers": [{"router_config_name": "r", "virtual_hosts": [{"domains": ["*"], "routers": []}]}]}]}`, key)
		s, diags := Parse("budgets.json", []byte(text), exampleCapabilities(), Options{})
		if s == nil {
			t.Fatal(diags)
		}
		want := defaults
		*bucketOf(&want) = config.TokenBucket{Burst: 400, PerSecond: 7}
		if got := s.Listeners[0].FilterChains[0].Proxy.HTTP2; got != want {
			t.Errorf("%s = %+v, want %+v", key, got, want)
		}
	}
}
