package e2e

import (
	"strings"
	"testing"
	"time"
)

// rpcFilterProxy runs a Dubbo proxy with stream filters. Its route table has one virtual host whose
// domain is a service, as control planes write it.
func rpcFilterProxy(t *testing.T, filters list, providers map[string]*provider, routes ...object) (address string, w *weft) {
	t.Helper()
	address = freeAddress()
	clusters := list{}
	for name, p := range providers {
		clusters = append(clusters, cluster(name, nil, p.address))
	}
	w = startWeft(t, setup{
		listeners: list{listenDubbo("front", address, object{"stream_filters": filters})},
		tables: list{object{"router_config_name": "front", "virtual_hosts": list{object{
			"name": "shop", "domains": list{"org.example.Shop"}, "routers": routes}}}},
		clusters: clusters,
	}.config())
	return address, w
}

// TestDubboStreamMakesHTTPRoutesMatch verifies that dubbo_stream makes HTTP routes match calls. The
// domain is the service, the path is "/", and the labels of the pod are headers. The provider gets
// the original call.
func TestDubboStreamMakesHTTPRoutesMatch(t *testing.T) {
	t.Parallel()
	exact := object{"match": object{"path": "/"}, "route": object{"cluster_name": "shop"}}
	tester := object{"match": object{"prefix": "/", "headers": list{object{"name": "app", "value": "tester"}, object{"name": "method", "value": "buy"}}},
		"route": object{"cluster_name": "canary"}}
	labels := writeFile(t, "labels", "app=\"tester\"\ngroup=\"blue\"\n")
	filter := func(config object) list { return list{streamFilter("dubbo_stream", config)} }
	for _, c := range []struct {
		name     string
		filters  list
		method   string
		want     byte
		provider string
	}{
		{"no match without the filter", list{}, "buy", dubboNotFound, ""},
		{"format of MOSN", filter(object{"subset": "group"}), "buy", dubboOK, "shop"},
		{"with labels", filter(object{"subset": "group", "pod_labels_file": labels}), "buy", dubboOK, "canary"},
		{"with labels, another method", filter(object{"pod_labels_file": labels}), "sell", dubboOK, "shop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan []byte, 1)
			response := func(frame []byte, _ int64) byte { arrived <- frame; return dubboOK }
			address, _ := rpcFilterProxy(t, c.filters, map[string]*provider{
				"shop": startProvider(t, "shop", response), "canary": startProvider(t, "canary", response)}, tester, exact)
			call := invocation{service: "org.example.Shop", method: c.method, attachments: []string{"interface: org.example.Shop"}}
			got := newConsumer(t, address).call(call)
			if got.status != c.want || c.want == dubboOK && got.text != c.provider {
				t.Fatalf("%d %q, want %d of %s", got.status, got.text, c.want, c.provider)
			}
			if c.want != dubboOK {
				return
			}
			if diff := diffIgnoringID(<-arrived, call.frame(0)); diff != "" {
				t.Errorf("the frame was changed: %s", diff)
			}
		})
	}
}

func TestDubboStreamCountsBySubset(t *testing.T) {
	t.Parallel()
	labels := writeFile(t, "labels", "group=\"blue\"\n")
	failing := startProvider(t, "shop", func(frame []byte, _ int64) byte {
		if strings.Contains(string(frame), "sell") {
			return dubboErred
		}
		return dubboOK
	})
	address, w := rpcFilterProxy(t, list{streamFilter("dubbo_stream", object{"subset": "group", "pod_labels_file": labels})},
		map[string]*provider{"shop": failing}, routeTo("/", "shop"))
	client := newConsumer(t, address)
	for _, c := range []struct{ service, method string }{
		{"org.example.Shop", "buy"}, {"org.example.Shop", "buy"}, {"org.example.Shop", "sell"}, {"org.example.Bank", "pay"},
	} {
		client.call(invocation{service: c.service, method: c.method})
	}
	for name, want := range map[string]float64{"requests": 4, "successes": 2, "failures": 2} {
		if got := w.metric("weft_filter_dubbo_stream_"+name+"_total", `subset="blue"`); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := w.metric("weft_rpc_requests_total", `service="org.example.Shop"`, `method="buy"`); got != 2 {
		t.Errorf("the metrics by method count %v calls, want 2", got)
	}
	if got := w.metric("weft_route_requests_total", `virtual_host="shop"`); got != 3 {
		t.Errorf("the virtual host of the service got %v calls, want 3", got)
	}
}

// TestFaultDelayIsPerCall verifies that the delay of a call does not delay other calls that
// arrived in the same read of its connection.
func TestFaultDelayIsPerCall(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second
	address, _ := rpcFilterProxy(t, list{streamFilter("fault", object{
		"delay":   object{"fixed_delay": delay.String(), "percentage": 100},
		"headers": list{object{"name": "method", "value": "slow"}},
	})}, map[string]*provider{"shop": startProvider(t, "shop", nil)}, routeWhen("shop", "service: .*"))
	client := newConsumer(t, address)
	start := time.Now()
	client.send(
		invocation{service: "org.example.Shop", method: "slow"},
		invocation{service: "org.example.Shop", method: "buy"},
		invocation{service: "org.example.Shop", method: "slow"},
		invocation{service: "org.example.Shop", method: "sell"},
	)
	for n := range 4 {
		got := client.receive()
		slow := got.id%2 == 1
		if elapsed := time.Since(start); got.status != dubboOK || slow != (n >= 2) || slow && elapsed < delay {
			t.Errorf("response %d belongs to call %d: %d %q after %v; want success, and a delay only for the delayed calls", n, got.id, got.status, got.text, elapsed)
		}
	}
}

// TestFaultAbortForDubbo verifies that an aborted call gets a Dubbo error with the reason in its
// text.
func TestFaultAbortForDubbo(t *testing.T) {
	t.Parallel()
	shop := startProvider(t, "shop", nil)
	address, _ := rpcFilterProxy(t, list{streamFilter("fault", object{"abort": object{"status": 503, "percentage": 100}})},
		map[string]*provider{"shop": shop}, routeWhen("shop", "service: .*"))
	got := newConsumer(t, address).call(invocation{service: "org.example.Shop", method: "buy"})
	if got.status != dubboErred || !strings.Contains(got.text, "fault injected") || shop.calls.Load() != 0 {
		t.Errorf("%d %q, and %d calls of the provider; want %d, \"fault injected\", 0", got.status, got.text, shop.calls.Load(), dubboErred)
	}
}

// dubboRoutesExample runs dubbo_http_routes.json. Weft retries the method that only reads, sends
// testers to the canary, and splits other calls by weight.
func dubboRoutesExample(t *testing.T) {
	e := loadExample(t, "dubbo_http_routes.json")
	failTwice := func(frame []byte, n int64) byte {
		if n <= 2 {
			return dubboErred
		}
		return dubboOK
	}
	for port, p := range map[string]*provider{"2946": startProvider(t, "stable", failTwice), "2947": startProvider(t, "canary", nil)} {
		e.replace(e.address(port), p.address)
	}
	w := e.run("dubbo_http_routes.json")
	client := newConsumer(t, e.address("2945"))
	for _, c := range []struct {
		service, method string
		attachments     []string
		status          byte
		from            string
	}{
		{"org.example.Shop", "getPrice", nil, dubboOK, "stable"}, // third attempt
		{"org.example.Shop", "buy", []string{"user: tester"}, dubboOK, "canary"},
		{"org.example.Shop", "getPrice", []string{"user: tester"}, dubboOK, "stable"},
		{"shop.example.internal", "buy", nil, dubboOK, "stable"},
	} {
		call := invocation{service: c.service, method: c.method, attachments: c.attachments}
		if got := client.call(call); got.status != c.status || got.text != c.from {
			t.Errorf("%+v: %d from %q, want %d from %q", call, got.status, got.text, c.status, c.from)
		}
	}
	if got := client.call(invocation{service: "org.example.Bank", method: "pay"}); got.status != dubboNotFound {
		t.Errorf("service without a virtual host: %d %q", got.status, got.text)
	}
	for range 400 { // the canary gets 40 on average; 4 and 100 are six or more standard deviations away
		client.send(invocation{service: "org.example.Shop", method: "buy"})
	}
	seen := map[string]int{}
	for range 400 {
		seen[client.receive().text]++
	}
	if n := seen["canary"]; n < 4 || n > 100 || seen["stable"] != 400-n {
		t.Errorf("400 calls went to %v, want about 360:40", seen)
	}
	w.stdout.await(t, 0, "org.example.Shop.getPrice outbound|20880|stable|org.example.Shop 20")
}
