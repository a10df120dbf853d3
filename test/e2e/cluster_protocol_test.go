package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// startBothHTTPVersions starts an upstream of HTTP/1.1 and HTTP/2 whose responses describe the
// request.
func startBothHTTPVersions(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(describeRequestAs("app"))
	s.Config.Protocols = httpProtocols("Http1")
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// protocolCase is the upstream_protocol of a listener, a cluster and a route, and the
// expected protocol at the upstream. "" means not configured.
type protocolCase struct{ listener, cluster, route, want string }

// TestUpstreamProtocolPrecedence verifies the precedence of upstream_protocol: route, then cluster,
// then listener. It covers clients of both HTTP versions and every type of cluster picker.
func TestUpstreamProtocolPrecedence(t *testing.T) {
	t.Parallel()
	app := startBothHTTPVersions(t)
	var s setup
	tests := map[string]protocolCase{ // by address of the listener
		freeAddress(): {"", "", "", "as client"},
		freeAddress(): {"Auto", "Auto", "", "as client"},
		freeAddress(): {"Http2", "", "", "Http2"},
		freeAddress(): {"", "Http2", "", "Http2"},
		freeAddress(): {"", "options", "", "Http2"},
		freeAddress(): {"", "Http1", "", "Http1"},
		freeAddress(): {"Http1", "Http2", "", "Http2"},
		freeAddress(): {"Http2", "Http1", "", "Http1"},
		freeAddress(): {"Http2", "Auto", "", "Http2"},
		freeAddress(): {"Http1", "Http1", "Http2", "Http2"},
		freeAddress(): {"Http2", "Http2", "Http1", "Http1"},
		freeAddress(): {"", "Http2", "Auto", "Http2"},
	}
	for address, test := range tests {
		name := fmt.Sprintf("listener %q, cluster %q, route %q", test.listener, test.cluster, test.route)
		proxy := object{"downstream_protocol": "Auto", "router_config_name": name}
		if test.listener != "" {
			proxy["upstream_protocol"] = test.listener
		}
		extra, action := object{}, object{}
		switch test.cluster {
		case "":
		case "options":
			extra["http2_protocol_options"] = object{}
		default:
			extra["upstream_protocol"] = test.cluster
		}
		if test.route != "" {
			action["upstream_protocol"] = test.route
		}
		s.listeners = append(s.listeners, networkListener(name, address, object{"type": "proxy", "config": proxy}))
		s.clusters = append(s.clusters, cluster(name, extra, app))
		weighted := object{"weighted_clusters": list{object{"cluster": object{"name": name, "weight": 1}}}}.with(action)
		s.tables = append(s.tables, routeTable(name,
			routeTo("/named", name, action),
			object{"match": object{"prefix": "/weighted"}, "route": weighted},
			object{"match": object{"prefix": "/chosen"}, "route": object{"cluster_variable": "request_header_x-cluster"}.with(action)}))
	}
	startWeft(t, s.config())
	for address, test := range tests {
		name := fmt.Sprintf("listener %q, cluster %q, route %q", test.listener, test.cluster, test.route)
		for _, client := range []string{"Http1", "Http2"} {
			c := newClient(t)
			c.Transport.(*http.Transport).Protocols = httpProtocols(client)
			want := test.want
			if want == "as client" {
				want = client
			}
			for _, path := range []string{"/named", "/weighted", "/chosen"} {
				got := sendRequest(t, c, "GET", "http://"+address+path, "", "x-cluster: "+name)
				if v := "Http" + got.header.Get("X-Version"); got.status != 200 || v != want {
					t.Errorf("%s, to %s from %s: %d in %q, want %s", name, path, client, got.status, v, want)
				}
			}
		}
	}
}

// TestWebSocketThroughClustersWithProtocol verifies tunnels between each pair of HTTP versions.
func TestWebSocketThroughClustersWithProtocol(t *testing.T) {
	t.Parallel()
	for _, up := range []string{"Http1", "Http2"} {
		for _, down := range []string{"Http1", "Http2"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				t.Parallel()
				address, ends := startTunnelUpstream(t, up)
				front := freeAddress()
				startWeft(t, setup{
					listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{"downstream_protocol": down, "router_config_name": "front"}})},
					tables:    list{routeTable("front", routeTo("/", "app"))},
					clusters:  list{cluster("app", object{"upstream_protocol": up}, address)},
				}.config())
				client := openTunnel(t, front, down)
				app := <-ends
				checkPasses(t, client, app, "to the application")
				checkPasses(t, app, client, "to the client")
			})
		}
	}
}

// TestUntranslatableRequestIsRejected verifies that a request that the protocol of its cluster
// cannot carry gets an error in the protocol of the client. The listener accepts every protocol,
// and each cluster has one.
func TestUntranslatableRequestIsRejected(t *testing.T) {
	t.Parallel()
	app := startBothHTTPVersions(t)
	shop := startProvider(t, "shop", nil)
	front := freeAddress()
	byHeader := object{"match": object{"prefix": "/"}, "route": object{"cluster_variable": "request_header_x-cluster"}}
	w := startWeft(t, setup{
		listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{"downstream_protocol": "Auto", "router_config_name": "front"}})},
		tables:    list{routeTable("front", byHeader)},
		clusters: list{
			cluster("http1", object{"upstream_protocol": "Http1"}, app),
			cluster("http2", object{"upstream_protocol": "Http2"}, app),
			cluster("shop", object{"upstream_protocol": "dubbo"}, shop.address),
		},
	}.config())
	awaitRejected := func(cluster, protocol string, want float64) {
		t.Helper()
		labels := []string{fmt.Sprintf("cluster=%q", cluster), fmt.Sprintf("protocol=%q", protocol), `reason="not_implemented"`}
		eventually(t, fmt.Sprintf("%v requests in %s counted as rejected by %s", want, protocol, cluster), func() bool {
			return w.metric("weft_cluster_request_failures_total", labels...) == want
		})
	}
	t.Run("gRPC", func(t *testing.T) {
		p := &protocolPair{downstream: "Http2", upstream: "Http2", grpc: true}
		c := newClient(t)
		c.Transport.(*http.Transport).Protocols = httpProtocols("Http2")
		for cluster, code := range map[string]string{"http1": "12", "http2": "0", "shop": "12"} {
			p.sendRequest(t, c, "http://"+front, &requestCase{path: "/shop.Shop/Buy", fields: []string{"x-cluster: " + cluster}, requestBody: "a call", code: code})
		}
		awaitRejected("http1", "Http2", 1)
		awaitRejected("shop", "Http2", 1)
	})
	t.Run("HTTP", func(t *testing.T) {
		for cluster, status := range map[string]int{"http1": 200, "http2": 200, "shop": 501} {
			if got := sendRequest(t, newClient(t), "GET", "http://"+front+"/", "", "x-cluster: "+cluster); got.status != status {
				t.Errorf("to %s: %d, want %d", cluster, got.status, status)
			}
		}
		awaitRejected("shop", "Http1", 1)
	})
	t.Run("Dubbo", func(t *testing.T) {
		client := newConsumer(t, front)
		for cluster, want := range map[string]dubboResponse{
			"http1": {status: 40, text: "weft: not implemented [org.example.Shop.buy], listener front, cluster http1"},
			"http2": {status: 40, text: "weft: not implemented [org.example.Shop.buy], listener front, cluster http2"},
			"shop":  {status: dubboOK, text: "shop"},
		} {
			got := client.call(invocation{service: "org.example.Shop", method: "buy", attachments: []string{"x-cluster: " + cluster}})
			if got.status != want.status || !strings.Contains(got.text, want.text) {
				t.Errorf("to %s: status %d, %q; want %d, %q", cluster, got.status, got.text, want.status, want.text)
			}
		}
		awaitRejected("http1", "dubbo", 1)
		awaitRejected("http2", "dubbo", 1)
	})
	for _, cluster := range []string{"http1", "http2", "shop"} {
		if n := w.metric("weft_cluster_requests_active", fmt.Sprintf("cluster=%q", cluster)); n != 0 {
			t.Errorf("%v requests are in flight in %s, want 0", n, cluster)
		}
	}
}
