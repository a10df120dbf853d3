package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// startOrigDstProxy runs Weft on loopback with an ORIGINAL_DST cluster. The header x-dst names the
// host. Without it the host is the original destination of the connection.
func startOrigDstProxy(t *testing.T, extra object) (w *weft, web, rpc string) {
	t.Helper()
	web, rpc = freeAddress(), freeAddress()
	w = startWeft(t, setup{
		listeners: list{
			networkListener("web", web, object{"type": "proxy", "config": object{
				"downstream_protocol": "Http1,Http2", "upstream_protocol": "Http1", "router_config_name": "all"}}),
			listenDubbo("rpc", rpc),
		},
		tables: list{routeTable("all", routeTo("/", "original-dst")), routeTable("rpc", routeWhen("original-dst", "service~.*"))},
		clusters: list{object{"name": "original-dst", "type": "ORIGINAL_DST", "connect_timeout": "1s",
			"original_dst_lb_config": object{"use_header": true, "header_name": "X-Dst"}}.with(extra)},
	}.config())
	return w, web, rpc
}

func TestOriginalDstHeader(t *testing.T) {
	t.Parallel()
	first, second := startUpstream(t, respondWith("first")), startUpstream(t, respondWith("second"))
	w, web, _ := startOrigDstProxy(t, nil)
	h2c := &http.Transport{Protocols: new(http.Protocols)}
	h2c.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2c.CloseIdleConnections)
	dead := freeAddress()
	for protocol, c := range map[string]*http.Client{
		"HTTP/1.1": newClient(t),
		"HTTP/2":   {Transport: h2c, Timeout: waitTimeout},
	} {
		for _, tt := range []struct {
			name   string
			fields []string
			status int
			body   string
		}{
			{"first host", []string{"x-dst: " + first.address}, 200, "first"},
			{"second host", []string{"X-Dst: " + second.address}, 200, "second"},
			{"first host, second request", []string{"x-dst: " + first.address}, 200, "first"},
			{"no listener at the destination", []string{"x-dst: " + dead}, 502, ""},
			{"host name", []string{"x-dst: localhost:80"}, 400, ""},
			{"empty header", []string{"x-dst: "}, 400, ""},
			{"no header on a direct connection", nil, 502, ""},
			{"address of Weft", []string{"x-dst: " + web}, 508, ""},
		} {
			got := sendRequest(t, c, "GET", "http://"+web+"/", "", tt.fields...)
			if got.status != tt.status || tt.body != "" && strings.TrimSpace(got.body) != tt.body {
				t.Errorf("%s: %s: %d %q, want %d %q", protocol, tt.name, got.status, got.body, tt.status, tt.body)
			}
		}
	}
	for reason, want := range map[string]float64{"malformed_destination": 4, "no_destination": 2, "connect_failure": 2, "loop": 2} {
		if got := w.metric("weft_listener_request_failures_total", `listener="web"`, `reason="`+reason+`"`); got != want {
			t.Errorf("%v requests failed for %s, want %v", got, reason, want)
		}
	}
}

func TestOriginalDstAttachment(t *testing.T) {
	t.Parallel()
	east, west := startProvider(t, "east", nil), startProvider(t, "west", nil)
	w, _, rpc := startOrigDstProxy(t, object{"cleanup_interval": "50ms"})
	c := newConsumer(t, rpc)
	call := func(dst string) invocation {
		return invocation{service: "com.shop.Orders", method: "find", attachments: []string{"x-dst: " + dst}}
	}
	for range 3 {
		for name, p := range map[string]*provider{"east": east, "west": west} {
			if got := c.call(call(p.address)); got.status != dubboOK || got.text != name {
				t.Errorf("call for %s: %+v, want %s", name, got, name)
			}
		}
	}
	if got := c.call(call("nowhere")); got.status == dubboOK || !strings.Contains(got.text, "destination") {
		t.Errorf("call without destination: %+v", got)
	}
	eventually(t, "idle destinations are removed", func() bool {
		return !strings.Contains(w.adminGet("/clusters"), east.address) && !strings.Contains(w.adminGet("/clusters"), west.address)
	})
	if got := c.call(call(east.address)); got.text != "east" {
		t.Errorf("call for a removed destination: %+v, want \"east\"", got)
	}
}
