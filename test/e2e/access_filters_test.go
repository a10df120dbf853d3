package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// accessExample runs access.json and verifies which requests each filter rejects and allows.
func accessExample(t *testing.T) {
	app := startUpstream(t, describeRequest)
	e := loadExample(t, "access.json")
	e.replace(`"hosts": [{"address": "`+e.address("3146")+`"}]`, `"hosts": [{"address": "`+app.address+`"}]`)
	w := e.run("access.json")
	w.admin = e.address("34912")
	url := "http://" + e.address("3145")
	const shop = "Origin: https://shop.example.com"
	for _, c := range []struct {
		name, method, path string
		fields             []string
		want               int
	}{
		{"read without a role", "GET", "/items", nil, 200},
		{"denied address", "GET", "/items", []string{"X-Forwarded-For: 203.0.113.9"}, 403},
		{"denied proxy", "GET", "/items", []string{"X-Forwarded-For: 203.0.113.9, 198.51.100.1"}, 200},
		{"invalid address", "GET", "/items", []string{"X-Forwarded-For: unknown"}, 403},
		{"write without a role", "POST", "/items", []string{shop}, 403},
		{"write as member", "POST", "/items", []string{shop, "X-Role: member"}, 200},
		{"write with foreign origin", "POST", "/items", []string{"Origin: https://evil.test", "X-Role: member"}, 403},
		{"write without origin", "POST", "/items", []string{"X-Role: member"}, 403},
		{"write to a denied path", "POST", "/admin/items", []string{shop, "X-Role: member"}, 403},
		{"dot segments in the path", "POST", "/x/../admin/items", []string{shop, "X-Role: member"}, 403},
		{"encoded path", "POST", "/%61dmin/items", []string{shop, "X-Role: member"}, 403},
		{"path without policy", "PUT", "/public", []string{shop}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := sendRequest(t, newClient(t), c.method, url+c.path, "", c.fields...)
			if got.status != c.want {
				t.Errorf("%s %s: %d, want %d\n%s", c.method, c.path, got.status, c.want, got.body)
			}
			if strings.Contains(got.body, "X-Role") {
				t.Errorf("the upstream got the header X-Role, want none:\n%s", got.body)
			}
		})
	}
	got := sendRequest(t, newClient(t), "OPTIONS", url+"/items", "", shop, "Access-Control-Request-Method: POST")
	if h := got.header; got.status != 200 || h.Get("Access-Control-Allow-Origin") != "https://shop.example.com" ||
		h.Get("Access-Control-Allow-Methods") != "GET, POST" || h.Get("Access-Control-Allow-Credentials") != "true" || got.body != "" {
		t.Errorf("preflight: %d %v %q; want 200 and the CORS headers of shop.example.com", got.status, h, got.body)
	}
	if got = sendRequest(t, newClient(t), "GET", url+"/public", "", "Origin: https://anybody.test"); got.header.Get("Access-Control-Allow-Origin") != "https://anybody.test" {
		t.Errorf("route that allows any origin: header %v, want Access-Control-Allow-Origin: https://anybody.test", got.header)
	}
	if got = sendRequest(t, newClient(t), "GET", url+"/items", ""); got.header.Get("X-Ratelimit-Limit") != "1000" {
		t.Errorf("route with a rate limit: header %v, want X-Ratelimit-Limit: 1000", got.header)
	}
	for i, want := range []int{200, 200, 429} {
		for _, from := range []string{"198.51.100.1", "198.51.100.2"} {
			if got = sendRequest(t, newClient(t), "GET", url+"/report", "", "X-Forwarded-For: "+from); got.status != want {
				t.Errorf("request %d from %s: %d, want %d", i+1, from, got.status, want)
			}
		}
	}
	for name, want := range map[string]float64{
		"ip_access_denied": 2, "csrf_request_invalid": 1, "csrf_missing_source_origin": 1, "cors_preflights": 1, "rbac_denied": 4, "local_ratelimit_enforced": 2,
	} {
		if got := w.metric("weft_filter_" + name + "_total"); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// accessRPCExample runs access_rpc.json and verifies policies and limits by service, method and
// attachment.
func accessRPCExample(t *testing.T) {
	e := loadExample(t, "access_rpc.json")
	app := startProvider(t, "shop", nil)
	e.replace(e.address("3246"), app.address)
	w := e.run("access_rpc.json")
	w.admin = e.address("34913")
	client := newConsumer(t, e.address("3245"))
	const dubboDenied = 70
	shopCall := func(method, application string) invocation {
		i := invocation{service: "org.example.Shop", method: method}
		if application != "" {
			i.attachments = []string{"application: " + application}
		}
		return i
	}
	for _, c := range []struct {
		call invocation
		want byte
	}{
		{shopCall("buy", ""), dubboOK},
		{shopCall("refund", ""), dubboDenied},
		{shopCall("refundAll", "shop"), dubboDenied},
		{shopCall("refund", "billing"), dubboOK},
		{invocation{service: "org.example.Bank", method: "refund"}, dubboOK},
		{shopCall("report", "shop"), dubboOK}, {shopCall("report", "shop"), dubboOK}, {shopCall("report", "shop"), dubboOK},
		{shopCall("report", "shop"), dubboExhausted},
		{shopCall("report", "billing"), dubboOK},
		{shopCall("buy", "shop"), dubboOK},
	} {
		if got := client.call(c.call); got.status != c.want {
			t.Errorf("%+v: %d %q, want %d", c.call, got.status, got.text, c.want)
		}
	}
	if n := app.calls.Load(); n != 8 {
		t.Errorf("the provider got %d calls, want 8", n)
	}
	if got := w.metric("weft_filter_rbac_shadow_denied_total"); got != 3 {
		t.Errorf("%v calls counted as rejected in shadow mode, want 3: those without an application", got)
	}
}

// TestAccessFiltersRejectInProtocolTerms verifies that each access filter rejects requests with a
// status of the client's protocol: 403 or 429 in HTTP/1.1, a gRPC status, or an RPC status code.
func TestAccessFiltersRejectInProtocolTerms(t *testing.T) {
	t.Parallel()
	denyByHeader := streamFilter("rbac", object{"rules": object{"action": "DENY", "policies": object{"bad": object{
		"permissions": list{object{"any": true}}, "principals": list{object{"header": object{"name": "bad"}}}}}}})
	rateLimit := streamFilter("local_ratelimit", object{"token_bucket": object{"max_tokens": 1, "fill_interval": "1h"}})
	denyAll := streamFilter("ip_access", object{"default_action": "deny"})
	cases := map[string]struct {
		filter object
		field  string
		reason protocol.Reason
		want   [2]bool // whether the first and the second of two requests are allowed
	}{
		"rbac":            {denyByHeader, "bad", protocol.ReasonDenied, [2]bool{false, false}},
		"local_ratelimit": {rateLimit, "other", protocol.RateLimited, [2]bool{true, false}},
		"ip_access":       {denyAll, "other", protocol.ReasonDenied, [2]bool{false, false}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("Http1", func(t *testing.T) {
				url := filterProxy(t, list{c.filter})
				rejected := map[protocol.Reason]int{protocol.ReasonDenied: 403, protocol.RateLimited: 429}[c.reason]
				for i, allowed := range c.want {
					got := sendRequest(t, newClient(t), "GET", url, "", c.field+": 1")
					if got.status != map[bool]int{true: 200, false: rejected}[allowed] {
						t.Errorf("request %d: status %d, want allowed: %t", i, got.status, allowed)
					}
				}
			})
			t.Run("gRPC", func(t *testing.T) {
				app := serveGRPC(t, "")
				_, front, h2 := startGRPCProxy(t, object{"stream_filters": list{c.filter}}, list{cluster("app", nil, app.address)}, routeTo("/", "app"))
				h2.Transport = headerTransport{h2.Transport, c.field}
				rejected := map[protocol.Reason]string{protocol.ReasonDenied: "7", protocol.RateLimited: "14"}[c.reason]
				for i, allowed := range c.want {
					if got := callGRPC(t, h2, front, "/shop.Items/List"); got != map[bool]string{true: "0", false: rejected}[allowed] {
						t.Errorf("call %d: %s, want allowed: %t", i, got, allowed)
					}
				}
			})
			eachRPC(t, func(t *testing.T, r *rpc) {
				address, _ := r.startServer(t)
				front := freeAddress()
				startWeft(t, setup{
					listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
						"downstream_protocol": r.Name(), "upstream_protocol": r.Name(), "router_config_name": "front",
					}}, object{"stream_filters": list{c.filter}})},
					tables:   list{routeTable("front", routeTo("/", "app"))},
					clusters: list{cluster("app", nil, address)},
				}.config())
				client := r.dial(t, front)
				for i, allowed := range c.want {
					client.send(r.withHeader(t, r.request(uint64(i+1)), c.field, "1"))
					if got := client.receive(); got.ok != allowed || !allowed && got.code != r.code(c.reason) {
						t.Errorf("call %d: code %d, want allowed: %t", i, got.code, allowed)
					}
				}
			})
		})
	}
}

// headerTransport is a transport that sets one more header on each request.
type headerTransport struct {
	http.RoundTripper
	field string
}

// RoundTrip implements http.RoundTripper.
func (t headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(t.field, "1")
	return t.RoundTripper.RoundTrip(r)
}

// TestRateLimitSurvivesReload verifies that a rate limit keeps its token count across a reload.
func TestRateLimitSurvivesReload(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, describeRequest)
	s, front := simpleProxy(app.address)
	with := func(routes ...object) object {
		s.listeners = list{httpListener("front", front, object{"stream_filters": list{
			streamFilter("local_ratelimit", object{"token_bucket": object{"max_tokens": 2, "fill_interval": "1h"}})}})}
		s.tables = list{routeTable("front", append(routes, routeTo("/", "app"))...)}
		s.clusters = list{cluster("app", nil, app.address)}
		return s.config()
	}
	w := startWeft(t, with())
	passed := func() (n int) {
		for range 4 {
			if sendRequest(t, newClient(t), "GET", "http://"+front+"/", "").status == 200 {
				n++
			}
		}
		return n
	}
	if n := passed(); n != 2 {
		t.Fatalf("%d of 4 requests passed, want 2", n)
	}
	w.reload(with(routeWithFilter("/separate", "local_ratelimit", object{"token_bucket": object{"max_tokens": 1, "fill_interval": "1h"}})))
	if n := passed(); n != 0 {
		t.Errorf("after a reload %d of 4 requests passed, want 0", n)
	}
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/separate", ""); got.status != 200 {
		t.Errorf("first request of a route with a separate limit: %d, want 200", got.status)
	}
}

// TestRouteOverridesFilterConfig verifies that the filter configuration of a route replaces that of
// the listener.
func TestRouteOverridesFilterConfig(t *testing.T) {
	t.Parallel()
	deny := object{"rules": object{}} // no policies: denies every request
	url := filterProxy(t, list{streamFilter("rbac", deny), streamFilter("csrf", object{}), streamFilter("cors", object{})},
		routeWithFilter("/open", "rbac", object{}),
		object{"match": object{"prefix": "/api"}, "route": object{"cluster_name": "app"}, "per_filter_config": object{
			"rbac": object{},
			"csrf": object{"filter_enabled": object{"default_value": object{"numerator": 0}}},
			"cors": object{"allow_origin_string_match": list{object{"exact": "https://a.test"}}},
		}},
	)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/", 403}, {"GET", "/open", 200}, {"POST", "/open", 403}, {"POST", "/api", 200},
	} {
		got := sendRequest(t, newClient(t), c.method, url+c.path, "", "Origin: https://a.test")
		if granted := got.header.Get("Access-Control-Allow-Origin") != ""; got.status != c.want || granted != (c.path == "/api") {
			t.Errorf("%s %s: %d, origin allowed: %t; want %d", c.method, c.path, got.status, granted, c.want)
		}
	}
}

// TestHeaderToMetadataSelectsSubset verifies that header_to_metadata turns a request header into a
// label and that the cluster selects the hosts with that label.
func TestHeaderToMetadataSelectsSubset(t *testing.T) {
	t.Parallel()
	hosts := list{}
	for _, version := range []string{"v1", "v2"} {
		hosts = append(hosts, labeledHost(startUpstream(t, respondWith(version)).address, object{"version": version}))
	}
	s, front := simpleProxy("127.0.0.1:1")
	labels := streamFilter("header_to_metadata", object{"request_rules": list{object{
		"header":            "x-version",
		"on_header_present": object{"metadata_namespace": "envoy.lb", "key": "version"},
		"on_header_missing": object{"metadata_namespace": "envoy.lb", "key": "version", "value": "v1"},
	}}})
	s.listeners = list{httpListener("front", front, object{"stream_filters": list{labels}})}
	s.tables = list{routeTable("front", routeTo("/", "app"))}
	s.clusters = list{cluster("app", object{"hosts": hosts, "lb_subset_config": object{"fall_back_policy": 0, "subset_selectors": list{list{"version"}}}})}
	startWeft(t, s.config())
	for _, c := range []struct {
		fields []string
		status int
		want   string
	}{
		{nil, 200, "v1"},
		{[]string{"X-Version: v1"}, 200, "v1"},
		{[]string{"X-Version: v2"}, 200, "v2"},
		{[]string{"X-Version: v3"}, 502, ""},
	} {
		for range 4 {
			got := sendRequest(t, newClient(t), "GET", "http://"+front, "", c.fields...)
			if got.status != c.status || c.status == 200 && !strings.HasPrefix(got.body, c.want) {
				t.Errorf("headers %q: %d %q, want %d from %s", c.fields, got.status, got.body, c.status, c.want)
			}
		}
	}
}

// TestPoliciesMatchOriginalPath verifies that policies match the original path and authority, not
// the rewritten ones.
func TestPoliciesMatchOriginalPath(t *testing.T) {
	t.Parallel()
	policy := func(permission object) object {
		return object{"rules": object{"policies": object{"p": object{"permissions": list{permission}, "principals": list{object{"any": true}}}}}}
	}
	path := func(prefix string) object { return object{"url_path": object{"path": object{"prefix": prefix}}} }
	rewritten := func(prefix string) object {
		return routeTo(prefix, "app", object{"prefix_rewrite": "/new", "host_rewrite": "app.internal"})
	}
	withRBAC := func(route, rules object) object {
		return route.with(object{"per_filter_config": object{"rbac": rules}})
	}
	url := filterProxy(t, list{streamFilter("rbac", object{}), streamFilter("csrf", object{})},
		withRBAC(rewritten("/original"), policy(path("/original"))),
		withRBAC(rewritten("/rewritten"), policy(path("/new"))),
		withRBAC(rewritten("/host"), policy(object{"header": object{"name": ":authority", "exact_match": "app.internal"}})),
	)
	for path, want := range map[string]int{"/original/a": 200, "/rewritten/a": 403, "/host/a": 403} {
		got := sendRequest(t, newClient(t), "POST", url+path, "", "Origin: "+url)
		if got.status != want || want == 200 && !strings.HasPrefix(got.body, "POST /new/a app.internal\n") {
			t.Errorf("%s: %d, want %d\n%s", path, got.status, want, got.body)
		}
	}
}
