package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// withVirtualHosts returns the fields of a connection manager whose routes are in hosts. The route
// table has the fields of extra.
func withVirtualHosts(extra object, hosts ...any) object {
	return object{"route_config": object{"name": "routes", "virtual_hosts": list(hosts)}.with(extra)}
}

// TestEnvoyRequireTLS verifies that virtual hosts redirect plaintext requests to https like Envoy
// 1.40, without header mutations and without filter settings of the virtual host.
func TestEnvoyRequireTLS(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	front, local := freeAddress(), freeAddress()
	host := func(name, requirement string, extra object) object {
		return object{"name": name, "domains": list{name + ".test", name + ".test:80"}, "require_tls": requirement,
			"response_headers_to_add": list{object{"header": object{"key": "x-added", "value": "1"}}},
			"routes":                  list{envoyRoute("/x", "app", nil)}}.with(extra)
	}
	fault := object{"typed_per_filter_config": object{"envoy.filters.http.fault": object{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
		"abort": object{"http_status": 418, "percentage": object{"numerator": 100}}}}}
	filters := object{"http_filters": list{
		object{"name": "envoy.filters.http.fault", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"}},
		object{"name": "router", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}}}
	internal := object{"use_remote_address": true, "internal_address_config": object{"cidr_ranges": list{object{"address_prefix": "127.0.0.0", "prefix_len": 8}}}}
	startWithEnvoyConfig(t, list{
		envoyListener(front, withVirtualHosts(nil, host("all", "ALL", nil), host("ext", "EXTERNAL_ONLY", nil), host("fault", "ALL", fault)).with(filters), nil),
		envoyListener(local, withVirtualHosts(nil, host("ext", "EXTERNAL_ONLY", nil), host("all", "ALL", nil)).with(internal), nil),
	}, list{envoyCluster("app", app.address, nil)})
	const none = "x-other: 1"
	for _, test := range []struct {
		front, host, path, field string
		status                   int
		location                 string
	}{
		{front, "all.test", "/x?q=1", none, 301, "https://all.test/x?q=1"},
		{front, "all.test:80", "/x", none, 301, "https://all.test:80/x"},
		{front, "all.test", "/y", none, 301, "https://all.test/y"},
		{front, "all.test", "/x", "x-forwarded-proto: https", 200, ""},
		{front, "all.test", "/y", "x-forwarded-proto: https", 404, ""},
		{front, "all.test", "/x", "x-forwarded-proto: HTTPS", 301, "https://all.test/x"},
		{front, "all.test", "/x", "x-forwarded-proto: foo", 301, "https://all.test/x"},
		{front, "ext.test", "/x", "x-envoy-internal: true", 301, "https://ext.test/x"}, // forged
		{front, "fault.test", "/x", none, 301, "https://fault.test/x"},
		{front, "fault.test", "/x", "x-forwarded-proto: https", 418, ""},
		{local, "ext.test", "/x", none, 200, ""},
		{local, "ext.test", "/x", "x-forwarded-for: 9.9.9.9", 301, "https://ext.test/x"},
		{local, "all.test", "/x", "x-forwarded-proto: https", 301, "https://all.test/x"}, // forged: use_remote_address is set
	} {
		got := sendRequest(t, newClient(t), "GET", "http://"+test.front+test.path, "", "Host: "+test.host, test.field)
		if location := got.header.Get("Location"); got.status != test.status || location != test.location {
			t.Errorf("%s%s with %q: got %d to %q, want %d to %q", test.host, test.path, test.field, got.status, location, test.status, test.location)
		}
		if added := got.header.Get("X-Added"); test.status == 301 && added != "" {
			t.Errorf("%s%s with %q: the redirect has x-added %q, want none", test.host, test.path, test.field, added)
		}
	}
}

// TestEnvoyCookieMatch verifies that routes match cookies in HTTP/1.1 and HTTP/2, which splits them.
func TestEnvoyCookieMatch(t *testing.T) {
	t.Parallel()
	front := freeAddress()
	cookie := object{"name": "s", "string_match": object{"exact": "v"}}
	startWithEnvoyConfig(t, list{envoyListener(front, nil, list{"*"},
		object{"match": object{"prefix": "/is", "cookies": list{cookie}}, "direct_response": object{"status": 201}},
		object{"match": object{"prefix": "/not", "cookies": list{cookie.with(object{"invert_match": true})}}, "direct_response": object{"status": 202}},
	)}, nil)
	for version, c := range clients(t) {
		for _, test := range []struct {
			path, cookies string
			status        int
		}{
			{"/is", "s=v", 201}, {"/is", "a=1; s=v; b=2", 201}, {"/is", `s="v"`, 201}, {"/is", "s=x; s=v", 404}, {"/is", "a=1", 404},
			{"/not", "s=v", 404}, {"/not", "s=x; s=v", 202}, {"/not", "a=1", 202},
		} {
			if got := sendRequest(t, c, "GET", "http://"+front+test.path, "", "Cookie: "+test.cookies); got.status != test.status {
				t.Errorf("%s, %s with %s: status %d, want %d", version, test.path, test.cookies, got.status, test.status)
			}
		}
	}
}

// TestEnvoyPrefixRewriteOfExpressions verifies that prefix_rewrite of a route with an expression
// replaces the entire path and keeps the query, like Envoy 1.40.
func TestEnvoyPrefixRewriteOfExpressions(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	front := freeAddress()
	match := func(expression string) object { return object{"safe_regex": object{"regex": expression}} }
	startWithEnvoyConfig(t, list{envoyListener(front, nil, list{"*"},
		object{"match": match("/a/[0-9]+"), "route": object{"cluster": "app", "prefix_rewrite": "/new"}},
		object{"match": match("/b/1|/b/12"), "route": object{"cluster": "app", "prefix_rewrite": "/new"}},
		object{"match": match("/r/[0-9]+"), "redirect": object{"prefix_rewrite": "/new"}},
	)}, list{envoyCluster("app", app.address, nil)})
	for _, test := range []struct {
		path     string
		status   int
		body     string
		location string
	}{
		{"/a/1", 200, "/new", ""}, {"/a/1?q=1", 200, "/new?q=1", ""}, {"/b/12?q", 200, "/new?q", ""}, {"/a/1/2", 404, "", ""},
		{"/r/1?q=1", 301, "", "http://r.test/new?q=1"}, {"/r/1", 301, "", "http://r.test/new"},
	} {
		got := sendRequest(t, newClient(t), "GET", "http://"+front+test.path, "", "Host: r.test")
		if got.status != test.status || test.body != "" && got.body != test.body || got.header.Get("Location") != test.location {
			t.Errorf("%s: got %d %q to %q, want %d %q to %q", test.path, got.status, got.body, got.header.Get("Location"), test.status, test.body, test.location)
		}
	}
}

// TestEnvoyVirtualHostHeader verifies that vhost_header chooses the virtual host.
func TestEnvoyVirtualHostHeader(t *testing.T) {
	t.Parallel()
	front := freeAddress()
	host := func(domain string, status int) object {
		return object{"name": domain, "domains": list{domain}, "routes": list{object{"match": object{"prefix": "/"}, "direct_response": object{"status": status}}}}
	}
	startWithEnvoyConfig(t, list{envoyListener(front, withVirtualHosts(object{"vhost_header": "x-vh"}, host("one.test", 201), host("host.test", 202), host("*", 203)), nil)}, nil)
	for field, want := range map[string]int{"x-vh: one.test": 201, "x-vh: ONE.test": 201, "x-vh: host.test": 202, "x-vh: other": 203, "x-other: one.test": 404} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", "", "Host: host.test", field); got.status != want {
			t.Errorf("%s: status %d, want %d", field, got.status, want)
		}
	}
}

// TestEnvoyMutationOrder verifies the order of header mutations with and without
// most_specific_header_mutations_wins, as Envoy 1.40 applies them.
func TestEnvoyMutationOrder(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header["X-A"], " "))
	})
	mutations := func(level string) object {
		return object{
			"request_headers_to_add":  list{object{"header": object{"key": "x-a", "value": level}}},
			"response_headers_to_add": list{object{"header": object{"key": "x-o", "value": level}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}},
		}
	}
	weighted := object{"name": "app", "weight": 1}.with(mutations("weighted"))
	host := object{"name": "all", "domains": list{"*"}, "routes": list{
		object{"match": object{"prefix": "/"}, "route": object{"weighted_clusters": object{"clusters": list{weighted}}}}.with(mutations("route"))}}.with(mutations("host"))
	first, last := freeAddress(), freeAddress()
	startWithEnvoyConfig(t, list{
		envoyListener(first, withVirtualHosts(mutations("table"), host), nil),
		envoyListener(last, withVirtualHosts(mutations("table").with(object{"most_specific_header_mutations_wins": true}), host), nil),
	}, list{envoyCluster("app", app.address, nil)})
	for front, want := range map[string][2]string{first: {"weighted route host table", "table"}, last: {"weighted table host route", "route"}} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", ""); got.body != want[0] || got.header.Get("X-O") != want[1] {
			t.Errorf("x-a of the request is %q, x-o of the response %q, want %q and %q", got.body, got.header.Get("X-O"), want[0], want[1])
		}
	}
}

// TestEnvoyMirrorClusterHeader verifies that a header, which the route may add, names the cluster
// of the copies.
func TestEnvoyMirrorClusterHeader(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	address, copies := startShadow(t, "Http1")
	front := freeAddress()
	policies := object{"request_mirror_policies": list{object{"cluster_header": "x-mirror"}}}
	added := object{"request_headers_to_add": list{object{"header": object{"key": "x-mirror", "value": "shadow"}}}}
	startWithEnvoyConfig(t, list{envoyListener(front, nil, list{"*"},
		envoyRoute("/add", "app", policies).with(added), envoyRoute("/", "app", policies),
	)}, list{envoyCluster("app", app.address, nil), envoyCluster("shadow", address, nil)})
	for _, request := range [][2]string{{"/none", "x-other: 1"}, {"/unknown", "x-mirror: nowhere"}, {"/empty", "x-mirror: "}, {"/named", "x-mirror: shadow"}, {"/add", "x-other: 1"}} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+request[0], "", request[1]); got.status != 200 {
			t.Errorf("%s with %q: status %d, want 200", request[0], request[1], got.status)
		}
	}
	received := []string{strings.Fields(<-copies)[1], strings.Fields(<-copies)[1]}
	slices.Sort(received)
	if want := []string{"/add", "/named"}; !slices.Equal(received, want) {
		t.Errorf("copies of %q, want %q", received, want)
	}
}

// TestEnvoyHashRewrite verifies that requests whose rewritten header is equal go to one host.
func TestEnvoyHashRewrite(t *testing.T) {
	t.Parallel()
	var endpoints list
	for i := range 8 {
		u := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strconv.Itoa(i)) })
		host, port, _ := strings.Cut(u.address, ":")
		number, _ := strconv.Atoi(port)
		endpoints = append(endpoints, object{"endpoint": object{"address": object{"socket_address": object{"address": host, "port_value": number}}}})
	}
	front := freeAddress()
	policy := object{"hash_policy": list{object{"header": object{"header_name": "x-user", "regex_rewrite": object{
		"pattern": object{"regex": "^(user-[0-9]+)-.*$"}, "substitution": `\1`}}}}}
	startWithEnvoyConfig(t, list{envoyListener(front, nil, list{"*"}, envoyRoute("/", "ring", policy))}, list{
		object{"name": "ring", "type": "STATIC", "connect_timeout": "5s", "lb_policy": "RING_HASH", "load_assignment": object{
			"cluster_name": "ring", "endpoints": list{object{"lb_endpoints": endpoints}}}}})
	hosts := make(map[string]bool) // of all users
	for user := range 20 {
		name := fmt.Sprintf("user-%d", user)
		want := sendRequest(t, newClient(t), "GET", "http://"+front+"/", "", "x-user: "+name).body
		hosts[want] = true
		for _, suffix := range []string{"-a", "-b", "-c"} {
			if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", "", "x-user: "+name+suffix).body; got != want {
				t.Errorf("%s%s: host %s, want %s", name, suffix, got, want)
			}
		}
	}
	if len(hosts) < 2 {
		t.Errorf("all users have the same host")
	}
}
