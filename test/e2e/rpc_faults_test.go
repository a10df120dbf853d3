package e2e

import (
	"strings"
	"testing"
)

// TestLocalReplyMetrics verifies that metrics count a local reply with the status and the
// protocol that its client received.
func TestLocalReplyMetrics(t *testing.T) {
	t.Parallel()
	address, w := rpcFilterProxy(t, list{}, map[string]*provider{"shop": startProvider(t, "shop", nil)}, routeWhen("shop", "method: buy"))
	client := newConsumer(t, address)
	for _, method := range []string{"buy", "sell", "sell"} {
		client.call(invocation{service: "org.example.Shop", method: method})
	}
	eventually(t, "the calls are counted", func() bool {
		return w.metric("weft_listener_requests_total", `listener="front"`, `protocol="dubbo"`) == 3
	})
	for _, c := range []struct {
		method, code string
		want         float64
	}{{"buy", "20", 1}, {"sell", "60", 2}, {"sell", "none", 0}} {
		if got := w.metric("weft_rpc_requests_total", `method="`+c.method+`"`, `code="`+c.code+`"`); got != c.want {
			t.Errorf("%v calls of %s with code %s, want %v", got, c.method, c.code, c.want)
		}
	}
	for protocol, want := range map[string]float64{"dubbo": 3, "Http1": 0} {
		if got := w.metric("weft_listener_requests_total", `listener="front"`, `protocol="`+protocol+`"`); got != want {
			t.Errorf("%v requests in %s, want %v", got, protocol, want)
		}
	}
}

// TestHTTPOnlyResponseForRPC verifies the error that an RPC client gets from a shared route whose
// response exists in HTTP only.
func TestHTTPOnlyResponseForRPC(t *testing.T) {
	t.Parallel()
	address := freeAddress()
	startWeft(t, setup{
		listeners: list{networkListener("front", address, object{"type": "proxy", "config": object{
			"downstream_protocol": "Auto", "upstream_protocol": "Auto", "router_config_name": "front"}})},
		tables: list{object{"router_config_name": "front", "virtual_hosts": list{object{"name": "all", "domains": list{"*"}, "routers": list{
			object{"match": object{"prefix": "/"}, "redirect": object{"path_redirect": "/other"}}}}}}},
	}.config())
	got := newConsumer(t, address).call(invocation{service: "org.example.Shop", method: "buy"})
	const want = "a response with HTTP status 301 cannot be sent in dubbo"
	if got.status != 40 || !strings.Contains(got.text, want) {
		t.Errorf("status %d, %q; want 40 and %q", got.status, got.text, want)
	}
}
