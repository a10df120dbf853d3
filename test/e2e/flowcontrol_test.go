package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// flowControlFilter returns the flow control filter with rules.
func flowControlFilter(rules ...any) object {
	return streamFilter("flowControlFilter", object{"global_switch": true, "rules": list(rules)})
}

// tenMinuteRule returns a rule that allows threshold requests of a resource in 10 minutes, which is
// longer than a test.
func tenMinuteRule(resource string, threshold int, extra object) object {
	return object{"resource": resource, "threshold": threshold, "statIntervalInMs": 600_000}.with(extra)
}

// flowControl verifies rules whose resources are original paths.
func (p *protocolPair) flowControl() feature {
	const interval = 100 * time.Millisecond
	rule := func(extra object) object {
		return object{"global_switch": true, "rules": list{tenMinuteRule("/monitored", 0, nil)}}.with(extra)
	}
	return feature{
		name: "flowControlFilter",
		filters: list{flowControlFilter(
			tenMinuteRule("/few", 3, nil),
			object{"resource": "/queued", "threshold": 10, "controlBehavior": 1, "maxQueueingTimeMs": 60_000},
			tenMinuteRule("^/all/", 2, object{"regex": true}),
		)},
		routes: []object{
			routeWithFilter("/monitored", "flowControlFilter", rule(object{"monitor": true})),
			routeWithFilter("/off", "flowControlFilter", object{}),
		},
		cases: []requestCase{
			{name: "up to the threshold", path: "/few?a=b", times: 3, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
			{name: "above the threshold", path: "/few", status: 509, code: "14", reason: "rate_limited", wantHeaders: map[string]string{"X-App": ""}},
			{name: "above the threshold, with a body", method: "POST", path: "/few?c", requestBody: "lost", status: 509, code: "14", reason: "rate_limited"},
			{name: "body of the local reply", path: "/few", status: 509, body: "current request is limited", reason: "rate_limited"},
			{name: "other path", path: "/fewer", times: 5, status: 200, code: "0"},
			{name: "first request", path: "/queued", status: 200, code: "0"},
			{name: "queued requests", method: "POST", path: "/queued", requestBody: "kept", times: 3, status: 200, code: "0", body: "kept", check: func(t *testing.T, responses []httpResponse) {
				sum := time.Duration(0)
				for _, resp := range responses {
					sum += resp.took
				}
				if sum < interval {
					t.Errorf("three more requests took %v, want at least %v", sum, interval)
				}
			}},
			{name: "regex match", path: "/all/a", times: 2, status: 200, code: "0"},
			{name: "paths of one regex share the limit", path: "/all/b", status: 509, code: "14", reason: "rate_limited"},
			{name: "monitor-only route", path: "/monitored", times: 3, status: 200, code: "0"},
			{name: "route without the filter", path: "/off", times: 3, status: 200, code: "0"},
		},
	}
}

// TestFlowControlForRPC verifies that resources are methods, and that a queued call does not delay
// other calls on its connection.
func TestFlowControlForRPC(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		address, _ := r.startServer(t)
		front := freeAddress()
		w := startWeft(t, setup{
			listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": r.Name(), "upstream_protocol": r.Name(), "router_config_name": "front",
			}}, object{"stream_filters": list{flowControlFilter(tenMinuteRule(".", 3, object{"regex": true, "id": "all"}))}})},
			tables:   list{routeTable("front", routeTo("/", "app"))},
			clusters: list{cluster("app", nil, address)},
		}.config())
		client := r.dial(t, front)
		for id := range uint64(5) {
			client.send(r.request(id + 1))
			if got := client.receive(); got.ok != (id < 3) || !got.ok && got.code != r.code(protocol.RateLimited) {
				t.Errorf("call %d: code %d, want success only for the first calls", id+1, got.code)
			}
		}
		if passed, rejected := w.metric("weft_filter_flow_control_passed_total", `rule="all"`), w.metric("weft_filter_flow_control_refused_total"); passed != 3 || rejected != 2 {
			t.Errorf("%v passed and %v were rejected, want 3 and 2", passed, rejected)
		}
	})
	t.Run("queueing", func(t *testing.T) {
		t.Parallel()
		const interval = time.Second
		address, _ := rpcFilterProxy(t, list{flowControlFilter(
			object{"resource": "/org.example.Shop/slow", "threshold": 1, "controlBehavior": 1, "maxQueueingTimeMs": 60_000},
		)}, map[string]*provider{"shop": startProvider(t, "shop", nil)}, routeWhen("shop", "service: .*"))
		client := newConsumer(t, address)
		slow, quick := invocation{service: "org.example.Shop", method: "slow"}, invocation{service: "org.example.Shop", method: "quick"}
		start := time.Now()
		client.send(slow, slow, quick, quick)
		for n := range 4 {
			got := client.receive()
			if got.status != dubboOK || (got.id == 2) != (n == 3) {
				t.Errorf("response %d belongs to call %d: %d %q; want success, with call 2 last", n, got.id, got.status, got.text)
			}
		}
		if elapsed := time.Since(start); elapsed < interval {
			t.Errorf("the last response came after %v, want at least %v", elapsed, interval)
		}
	})
}

// flowControlExample runs flow_control.json and verifies a rule of each type, for HTTP and Dubbo.
func flowControlExample(t *testing.T) {
	e := loadExample(t, "flow_control.json")
	app, shop := startHoldingUpstream(t), startProvider(t, "shop", nil)
	quick := startUpstream(t, describeRequest)
	e.replace(`{"name": "rest", "match": {"prefix": "/"}`, `{"match": {"prefix": "/export"}, "route": {"cluster_name": "slow"}}, {"name": "rest", "match": {"prefix": "/"}`)
	e.replace(`{"name": "shop",`, `{"name": "slow", "hosts": [{"address": "`+app.address+`"}]}, {"name": "shop",`)
	e.replace(e.address("3947"), quick.address)
	e.replace(e.address("3948"), shop.address)
	w := e.run("flow_control.json")
	w.admin = e.address("34918")
	url := "http://" + e.address("3945")
	for i, want := range []int{200, 200, 429} {
		if got := sendRequest(t, newClient(t), "GET", url+"/report?of=today", ""); got.status != want || want == 429 && got.body != "too many, come back later\n" {
			t.Errorf("report %d: %d %q, want %d", i, got.status, got.body, want)
		}
	}
	start := time.Now()
	var clients sync.WaitGroup
	for range 5 {
		clients.Go(func() {
			if got, err := tryRequest(t.Context(), newClient(t), "POST", url+"/orders", "one"); err != nil || got.status != 200 {
				t.Errorf("order: %d, %v; want 200", got.status, err)
			}
		})
	}
	clients.Wait()
	if elapsed := time.Since(start); elapsed < 200*time.Millisecond {
		t.Errorf("five orders took %v, want them 50ms apart", elapsed)
	}
	first := requestInBackground(t, url+"/export/a")
	app.await(t)
	if got := sendRequest(t, newClient(t), "GET", url+"/export/b", ""); got.status != 429 {
		t.Errorf("second export: %d, want 429", got.status)
	}
	close(app.release)
	if got := first(); got.status != 200 {
		t.Errorf("first export: %d, want 200", got.status)
	}
	for range 3 {
		if got := sendRequest(t, newClient(t), "GET", url+"/trial", ""); got.status != 200 {
			t.Errorf("monitor-only rule: %d, want 200", got.status)
		}
	}
	for labels, want := range map[[2]string]float64{
		{"front", "/report"}: 1, {"front", "/orders"}: 0, {"front", "export"}: 1, {"trial", "/trial"}: 2,
	} {
		if got := w.metric("weft_filter_flow_control_blocked_total", `stat_prefix="`+labels[0]+`"`, `rule="`+labels[1]+`"`); got != want {
			t.Errorf("rejected by the rule %v: %v, want %v", labels, got, want)
		}
	}
	client := newConsumer(t, e.address("3946"))
	for i, c := range []struct {
		method string
		want   byte
	}{{"report", dubboOK}, {"report", dubboExhausted}, {"buy", dubboOK}} {
		if got := client.call(invocation{service: "org.example.Shop", method: c.method}); got.status != c.want {
			t.Errorf("call %d: %d %q, want %d", i, got.status, got.text, c.want)
		}
	}
}
