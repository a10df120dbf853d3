package proxy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestFiltersRunForUnmatchedRequests verifies that filters run with the listener's settings if no
// route matches, and that the response is 404 only if no filter rejects the request.
func TestFiltersRunForUnmatchedRequests(t *testing.T) {
	const jwt = `{"providers": {"p": {"local_jwks": {"inline_string":
		"{\"keys\": [{\"kty\": \"oct\", \"alg\": \"HS256\", \"k\": \"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE\"}]}"}}},
		"rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "p"}}]}`
	const limit = `{"token_bucket": {"max_tokens": 1, "fill_interval": "1h"}}`
	for _, test := range []struct {
		filter, settings string
		disabled         bool
		want             []int // status of each request, in order
	}{
		{"rbac", `{"rules": {"policies": {}}}`, false, []int{403}},
		{"rbac", `{"rules": {"policies": {}}}`, true, []int{404}},
		{"jwt_authn", jwt, false, []int{401}},
		{"fault", `{"abort": {"status": 418, "percentage": 100}}`, false, []int{418}},
		{"fault", `{"abort": {"status": 418, "percentage": 100}, "upstream_cluster": "c"}`, false, []int{404}},
		{"local_ratelimit", limit, false, []int{404, 429}},
		{"csrf", `{}`, false, []int{403}},
		{"ip_access", `{"default_action": "deny"}`, false, []int{403}},
		{"compressor", `{}`, false, []int{404}},
		{"adaptive_concurrency", `{"gradient_controller_config": {}}`, false, []int{404}},
		{"header_to_metadata", `{"request_rules": [{"header": "x", "on_header_missing": {"key": "k", "value": "v"}}]}`, false, []int{404}},
	} {
		t.Run(fmt.Sprintf("%s/off=%t", test.filter, test.disabled), func(t *testing.T) {
			r := newRig(t)
			s := parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
				"stream_filters": [{"type": "`+test.filter+`", "config": `+test.settings+`}],
				"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
				"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "one", "domains": ["a.test"], "routers": [
					{"match": {"path": "/known"}, "direct_response": {"status": 200}}]}]}]}]}`)
			s.Listeners[0].FilterChains[0].Proxy.StreamFilters[0].Disabled = test.disabled
			r.apply(s)
			for _, host := range []string{"a.test", "other.test"} {
				if len(test.want) > 1 && host != "a.test" {
					continue // the hosts share the filter's counters
				}
				var got []int
				for range test.want {
					got = append(got, dialClient(t, r.address("front")).roundTrip("POST /nope HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 0\r\n\r\n").StatusCode)
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("%s: statuses %v, want %v", host, got, test.want)
				}
			}
		})
	}
}

// TestReloadKeepsFiltersForUnmatchedRequests verifies that the filters still run for unmatched
// requests after a change of only the routes, which keeps the router.
func TestReloadKeepsFiltersForUnmatchedRequests(t *testing.T) {
	r := newRig(t)
	snapshot := func(path string) *config.Snapshot {
		return parse(t, `{"servers": [{"listeners": [{"name": "front", "address": "127.0.0.1:0",
			"stream_filters": [{"type": "rbac", "config": {"rules": {"policies": {}}}}],
			"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}],
			"routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [
				{"match": {"path": "`+path+`"}, "direct_response": {"status": 200}}]}]}]}]}`)
	}
	r.apply(snapshot("/a"))
	next := snapshot("/b")
	if err := r.server.Apply(t.Context(), config.Delta{Routes: next.Routes, Next: noSnapshot}); err != nil {
		t.Fatal(err)
	}
	if got := dialClient(t, r.address("front")).roundTrip(get("/a")); got.StatusCode != 403 {
		t.Errorf("path of the removed route: status %d, want 403", got.StatusCode)
	}
}
