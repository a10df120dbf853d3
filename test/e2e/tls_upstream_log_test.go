package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
)

// TestAccessLogUpstreamTLS verifies the TLS fields of hosts in the access log, for each
// protocol. For a plaintext host they are empty.
func TestAccessLogUpstreamTLS(t *testing.T) {
	t.Parallel()
	certs := newCertDir(t)
	certs.issue("server", testpki.Spec{CommonName: "back", DNS: []string{"app.shop"}, URIs: []string{"spiffe://shop/back"}})
	front, back, log := freeAddress(), freeAddress(), certs.path("access.log")
	dubbo, web, grpc := startProvider(t, "provider", nil), startUpstream(t, respondWith("web")), serveGRPC(t, "")
	w := startWeft(t, setup{
		listeners: list{
			networkListener("front", front, object{"type": "proxy", "config": object{"downstream_protocol": "Auto", "router_config_name": "front"}},
				object{"access_logs": list{object{"log_path": log, "log_format": "%protocol% %upstream_tls_version% %upstream_tls_resumed% %upstream_peer_uri_san% %upstream_peer_dns_san%"}}}),
			tlsListener("back", back, certs.context("server", nil)),
		},
		tables: list{
			routeTable("front", routeTo("/plain", "web"), routeTo("/", "back")),
			routeTable("back", routeTo("/shop.Orders/", "grpc"), routeTo("/dubbo.Orders", "dubbo"), routeTo("/", "web")),
		},
		clusters: list{
			cluster("back", object{"tls_context": object{"status": true, "ca_cert": certs.path("ca.pem"), "server_name": "app.shop"}}, back),
			cluster("dubbo", nil, dubbo.address), cluster("grpc", nil, grpc.address), cluster("web", nil, web.address),
		},
	}.config())
	for _, path := range []string{"/", "/plain"} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+front+path, ""); got.status != 200 {
			t.Errorf("%s: %d, want 200", path, got.status)
		}
	}
	transport := &http.Transport{Protocols: httpProtocols("Http2")}
	defer transport.CloseIdleConnections()
	if got := callGRPC(t, &http.Client{Transport: transport, Timeout: waitTimeout}, front, "/shop.Orders/Get"); got != "0" {
		t.Errorf("gRPC: status %q, want 0", got)
	}
	if got := newConsumer(t, front).call(invocation{service: "dubbo.Orders", method: "get"}); got.text != "provider" {
		t.Errorf("Dubbo: %+v, want a response of the provider", got)
	}
	w.signal(os.Interrupt)
	w.awaitExit(waitTimeout)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"Http1", "Http2", "dubbo"} {
		count := 0
		for _, resumed := range []string{"true", "false"} {
			count += strings.Count(string(text), protocol+" TLSv1.3 "+resumed+" spiffe://shop/back app.shop\n")
		}
		if count != 1 {
			t.Errorf("%d lines have the host of %s, want one:\n%s", count, protocol, text)
		}
	}
	if !strings.Contains(string(text), "Http1 - - - -\n") {
		t.Errorf("no line for a plaintext host:\n%s", text)
	}
}
