package e2e

import (
	"strings"
	"testing"
	"time"
)

// actions returns a feature for each action of routes.
func (p *protocolPair) actions() []feature {
	return []feature{
		p.forward(), p.redirect(), p.directResponse(), p.rewrites(), p.headerChanges(), p.weightedClusters(),
		p.clusterVariable(), p.matches(), p.timeouts(), p.retries(), p.retryConditions(), p.failures(),
		p.hashPolicy(), p.metadataMatch(),
	}
}

func (p *protocolPair) forward() feature {
	large := strings.Repeat("content ", 40_000)
	return feature{
		name: "forward",
		cases: []requestCase{
			{name: "unchanged request", path: "/plain?a=%2F", fields: []string{"Cookie: a=1; b=2"}, status: 200, code: "0",
				wantHeaders: map[string]string{"Got-Cookie": "a=1; b=2"}},
			{name: "request line", path: "/plain?a=%2F", status: 200, wantHeaders: map[string]string{"X-Request-Line": "GET shop.test/plain?a=%2F"}},
			{name: "hop-by-hop headers", path: "/plain", fields: []string{"Keep-Alive: timeout=5", "Proxy-Connection: keep-alive"}, status: 200,
				wantHeaders: map[string]string{"Transfer-Encoding": ""}},
			{name: "repeated header", path: "/plain", fields: []string{"X-Twice: 1", "X-Twice: 2"}, status: 200, code: "0",
				wantHeaders: map[string]string{"Got-X-Twice": "1, 2"}},
			{name: "body with Content-Length", method: "POST", path: "/plain", requestBody: large, status: 200, code: "0", body: large},
			{name: "chunked body", method: "PUT", path: "/plain", requestBody: large, chunked: true, status: 200, code: "0", body: large},
			{name: "HEAD without body", method: "HEAD", path: "/plain", status: 200, wantHeaders: map[string]string{"X-Request-Line": "HEAD shop.test/plain"}},
			{name: "OPTIONS", method: "OPTIONS", path: "/plain", status: 200, wantHeaders: map[string]string{"X-Request-Line": "OPTIONS shop.test/plain"}},
		},
	}
}

func (p *protocolPair) redirect() feature {
	route := func(prefix string, r object) object { return object{"match": object{"prefix": prefix}, "redirect": r} }
	return feature{
		name: "redirect",
		routes: []object{
			route("/path", object{"path_redirect": "/there"}),
			route("/host", object{"response_code": 307, "host_redirect": "new.test"}),
			route("/scheme", object{"response_code": 308, "scheme_redirect": "https"}),
		},
		cases: []requestCase{
			{name: "path", path: "/path/a?b", status: 301, code: "2", wantHeaders: map[string]string{"X-App": ""}},
			{name: "path redirect", path: "/path/a", status: 301, wantHeaders: map[string]string{"Location": "http://shop.test/there"}},
			{name: "host", path: "/host/a?b", status: 307, wantHeaders: map[string]string{"Location": "http://new.test/host/a?b"}},
			{name: "scheme", path: "/scheme/a", status: 308, wantHeaders: map[string]string{"Location": "https://shop.test/scheme/a"}},
			{name: "request with body", method: "POST", path: "/host/a", requestBody: "kept", status: 307, code: "2"},
		},
	}
}

func (p *protocolPair) directResponse() feature {
	secret := []string{"Authorization: secret", "Cookie: secret"}
	absent := map[string]string{"Authorization": "", "Cookie": "", "Set-Cookie": "", "X-App": ""}
	return feature{
		name:   "direct_response",
		routes: []object{directRoute("/teapot", 418, "of the proxy"), directRoute("/closed", 503, ""), directRoute("/empty", 204, "")},
		cases: []requestCase{
			{name: "with text", path: "/teapot", fields: secret, status: 418, body: "of the proxy", wantHeaders: absent},
			{name: "gRPC call", path: "/teapot", fields: secret, status: 418, code: "2", wantHeaders: absent},
			{name: "status that gRPC maps", path: "/closed", status: 503, code: "14"},
			{name: "without body", path: "/empty", status: 204},
			{name: "HEAD", method: "HEAD", path: "/teapot", status: 418, wantHeaders: map[string]string{"Content-Length": "12"}},
			{name: "request with body", method: "POST", path: "/teapot", requestBody: "lost", status: 418, body: "of the proxy"},
		},
	}
}

func (p *protocolPair) rewrites() feature {
	wantLine := func(s string) map[string]string { return map[string]string{"X-Request-Line": s} }
	return feature{
		name: "rewrites",
		routes: []object{
			routeTo("/old/", "app", object{"prefix_rewrite": "/new/"}),
			routeTo("/v", "app", object{"regex_rewrite": object{"pattern": object{"regex": "^/v([0-9]+)/"}, "substitution": `/version/\1/`}}),
			routeTo("/host", "app", object{"host_rewrite": "inner.test"}),
			routeTo("/field", "app", object{"auto_host_rewrite_header": "x-host"}),
			routeTo("/name", "named", object{"auto_host_rewrite": true}),
			routeTo("/both", "app", object{"prefix_rewrite": "/new", "host_rewrite": "inner.test"}),
		},
		clusters: list{cluster("named", object{"hosts": list{object{"address": p.app, "hostname": "host.test"}}})},
		cases: []requestCase{
			{name: "prefix_rewrite", path: "/old/a?b=/old/", status: 200, wantHeaders: wantLine("GET shop.test/new/a?b=/old/")},
			{name: "prefix_rewrite of a call", path: "/old/a", status: 200, code: "0", method: "POST", wantHeaders: wantLine("POST shop.test/new/a")},
			{name: "regex_rewrite", path: "/v2/a?b", status: 200, wantHeaders: wantLine("GET shop.test/version/2/a?b")},
			{name: "host_rewrite", path: "/host", status: 200, wantHeaders: wantLine("GET inner.test/host")},
			{name: "host_rewrite of a call", path: "/host", status: 200, code: "0", method: "POST", wantHeaders: wantLine("POST inner.test/host")},
			{name: "auto_host_rewrite_header", path: "/field", fields: []string{"X-Host: named.test"}, status: 200, wantHeaders: wantLine("GET named.test/field")},
			{name: "auto_host_rewrite", path: "/name", status: 200, wantHeaders: wantLine("GET host.test/name")},
			{name: "path and host", path: "/both?a", status: 200, wantHeaders: wantLine("GET inner.test/new?a")},
		},
	}
}

func (p *protocolPair) headerChanges() feature {
	field := func(key, value string) object { return object{"header": object{"key": key, "value": value}} }
	replace := object{"append": false}
	return feature{
		name: "header-changes",
		routes: []object{routeTo("/", "app", object{
			"request_headers_to_add":     list{field("X-Add", "+added").with(replace), field("X-Appended", "second"), field("X-Cluster", "%upstream_cluster%")},
			"request_headers_to_remove":  list{"x-drop"},
			"response_headers_to_add":    list{field("X-Out", "yes").with(replace), field("X-App", "twice")},
			"response_headers_to_remove": list{"X-Inner"},
		})},
		cases: []requestCase{{
			name: "requests and responses", path: "/", status: 200, code: "0",
			fields: []string{"X-Keep: kept", "X-Drop: dropped", "X-Add: before", "X-Appended: first"},
			wantHeaders: map[string]string{
				"Got-X-Keep": "kept", "Got-X-Drop": "", "Got-X-Add": "+added", "Got-X-Appended": "first, second",
				"X-Out": "yes", "X-App": "app, twice", "X-Inner": "",
			},
		}},
	}
}

func (p *protocolPair) weightedClusters() feature {
	weighted := func(prefix string, app, other int) object {
		clusterWeight := func(name string, weight int) object { return object{"cluster": object{"name": name, "weight": weight}} }
		return object{"match": object{"prefix": prefix}, "route": object{"weighted_clusters": list{clusterWeight("app", app), clusterWeight("other", other)}}}
	}
	return feature{
		name:   "weighted_clusters",
		routes: []object{weighted("/all", 0, 1), weighted("/half", 1, 1)},
		cases: []requestCase{
			{name: "one cluster", path: "/all", times: 8, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "other"}},
			{name: "two clusters", path: "/half", times: 100, status: 200, code: "0", check: func(t *testing.T, responses []httpResponse) {
				n := 0
				for _, resp := range responses {
					if resp.header.Get("X-App") == "other" {
						n++
					}
				}
				if n < 20 || n > 80 { // six standard deviations from the mean
					t.Errorf("%d of %d requests went to the other cluster, want half", n, len(responses))
				}
			}},
		},
	}
}

func (p *protocolPair) clusterVariable() feature {
	return feature{
		name:   "cluster_variable",
		routes: []object{{"match": object{"prefix": "/"}, "route": object{"cluster_variable": "request_header_x-cluster"}}},
		cases: []requestCase{
			{name: "existing cluster", path: "/", fields: []string{"X-Cluster: other"}, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "other"}},
			{name: "unknown cluster", path: "/", fields: []string{"X-Cluster: unknown"}, status: 404, code: "12", reason: "no_cluster"},
		},
	}
}

func (p *protocolPair) matches() feature {
	other := map[string]string{"X-App": "other"}
	route := func(match object) object { return object{"match": match, "route": object{"cluster_name": "other"}} }
	field := func(name, value string) object { return object{"headers": list{object{"name": name, "value": value}}} }
	return feature{
		name: "matches",
		routes: []object{
			route(object{"path": "/exact"}), route(object{"regex": "^/[0-9]+$"}),
			route(field("x-version", "2")), route(field("host", "other.test")),
			route(object{"variables": list{object{"name": "x-mosn-method", "value": "DELETE"}}}),
		},
		cases: []requestCase{
			{name: "exact path", path: "/exact?a", status: 200, code: "0", wantHeaders: other},
			{name: "longer path", path: "/exact/a", status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
			{name: "regex", path: "/12", status: 200, code: "0", wantHeaders: other},
			{name: "header", path: "/", fields: []string{"X-Version: 2"}, status: 200, code: "0", wantHeaders: other},
			{name: "variable", method: "DELETE", path: "/", status: 200, wantHeaders: other},
		},
	}
}

func (p *protocolPair) timeouts() feature {
	const short = 100 * time.Millisecond
	return feature{
		name: "timeouts",
		routes: []object{
			routeTo("/silent", "silent", object{"timeout": short.String()}),
			routeTo("/try", "silent", object{"retry_policy": object{"retry_on": false, "retry_timeout": short.String()}}),
			routeTo("/slow/silent", "silent", object{"timeout": "1m"}),
			routeTo("/slow", "app", object{"timeout": "1m"}),
		},
		clusters: list{cluster("silent", nil, p.hanging)},
		cases: []requestCase{
			{name: "route timeout", path: "/silent", status: 504, code: "14", reason: "upstream_timeout", minDuration: short},
			{name: "with body", method: "POST", path: "/silent", requestBody: "lost", status: 504, code: "14", reason: "upstream_timeout", minDuration: short},
			{name: "grpc-timeout header", path: "/slow/silent", fields: []string{"Grpc-Timeout: 100m"}, code: "4", reason: "upstream_timeout", minDuration: short},
			{name: "per-try timeout", path: "/try", status: 504, code: "14", reason: "try_timeout", minDuration: short},
			{name: "timeout not reached", path: "/slow", status: 200, code: "0"},
		},
	}
}

// retries verifies retries. One of two hosts fails, so that some of a few requests are retried,
// with their body.
func (p *protocolPair) retries() feature {
	policy := func(extra object) object {
		return object{"retry_policy": object{"retry_on": true, "num_retries": 2}.with(extra)}
	}
	const attempts = 6
	app := map[string]string{"X-App": "app"}
	return feature{
		name: "retries",
		routes: []object{
			routeTo("/busy", "busy", policy(nil)), routeTo("/gone", "gone", policy(nil)), routeTo("/refused", "refused", policy(nil)),
			routeTo("/silent", "slow", policy(object{"retry_timeout": "300ms"})),
			routeTo("/none", "all-busy", policy(nil)),
			routeTo("/off", "all-busy"),
		},
		clusters: list{
			cluster("busy", nil, p.app, p.busy), cluster("gone", nil, p.app, p.disconnecting),
			cluster("refused", nil, p.app, p.closedPort), cluster("slow", nil, p.app, p.hanging),
			cluster("all-busy", nil, p.busy),
		},
		cases: []requestCase{
			{name: "5xx response", path: "/busy", times: attempts, status: 200, code: "0", wantHeaders: app},
			{name: "with body", method: "PUT", path: "/busy", requestBody: "replayed", times: attempts, status: 200, code: "0", body: "replayed", wantHeaders: app},
			{name: "connection lost", method: "PUT", path: "/gone", requestBody: "replayed", times: attempts, status: 200, code: "0", body: "replayed", wantHeaders: app},
			{name: "connect failure", method: "POST", path: "/refused", requestBody: "replayed", times: attempts, status: 200, code: "0", body: "replayed", wantHeaders: app},
			{name: "per-try timeout", method: "PUT", path: "/silent", requestBody: "replayed", times: 4, status: 200, code: "0", body: "replayed", wantHeaders: app},
			{name: "every attempt fails", path: "/none", status: 503, code: "14"},
			{name: "no retry policy", path: "/off", status: 503, code: "14"},
		},
	}
}

// failures verifies the responses to requests without a route or a usable host.
func (p *protocolPair) failures() feature {
	return feature{
		name:     "failures",
		routes:   []object{routeTo("/dead", "dead"), routeTo("/empty", "empty")},
		matchAll: true,
		clusters: list{cluster("empty", nil)},
		cases: []requestCase{
			{name: "no route", path: "/none", fields: []string{"Cookie: secret"}, status: 404, code: "12", reason: "no_route",
				wantHeaders: map[string]string{"Cookie": "", "Set-Cookie": ""}},
			{name: "connect failure", path: "/dead", status: 502, code: "14", reason: "connect_failure"},
			{name: "with body", method: "POST", path: "/dead", requestBody: "lost", status: 502, code: "14", reason: "connect_failure"},
			{name: "cluster without hosts", path: "/empty", status: 502, code: "14", reason: "no_healthy_host"},
		},
	}
}
