//go:build !noxds

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/inspect"
	"github.com/weft-proxy/weft/pkg/proxy"
)

// pagesBootstrap is an Envoy bootstrap with a health check filter, a runtime and a TLS context.
const pagesBootstrap = `{
  "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}},
  "layered_runtime": {"layers": [{"name": "base", "static_layer": {"a": {"b": 1}}}, {"name": "admin", "admin_layer": {}}]},
  "static_resources": {
    "listeners": [{
      "name": "in", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
      "filter_chains": [{"filters": [{"name": "hcm", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in",
        "route_config": {"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
          {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "hi"}}}]}]},
        "http_filters": [
          {"name": "hc", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck", "pass_through_mode": false,
            "headers": [{"name": ":path", "string_match": {"exact": "/hc"}}]}},
          {"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]
    }],
    "clusters": [{"name": "c", "type": "STATIC",
      "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 9}}}}]}]},
      "transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"}}}]
  }
}`

// adminPage requests a page of the admin port at a unix socket, and returns the status and the body.
func adminPage(t *testing.T, socket, method, page string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	return request(t, &client, method, "http://localhost"+page, nil)
}

// request sends a request and returns the status and the body. It copies the header to h, unless h
// is nil.
func request(t *testing.T, client *http.Client, method, url string, h *http.Header) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		*h = response.Header
		if response.Close { // the client removes the field
			h.Set("Connection", "close")
		}
	}
	return response.StatusCode, string(content)
}

// TestEnvoyPages verifies the sources of the pages in Envoy's formats.
func TestEnvoyPages(t *testing.T) {
	address := startWeft(t, pagesBootstrap)
	for page, want := range map[string]string{
		"/certs":               `{"certificates":[{"ca_cert":[],"cert_chain":[]}]}`,
		"/runtime":             `{"entries":{"a.b":{"final_value":"1","layer_values":["1",""]}},"layers":["base","admin"]}`,
		"/init_dump":           `{}`,
		"/hot_restart_version": `disabled`,
	} {
		status, body := adminPage(t, address, "GET", page)
		if got := strings.Join(strings.Fields(body), ""); status != 200 || got != want {
			t.Errorf("%s: %d %s, want %s", page, status, got, want)
		}
	}
	var memory inspect.EnvoyMemory
	a := adminClient{address: address}
	if err := a.get(t.Context(), "/memory", nil, &memory); err != nil || memory.Allocated == 0 || memory.Physical < memory.Allocated {
		t.Errorf("/memory: %+v, %v", memory, err)
	}
}

// TestHealthCheckCommands verifies the effect of /healthcheck/fail and /healthcheck/ok on /ready,
// /server_info and the health check filter.
func TestHealthCheckCommands(t *testing.T) {
	address := startWeft(t, pagesBootstrap)
	a := adminClient{address: address}
	var listeners []proxy.ListenerStatus
	if err := a.get(t.Context(), "/listeners", nil, &listeners); err != nil || len(listeners) != 1 {
		t.Fatalf("listeners %+v, %v", listeners, err)
	}
	type facts struct {
		Ready, Check, Other int
		State, Notice       string
		Closes              bool
	}
	read := func() (f facts) {
		t.Helper()
		f.Ready, _ = adminPage(t, address, "GET", "/ready")
		var info inspect.ServerInfo
		if err := a.get(t.Context(), "/server_info", nil, &info); err != nil {
			t.Fatal(err)
		}
		f.State = info.State
		client := http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		var h http.Header
		f.Check, _ = request(t, &client, "GET", "http://"+listeners[0].Address+"/hc", nil)
		f.Other, _ = request(t, &client, "GET", "http://"+listeners[0].Address+"/", &h)
		f.Notice, f.Closes = h.Get("x-envoy-immediate-health-check-fail"), h.Get("Connection") == "close"
		return f
	}
	healthy := facts{Ready: 200, Check: 200, Other: 200, State: "LIVE"}
	for _, step := range []struct {
		command string
		want    facts
	}{
		{"", healthy},
		{"/healthcheck/fail", facts{Ready: 503, Check: 503, Other: 200, State: "DRAINING", Notice: "true", Closes: true}},
		{"/healthcheck/ok", healthy},
	} {
		if step.command != "" {
			if status, body := adminPage(t, address, "POST", step.command); status != 200 || body != "OK\n" {
				t.Fatalf("%s: %d %q", step.command, status, body)
			}
		}
		if diff := cmp.Diff(step.want, read()); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", step.command, diff)
		}
	}
}

// TestQuit verifies that /quitquitquit ends the process after its response.
func TestQuit(t *testing.T) {
	address := startWeft(t, pagesBootstrap)
	if status, body := adminPage(t, address, "POST", "/quitquitquit"); status != 200 || body != "OK\n" {
		t.Errorf("status %d, body %q, want 200 and OK", status, body)
	}
	waitFor(t, "the process ends", func() bool {
		conn, err := net.Dial("unix", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}
