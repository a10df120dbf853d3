package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// envoyListener returns a listener for an Envoy file: an HTTP connection manager with the fields of
// extra and the routes of one virtual host for domains.
func envoyListener(address string, extra object, domains list, routes ...object) object {
	host, port, _ := strings.Cut(address, ":")
	number, _ := strconv.Atoi(port)
	manager := object{
		"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "front",
		"route_config": object{"name": "routes", "validate_clusters": false, "virtual_hosts": list{
			object{"name": "all", "domains": domains, "routes": routes}}},
		"http_filters": list{object{"name": "router", "typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}},
	}.with(extra)
	return object{
		"name":          address,
		"address":       object{"socket_address": object{"address": host, "port_value": number}},
		"filter_chains": list{object{"filters": list{object{"name": "http", "typed_config": manager}}}},
	}
}

// envoyCluster returns a cluster with one host for an Envoy file.
func envoyCluster(name, address string, extra object) object {
	host, port, _ := strings.Cut(address, ":")
	number, _ := strconv.Atoi(port)
	return object{"name": name, "type": "STATIC", "connect_timeout": "5s", "load_assignment": object{
		"cluster_name": name, "endpoints": list{object{"lb_endpoints": list{object{"endpoint": object{
			"address": object{"socket_address": object{"address": host, "port_value": number}}}}}}},
	}}.with(extra)
}

// httpProtocolOptions returns the HttpProtocolOptions of a cluster for an Envoy file.
func httpProtocolOptions(options object) object {
	return object{"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
		"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"}.with(options)}}
}

// startWithEnvoyConfig starts Weft with an Envoy file.
func startWithEnvoyConfig(t *testing.T, listeners, clusters list) *weft {
	t.Helper()
	host, port, _ := strings.Cut(freeAddress(), ":")
	number, _ := strconv.Atoi(port)
	return startWeft(t, object{
		"admin":            object{"address": object{"socket_address": object{"address": host, "port_value": number}}},
		"static_resources": object{"listeners": listeners, "clusters": clusters},
	})
}

// envoyRoute returns a route for an Envoy file.
func envoyRoute(prefix, cluster string, extra object) object {
	return object{"match": object{"prefix": prefix}, "route": object{"cluster": cluster}.with(extra)}
}

// TestEnvoyRequestHeaders verifies which headers of a client reach the upstream: at the edge, from
// an internal address, and without use_remote_address.
func TestEnvoyRequestHeaders(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			w.Header()["Got-"+name] = values
		}
	})
	edge, internal, sidecar := freeAddress(), freeAddress(), freeAddress()
	local := object{"internal_address_config": object{"cidr_ranges": list{object{"address_prefix": "127.0.0.0", "prefix_len": 8}}}}
	route := envoyRoute("/", "app", nil)
	startWithEnvoyConfig(t, list{
		envoyListener(edge, object{"use_remote_address": true}, list{"*"}, route),
		envoyListener(internal, object{"use_remote_address": true}.with(local), list{"*"}, route),
		envoyListener(sidecar, nil, list{"*"}, route),
	}, list{envoyCluster("app", app.address, nil)})
	for _, test := range []struct {
		name, front string
		want        map[string]string // headers that the upstream received; "": none
	}{
		{"edge", edge, map[string]string{
			"X-Envoy-Internal": "", "X-Envoy-External-Address": "127.0.0.1", "X-Envoy-Retry-On": "", "X-Envoy-Force-Trace": "",
			"X-Envoy-Decorator-Operation": "", "X-Mosn-Global-Timeout": "", "X-Envoy-Upstream-Rq-Timeout-Ms": ""}},
		{"internal client", internal, map[string]string{
			"X-Envoy-Internal": "true", "X-Envoy-External-Address": "forged", "X-Request-Id": "forged", "X-Envoy-Force-Trace": "forged",
			"X-Envoy-Decorator-Operation": "forged", "X-Mosn-Global-Timeout": "", "X-Envoy-Retry-On": ""}},
		{"without use_remote_address", sidecar, map[string]string{
			"X-Envoy-Internal": "", "X-Envoy-External-Address": "forged", "X-Request-Id": "forged", "X-Envoy-Force-Trace": "",
			"X-Envoy-Decorator-Operation": "forged", "X-Mosn-Global-Timeout": "", "X-Envoy-Retry-On": ""}},
	} {
		var sent []string
		for name := range test.want {
			sent = append(sent, strings.ToLower(name)+": forged")
		}
		got := sendRequest(t, newClient(t), "GET", "http://"+test.front+"/", "", append(sent, "x-request-id: forged")...)
		for name, want := range test.want {
			if value := got.header.Get("Got-" + name); value != want {
				t.Errorf("%s: the upstream received %s %q, want %q", test.name, name, value, want)
			}
		}
		if id := got.header.Get("Got-X-Request-Id"); test.front == edge && (id == "forged" || len(id) != 36) {
			t.Errorf("%s: the upstream received x-request-id %q, want a new one of 36 characters", test.name, id)
		}
	}
}

// TestEnvoyRoutes verifies that paths, hosts, queries, redirects and missing clusters get the
// responses of Envoy 1.40.
func TestEnvoyRoutes(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	hsts := object{"response_headers_to_add": list{object{"header": object{"key": "strict-transport-security", "value": "max-age=1"}}}}
	front := freeAddress()
	domains := list{"a.test", "b.test:80", "c.test:*"}
	startWithEnvoyConfig(t, list{envoyListener(front, object{"normalize_path": true, "merge_slashes": true}, domains,
		object{"match": object{"prefix": "/redirect"}, "redirect": object{"host_redirect": "other.test"}}.with(hsts),
		object{"match": object{"prefix": "/direct"}, "direct_response": object{"status": 200}}.with(hsts),
		object{"match": object{"prefix": "/query", "query_parameters": list{object{"name": "q", "string_match": object{"exact": "b c"}}}}, "direct_response": object{"status": 201}},
		object{"match": object{"prefix": "/query", "query_parameters": list{object{"name": "q", "string_match": object{"exact": "b%20c"}}}}, "direct_response": object{"status": 202}},
		object{"match": object{"prefix": "/secure", "headers": list{object{"name": ":scheme", "string_match": object{"exact": "https"}}}}, "direct_response": object{"status": 203}},
		envoyRoute("/nowhere", "missing", nil),
		object{"match": object{"prefix": "/header"}, "route": object{"cluster_header": "x-cluster", "cluster_not_found_response_code": "NOT_FOUND"}},
		envoyRoute("/emptied", "app", object{"regex_rewrite": object{"pattern": object{"regex": "^/emptied.*"}, "substitution": ""}}),
		envoyRoute("/", "app", nil),
	)}, list{envoyCluster("app", app.address, nil)})
	const https = "x-forwarded-proto: https"
	for _, test := range []struct {
		path, host, field string
		status            int
		body, location    string
		hsts              bool
	}{
		{path: "/a%00b", status: 400, body: ""},
		{path: "/a%01b", status: 200, body: "/a%01b"},
		{path: "/a|b", status: 200, body: "/a%7Cb"},
		{path: "/a//b", status: 200, body: "/a/b"},
		{path: "///", status: 200, body: "//"},
		{path: "/x", host: "a.test:80", status: 404, body: ""},
		{path: "/x", host: "a.test.", status: 404, body: ""},
		{path: "/x", host: "b.test", status: 404, body: ""},
		{path: "/x", host: "b.test:80", status: 200, body: "/x"},
		{path: "/x", host: "c.test:1", status: 200, body: "/x"},
		{path: "/redirect", status: 301, location: "http://other.test/redirect", hsts: true},
		{path: "/redirect", field: https, status: 301, location: "https://other.test/redirect", hsts: true},
		{path: "/direct", status: 200, hsts: true},
		{path: "/secure", status: 200, body: "/secure"},
		{path: "/secure", field: https, status: 203},
		{path: "/query?q=b%20c", status: 202},
		{path: "/nowhere", status: 503, body: ""},
		{path: "/header", status: 404, body: ""},
		{path: "/header", field: "x-cluster: app", status: 200, body: "/header"},
		{path: "/header", field: "x-cluster: missing", status: 404, body: ""},
		{path: "/emptied/a?b", status: 200, body: "/emptied/a?b"},
	} {
		host := test.host
		if host == "" {
			host = "a.test"
		}
		head := fmt.Sprintf("GET %s HTTP/1.1\nHost: %s\nConnection: close\n", test.path, host)
		if test.field != "" {
			head += test.field + "\n"
		}
		got, body := dialRaw(t, front).send(head + "\n").readResponse("GET")
		if got.StatusCode != test.status || body != test.body || got.Header.Get("Location") != test.location ||
			(got.Header.Get("Strict-Transport-Security") != "") != test.hsts {
			t.Errorf("%s of %s with %q: %d %q, Location %q, HSTS %q; want %d %q, %q, %v", test.path, host, test.field, got.StatusCode, body,
				got.Header.Get("Location"), got.Header.Get("Strict-Transport-Security"), test.status, test.body, test.location, test.hsts)
		}
	}
}

// TestEnvoyUseDownstreamProtocol verifies that use_downstream_protocol_config, which Istio sets for
// inbound clusters, uses the HTTP version of the client. It also verifies that an HTTP/1.1 cluster
// gets gRPC calls unchanged.
func TestEnvoyUseDownstreamProtocol(t *testing.T) {
	t.Parallel()
	app := startBothHTTPVersions(t)
	plain := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { // speaks gRPC over HTTP/1.1
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "grpc-status")
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("X-Version", strconv.Itoa(r.ProtoMajor))
		w.Header().Set("X-TE", r.Header.Get("TE"))
		_, _ = w.Write(body)
		w.Header().Set("grpc-status", "0")
	})
	front := freeAddress()
	startWithEnvoyConfig(t, list{envoyListener(front, nil, list{"*"}, envoyRoute("/follows", "follows", nil), envoyRoute("/", "plain", nil))}, list{
		envoyCluster("follows", app, httpProtocolOptions(object{"use_downstream_protocol_config": object{"http_protocol_options": object{}, "http2_protocol_options": object{}}})),
		envoyCluster("plain", plain.address, nil),
	})
	for _, client := range []string{"Http1", "Http2"} {
		c := newClient(t)
		c.Transport.(*http.Transport).Protocols = httpProtocols(client)
		got := sendRequest(t, c, "GET", "http://"+front+"/follows", "")
		if v := "Http" + got.header.Get("X-Version"); got.status != 200 || v != client {
			t.Errorf("from %s: %d in %q, want the client's version", client, got.status, v)
		}
	}
	c := newClient(t)
	c.Transport.(*http.Transport).Protocols = httpProtocols("Http2")
	request, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+front+"/shop.Shop/Buy", strings.NewReader("a call"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != 200 || string(body) != "a call" || response.Trailer.Get("Grpc-Status") != "0" ||
		response.Header.Get("X-Version") != "1" || response.Header.Get("X-TE") != "trailers" {
		t.Errorf("gRPC to an HTTP/1.1 host: %d %q, header %v, trailer %v; want 200 \"a call\", X-Version 1, X-TE trailers, Grpc-Status 0",
			response.StatusCode, body, response.Header, response.Trailer)
	}
}

// TestEnvoyStreamIdleTimeout verifies that stream_idle_timeout ends an HTTP/1.1 request whose
// host sends nothing, although its route has no timeout, and a request that never becomes complete.
func TestEnvoyStreamIdleTimeout(t *testing.T) {
	t.Parallel()
	app := startHoldingUpstream(t)
	front := freeAddress()
	startWithEnvoyConfig(t, list{envoyListener(front, object{"stream_idle_timeout": "0.3s"}, list{"*"}, envoyRoute("/", "app", object{"timeout": "0s"}))},
		list{envoyCluster("app", app.address, nil)})
	if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", ""); got.status != 504 || got.took < 250*time.Millisecond {
		t.Errorf("%d after %v, want 504 after 300ms", got.status, got.took)
	}
	conn, err := net.Dial("tcp", front)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	_ = conn.SetDeadline(start.Add(waitTimeout)) // without a response the read fails
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if elapsed := time.Since(start); response.StatusCode != 408 || elapsed < 250*time.Millisecond {
		t.Errorf("incomplete request: %d after %v, want 408 after 300ms", response.StatusCode, elapsed)
	}
}
