package e2e

import (
	"strings"
	"testing"
)

// Features of the selection of a host.

// checkOneUpstream verifies that one upstream sent all responses. With random selection from two
// upstreams, 12 responses pass by chance in one of 2,000 runs.
func checkOneUpstream(t *testing.T, responses []httpResponse) {
	t.Helper()
	first := responses[0].header.Get("X-App")
	for _, resp := range responses {
		if got := resp.header.Get("X-App"); got == "" || got != first {
			t.Errorf("responses from %q and %q, want the same upstream", got, first)
		}
	}
}

func (p *protocolPair) hashPolicy() feature {
	route := func(prefix string, policies ...any) object {
		return routeTo(prefix, "hashed", object{"hash_policy": list(policies)})
	}
	const repeats = 12
	return feature{
		name: "hash_policy",
		routes: []object{
			route("/field", object{"header": object{"key": "x-user"}}),
			route("/cookie", object{"http_cookie": object{"name": "user", "ttl": "1m"}}),
			route("/address", object{"source_ip": object{}}),
			route("/second", object{"header": object{"key": "x-user"}}, object{"source_ip": object{}}),
		},
		clusters: list{cluster("hashed", object{"lb_type": "LB_MAGLEV"}, p.app, p.other)},
		cases: []requestCase{
			{name: "header", path: "/field", fields: []string{"X-User: jason"}, times: repeats, status: 200, code: "0", check: checkOneUpstream},
			{name: "cookie", path: "/cookie", fields: []string{"Cookie: user=jason"}, times: repeats, status: 200, code: "0", check: checkOneUpstream,
				wantHeaders: map[string]string{"Set-Cookie": ""}},
			{name: "client address", path: "/address", times: repeats, status: 200, code: "0", check: checkOneUpstream},
			{name: "other policies", method: "POST", path: "/second", requestBody: "kept", times: repeats, status: 200, code: "0", body: "kept", check: checkOneUpstream},
			{name: "Set-Cookie without a cookie", path: "/cookie", status: 200, code: "0", check: func(t *testing.T, responses []httpResponse) {
				if got := responses[0].header.Get("Set-Cookie"); !strings.HasPrefix(got, "user=") {
					t.Errorf("Set-Cookie: %q, want the cookie user", got)
				}
			}},
		},
	}
}

func (p *protocolPair) metadataMatch() feature {
	version := func(v string) object { return object{"version": v} }
	return feature{
		name: "metadata_match",
		filters: list{streamFilter("header_to_metadata", object{"request_rules": list{object{
			"header": "x-version", "on_header_present": object{"key": "version"}}}})},
		routes: []object{
			routeTo("/first", "labelled", metadataMatch(version("1"))), routeTo("/second", "labelled", metadataMatch(version("2"))),
			routeTo("/none", "labelled", metadataMatch(version("9"))), routeTo("/field", "labelled"),
		},
		clusters: list{cluster("labelled", object{
			"hosts":            list{labeledHost(p.app, version("1")), labeledHost(p.other, version("2"))},
			"lb_subset_config": object{"fall_back_policy": 0, "subset_selectors": list{list{"version"}}},
		})},
		cases: []requestCase{
			{name: "route metadata", path: "/first", times: 4, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
			{name: "other route metadata", path: "/second", times: 4, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "other"}},
			{name: "request metadata", path: "/field", fields: []string{"X-Version: 2"}, times: 4, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "other"}},
			{name: "metadata without hosts", path: "/none", status: 502, code: "14", reason: "no_healthy_host"},
		},
	}
}

func (p *protocolPair) faultTolerance() feature {
	return feature{
		name: "fault_tolerance",
		filters: list{streamFilter("fault_tolerance", object{
			"enabled": true, "timeWindow": 50, "leastWindowCount": 1, "exceptionRateMultiple": 2})},
		routes:   []object{routeTo("/", "one-fails")},
		matchAll: true,
		clusters: list{cluster("one-fails", nil, p.app, p.other, p.busy)},
		before: func(t *testing.T, get func(string) httpResponse) {
			const perHost = 3 // requests to each host
			eventually(t, "the failing host is ejected", func() bool {
				for range 2 * perHost {
					if get("/").header.Get("X-App") == "" {
						return false
					}
				}
				return true
			})
		},
		cases: []requestCase{
			{name: "other hosts respond", path: "/", times: 6, status: 200, code: "0"},
			{name: "other hosts respond to bodies", method: "POST", path: "/", requestBody: "kept", times: 6, status: 200, code: "0", body: "kept"},
		},
	}
}
