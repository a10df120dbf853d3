package e2e

import (
	"strings"
	"testing"
)

// TestRouteRewritesCall verifies that the provider gets the call as the route rewrites it, without
// other changes.
func TestRouteRewritesCall(t *testing.T) {
	t.Parallel()
	add := func(key, value string) object { return object{"header": object{"key": key, "value": value}} }
	shop := invocation{"org.example.Shop", "buy", "1.0.0", []string{"path: org.example.Shop", "interface: org.example.Shop", "group: blue", "trace: 7"}}
	with := func(change func(*invocation)) invocation {
		inv := shop
		inv.attachments = append([]string(nil), shop.attachments...)
		change(&inv)
		return inv
	}
	toBank := func(inv *invocation) {
		inv.service, inv.attachments[0], inv.attachments[1] = "org.example.Bank", "path: org.example.Bank", "interface: org.example.Bank"
	}
	for _, c := range []struct {
		name   string
		match  object
		action object
		want   invocation
	}{
		{"prefix_rewrite changes the service", object{"prefix": "/org.example.Shop/"}, object{"prefix_rewrite": "/org.example.Bank/"}, with(toBank)},
		{"prefix_rewrite of the entire path changes the method", object{"path": "/org.example.Shop/buy"}, object{"prefix_rewrite": "/org.example.Shop/sell"},
			with(func(inv *invocation) { inv.method = "sell" })},
		{"regex_rewrite changes both", object{"prefix": "/"},
			object{"regex_rewrite": object{"pattern": object{"regex": `Shop/(\w+)$`}, "substitution": `Bank/\1Back`}},
			with(func(inv *invocation) { toBank(inv); inv.method = "buyBack" })},
		{"a rewrite to an empty method has no effect", object{"prefix": "/"},
			object{"regex_rewrite": object{"pattern": object{"regex": ".*"}, "substitution": "/shop"}}, shop},
		{"host_rewrite has no effect", object{"prefix": "/"}, object{"host_rewrite": "shop.example"}, shop},
		{"service", object{"prefix": "/"}, object{"request_headers_to_add": list{add("service", "org.example.Bank")}}, with(toBank)},
		{"method", object{"prefix": "/"}, object{"request_headers_to_add": list{add("method", "sell")}}, with(func(inv *invocation) { inv.method = "sell" })},
		{"version and group", object{"prefix": "/"}, object{"request_headers_to_add": list{add("version", "2.0.0"), add("group", "green")}},
			with(func(inv *invocation) { inv.version, inv.attachments[2] = "2.0.0", "group: green" })},
		{"added attachment with the same name", object{"prefix": "/"}, object{"request_headers_to_add": list{add("trace", "8")}},
			with(func(inv *invocation) { inv.attachments = append(inv.attachments, "trace: 8") })},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan []byte, 1)
			p := startProvider(t, "shop", func(frame []byte, _ int64) byte { arrived <- frame; return dubboOK })
			address, _ := rpcProxy(t, map[string]*provider{"shop": p},
				object{"match": c.match, "route": object{"cluster_name": "shop"}.with(c.action)})
			if got := newConsumer(t, address).call(shop); got.status != dubboOK {
				t.Fatalf("%d %q, want dubboOK", got.status, got.text)
			}
			if diff := diffIgnoringID(<-arrived, c.want.frame(0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCheckRejectsHTTPActionsForRPC verifies that check rejects a redirect or a direct response
// on a route that only RPC can reach, and names the key.
func TestCheckRejectsHTTPActionsForRPC(t *testing.T) {
	t.Parallel()
	for key, response := range map[string]object{
		"redirect":        {"path_redirect": "/new"},
		"direct_response": {"status": 404, "body": "gone"},
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			text := setup{
				listeners: list{listenDubbo("front", freeAddress())},
				tables:    list{routeTable("front", object{"match": object{"prefix": "/"}, key: response})},
			}.config().encode(t)
			_, stderr, status := command(t, "check", "-c", writeFile(t, "weft.json", string(text)))
			if status != 1 || !strings.Contains(stderr, "routers[0]."+key+": "+key+" is an HTTP response") {
				t.Errorf("weft check: exit status %d, %q; want 1 and an error about %s", status, stderr, key)
			}
		})
	}
}
