package e2e

import (
	"strings"
	"testing"
	"time"
)

// actions returns a feature for each action of routes.
func (p *pair) actions() []feature {
	return []feature{
		p.forward(), p.redirect(), p.directResponse(), p.rewrites(), p.headerChanges(), p.weightedClusters(),
		p.clusterVariable(), p.matches(), p.timeouts(), p.retries(), p.retryConditions(), p.failures(),
		p.hashPolicy(), p.metadataMatch(),
	}
}

func (p *pair) forward() feature {
	large := strings.Repeat("content ", 40_000)
	return feature{
		name: "forward",
		trials: []trial{
			{name: "a request passes as it is", path: "/plain?a=%2F", fields: []string{"Cookie: a=1; b=2"}, status: 200, code: "0",
				want: map[string]string{"Got-Cookie": "a=1; b=2"}},
			{name: "its line", path: "/plain?a=%2F", status: 200, want: map[string]string{"X-Asked": "GET shop.test/plain?a=%2F"}},
			{name: "fields of a connection stay on it", path: "/plain", fields: []string{"Keep-Alive: timeout=5", "Proxy-Connection: keep-alive"}, status: 200,
				want: map[string]string{"Transfer-Encoding": ""}},
			{name: "a field twice", path: "/plain", fields: []string{"X-Twice: 1", "X-Twice: 2"}, status: 200, code: "0",
				want: map[string]string{"Got-X-Twice": "1, 2"}},
			{name: "content of a known length", method: "POST", path: "/plain", content: large, status: 200, code: "0", body: large},
			{name: "content of an unknown length", method: "PUT", path: "/plain", content: large, streamed: true, status: 200, code: "0", body: large},
			{name: "HEAD has no content", method: "HEAD", path: "/plain", status: 200, want: map[string]string{"X-Asked": "HEAD shop.test/plain"}},
			{name: "OPTIONS", method: "OPTIONS", path: "/plain", status: 200, want: map[string]string{"X-Asked": "OPTIONS shop.test/plain"}},
		},
	}
}

func (p *pair) redirect() feature {
	route := func(prefix string, r object) object { return object{"match": object{"prefix": prefix}, "redirect": r} }
	return feature{
		name: "redirect",
		routes: []object{
			route("/path", object{"path_redirect": "/there"}),
			route("/host", object{"response_code": 307, "host_redirect": "new.test"}),
			route("/scheme", object{"response_code": 308, "scheme_redirect": "https"}),
		},
		trials: []trial{
			{name: "path", path: "/path/a?b", status: 301, code: "2", want: map[string]string{"X-App": ""}},
			{name: "to the path", path: "/path/a", status: 301, want: map[string]string{"Location": "http://shop.test/there"}},
			{name: "host", path: "/host/a?b", status: 307, want: map[string]string{"Location": "http://new.test/host/a?b"}},
			{name: "scheme", path: "/scheme/a", status: 308, want: map[string]string{"Location": "https://shop.test/scheme/a"}},
			{name: "of what has content", method: "POST", path: "/host/a", content: "kept", status: 307, code: "2"},
		},
	}
}

func (p *pair) directResponse() feature {
	secret := []string{"Authorization: secret", "Cookie: secret"}
	nothing := map[string]string{"Authorization": "", "Cookie": "", "Set-Cookie": "", "X-App": ""}
	return feature{
		name:   "direct_response",
		routes: []object{says("/own", 418, "of the proxy"), says("/closed", 503, ""), says("/empty", 204, "")},
		trials: []trial{
			{name: "with a text", path: "/own", fields: secret, status: 418, body: "of the proxy", want: nothing},
			{name: "to a call", path: "/own", fields: secret, status: 418, code: "2", want: nothing},
			{name: "of what gRPC knows", path: "/closed", status: 503, code: "14"},
			{name: "without content", path: "/empty", status: 204},
			{name: "to HEAD", method: "HEAD", path: "/own", status: 418, want: map[string]string{"Content-Length": "12"}},
			{name: "to content", method: "POST", path: "/own", content: "lost", status: 418, body: "of the proxy"},
		},
	}
}

func (p *pair) rewrites() feature {
	asked := func(s string) map[string]string { return map[string]string{"X-Asked": s} }
	return feature{
		name: "rewrites",
		routes: []object{
			to("/old/", "app", object{"prefix_rewrite": "/new/"}),
			to("/v", "app", object{"regex_rewrite": object{"pattern": object{"regex": "^/v([0-9]+)/"}, "substitution": `/version/\1/`}}),
			to("/host", "app", object{"host_rewrite": "inner.test"}),
			to("/field", "app", object{"auto_host_rewrite_header": "x-host"}),
			to("/name", "named", object{"auto_host_rewrite": true}),
			to("/both", "app", object{"prefix_rewrite": "/new", "host_rewrite": "inner.test"}),
		},
		clusters: list{cluster("named", object{"hosts": list{object{"address": p.app, "hostname": "host.test"}}})},
		trials: []trial{
			{name: "prefix_rewrite", path: "/old/a?b=/old/", status: 200, want: asked("GET shop.test/new/a?b=/old/")},
			{name: "prefix_rewrite of a call", path: "/old/a", status: 200, code: "0", method: "POST", want: asked("POST shop.test/new/a")},
			{name: "regex_rewrite", path: "/v2/a?b", status: 200, want: asked("GET shop.test/version/2/a?b")},
			{name: "host_rewrite", path: "/host", status: 200, want: asked("GET inner.test/host")},
			{name: "host_rewrite of a call", path: "/host", status: 200, code: "0", method: "POST", want: asked("POST inner.test/host")},
			{name: "auto_host_rewrite_header", path: "/field", fields: []string{"X-Host: named.test"}, status: 200, want: asked("GET named.test/field")},
			{name: "auto_host_rewrite", path: "/name", status: 200, want: asked("GET host.test/name")},
			{name: "path and host", path: "/both?a", status: 200, want: asked("GET inner.test/new?a")},
		},
	}
}

func (p *pair) headerChanges() feature {
	field := func(key, value string) object { return object{"header": object{"key": key, "value": value}} }
	once := object{"append": false}
	return feature{
		name: "header-changes",
		routes: []object{to("/", "app", object{
			"request_headers_to_add":     list{field("X-Add", "+added").with(once), field("X-Beside", "second"), field("X-Cluster", "%upstream_cluster%")},
			"request_headers_to_remove":  list{"x-drop"},
			"response_headers_to_add":    list{field("X-Out", "yes").with(once), field("X-App", "twice")},
			"response_headers_to_remove": list{"X-Inner"},
		})},
		trials: []trial{{
			name: "of both ways", path: "/", status: 200, code: "0",
			fields: []string{"X-Keep: kept", "X-Drop: dropped", "X-Add: before", "X-Beside: first"},
			want: map[string]string{
				"Got-X-Keep": "kept", "Got-X-Drop": "", "Got-X-Add": "+added", "Got-X-Beside": "first, second",
				"X-Out": "yes", "X-App": "app, twice", "X-Inner": "",
			},
		}},
	}
}

func (p *pair) weightedClusters() feature {
	weighted := func(prefix string, app, other int) object {
		one := func(name string, weight int) object { return object{"cluster": object{"name": name, "weight": weight}} }
		return object{"match": object{"prefix": prefix}, "route": object{"weighted_clusters": list{one("app", app), one("other", other)}}}
	}
	return feature{
		name:   "weighted_clusters",
		routes: []object{weighted("/all", 0, 1), weighted("/half", 1, 1)},
		trials: []trial{
			{name: "all to one", path: "/all", times: 8, status: 200, code: "0", want: map[string]string{"X-App": "other"}},
			{name: "half to each", path: "/half", times: 100, status: 200, code: "0", judge: func(t *testing.T, all []answer) {
				n := 0
				for _, a := range all {
					if a.header.Get("X-App") == "other" {
						n++
					}
				}
				if n < 20 || n > 80 { // six standard deviations from the mean
					t.Errorf("%d of %d requests went to the other cluster, want half of them", n, len(all))
				}
			}},
		},
	}
}

func (p *pair) clusterVariable() feature {
	return feature{
		name:   "cluster_variable",
		routes: []object{{"match": object{"prefix": "/"}, "route": object{"cluster_variable": "request_header_x-cluster"}}},
		trials: []trial{
			{name: "a cluster that is there", path: "/", fields: []string{"X-Cluster: other"}, status: 200, code: "0", want: map[string]string{"X-App": "other"}},
			{name: "one that is not", path: "/", fields: []string{"X-Cluster: another"}, status: 404, code: "12", reason: "no_cluster"},
		},
	}
}

func (p *pair) matches() feature {
	other := map[string]string{"X-App": "other"}
	route := func(match object) object { return object{"match": match, "route": object{"cluster_name": "other"}} }
	field := func(name, value string) object { return object{"headers": list{object{"name": name, "value": value}}} }
	return feature{
		name: "matches",
		routes: []object{
			route(object{"path": "/whole"}), route(object{"regex": "^/[0-9]+$"}),
			route(field("x-version", "2")), route(field("host", "other.test")),
			route(object{"variables": list{object{"name": "x-mosn-method", "value": "DELETE"}}}),
		},
		trials: []trial{
			{name: "the whole path", path: "/whole?a", status: 200, code: "0", want: other},
			{name: "more than that", path: "/whole/a", status: 200, code: "0", want: map[string]string{"X-App": "app"}},
			{name: "an expression", path: "/12", status: 200, code: "0", want: other},
			{name: "a field", path: "/", fields: []string{"X-Version: 2"}, status: 200, code: "0", want: other},
			{name: "a variable", method: "DELETE", path: "/", status: 200, want: other},
		},
	}
}

func (p *pair) timeouts() feature {
	const short = 100 * time.Millisecond
	return feature{
		name: "timeouts",
		routes: []object{
			to("/silent", "silent", object{"timeout": short.String()}),
			to("/try", "silent", object{"retry_policy": object{"retry_on": false, "retry_timeout": short.String()}}),
			to("/enough/silent", "silent", object{"timeout": "1m"}),
			to("/enough", "app", object{"timeout": "1m"}),
		},
		clusters: list{cluster("silent", nil, p.silent)},
		trials: []trial{
			{name: "of the exchange", path: "/silent", status: 504, code: "14", reason: "upstream_timeout", slow: short},
			{name: "with content", method: "POST", path: "/silent", content: "lost", status: 504, code: "14", reason: "upstream_timeout", slow: short},
			{name: "of a caller", path: "/enough/silent", fields: []string{"Grpc-Timeout: 100m"}, code: "4", reason: "upstream_timeout", slow: short},
			{name: "of a try", path: "/try", status: 504, code: "14", reason: "try_timeout", slow: short},
			{name: "that is not reached", path: "/enough", status: 200, code: "0"},
		},
	}
}

// retries verifies retries. One of two hosts fails, so that some of a few requests are retried,
// with their body.
func (p *pair) retries() feature {
	policy := func(more object) object {
		return object{"retry_policy": object{"retry_on": true, "num_retries": 2}.with(more)}
	}
	const few = 6
	app := map[string]string{"X-App": "app"}
	return feature{
		name: "retries",
		routes: []object{
			to("/busy", "busy", policy(nil)), to("/gone", "gone", policy(nil)), to("/refuses", "refuses", policy(nil)),
			to("/silent", "slow", policy(object{"retry_timeout": "300ms"})),
			to("/none", "all-busy", policy(nil)),
			to("/off", "all-busy"),
		},
		clusters: list{
			cluster("busy", nil, p.app, p.busy), cluster("gone", nil, p.app, p.gone),
			cluster("refuses", nil, p.app, p.dead), cluster("slow", nil, p.app, p.silent),
			cluster("all-busy", nil, p.busy),
		},
		trials: []trial{
			{name: "of a bad answer", path: "/busy", times: few, status: 200, code: "0", want: app},
			{name: "with their content", method: "PUT", path: "/busy", content: "replayed", times: few, status: 200, code: "0", body: "replayed", want: app},
			{name: "of a lost connection", method: "PUT", path: "/gone", content: "replayed", times: few, status: 200, code: "0", body: "replayed", want: app},
			{name: "of a host that refuses", method: "POST", path: "/refuses", content: "replayed", times: few, status: 200, code: "0", body: "replayed", want: app},
			{name: "of a try that takes too long", method: "PUT", path: "/silent", content: "replayed", times: 4, status: 200, code: "0", body: "replayed", want: app},
			{name: "that do not help", path: "/none", status: 503, code: "14"},
			{name: "that nobody asked for", path: "/off", status: 503, code: "14"},
		},
	}
}

// failures verifies the responses to requests without a route or a usable host.
func (p *pair) failures() feature {
	return feature{
		name:     "failures",
		routes:   []object{to("/dead", "dead"), to("/empty", "empty")},
		all:      true,
		clusters: list{cluster("empty", nil)},
		trials: []trial{
			{name: "no route", path: "/none", fields: []string{"Cookie: secret"}, status: 404, code: "12", reason: "no_route",
				want: map[string]string{"Cookie": "", "Set-Cookie": ""}},
			{name: "a host that refuses", path: "/dead", status: 502, code: "14", reason: "connect_failure"},
			{name: "with content", method: "POST", path: "/dead", content: "lost", status: 502, code: "14", reason: "connect_failure"},
			{name: "a cluster without hosts", path: "/empty", status: 502, code: "14", reason: "no_healthy_host"},
		},
	}
}
