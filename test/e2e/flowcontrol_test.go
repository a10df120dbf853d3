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
func tenMinuteRule(resource string, threshold int, more object) object {
	return object{"resource": resource, "threshold": threshold, "statIntervalInMs": 600_000}.with(more)
}

// flowControl verifies rules whose resources are original paths.
func (p *protocolPair) flowControl() feature {
	const turn = 100 * time.Millisecond
	rule := func(more object) object {
		return object{"global_switch": true, "rules": list{tenMinuteRule("/monitored", 0, nil)}}.with(more)
	}
	return feature{
		name: "flowControlFilter",
		filters: list{flowControlFilter(
			tenMinuteRule("/few", 3, nil),
			object{"resource": "/turns", "threshold": 10, "controlBehavior": 1, "maxQueueingTimeMs": 60_000},
			tenMinuteRule("^/all/", 2, object{"regex": true}),
		)},
		routes: []object{
			routeWithFilter("/monitored", "flowControlFilter", rule(object{"monitor": true})),
			routeWithFilter("/off", "flowControlFilter", object{}),
		},
		cases: []requestCase{
			{name: "as many as a rule lets through", path: "/few?a=b", times: 3, status: 200, code: "0", wantHeaders: map[string]string{"X-App": "app"}},
			{name: "one more", path: "/few", status: 509, code: "14", reason: "rate_limited", wantHeaders: map[string]string{"X-App": ""}},
			{name: "one more, with content", method: "POST", path: "/few?c", requestBody: "lost", status: 509, code: "14", reason: "rate_limited"},
			{name: "the content of a refusal", path: "/few", status: 509, body: "current request is limited", reason: "rate_limited"},
			{name: "another path", path: "/fewer", times: 5, status: 200, code: "0"},
			{name: "one turn", path: "/turns", status: 200, code: "0"},
			{name: "the next ones", method: "POST", path: "/turns", requestBody: "kept", times: 3, status: 200, code: "0", body: "kept", check: func(t *testing.T, all []httpResponse) {
				sum := time.Duration(0)
				for _, a := range all {
					sum += a.took
				}
				if sum < turn {
					t.Errorf("three more turns took %v, want them %v apart", sum, turn)
				}
			}},
			{name: "what an expression fits", path: "/all/a", times: 2, status: 200, code: "0"},
			{name: "what it fits counts together", path: "/all/b", status: 509, code: "14", reason: "rate_limited"},
			{name: "a route that only counts", path: "/monitored", times: 3, status: 200, code: "0"},
			{name: "a route without", path: "/off", times: 3, status: 200, code: "0"},
		},
	}
}

// TestFlowControlForRPC verifies that resources are methods, and that a queued call does
// not delay other calls on its connection.
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
		caller := r.dial(t, front)
		for id := range uint64(5) {
			caller.send(r.request(id + 1))
			if got := caller.receive(); got.ok != (id < 3) || !got.ok && got.code != r.code(protocol.RateLimited) {
				t.Errorf("call %d: code %d", id+1, got.code)
			}
		}
		if passed, refused := w.metric("weft_filter_flow_control_passed_total", `rule="all"`), w.metric("weft_filter_flow_control_refused_total"); passed != 3 || refused != 2 {
			t.Errorf("%v passed and %v were rejected, want 3 and 2", passed, refused)
		}
	})
	t.Run("turns", func(t *testing.T) {
		t.Parallel()
		const apart = time.Second
		address, _ := rpcFilterProxy(t, list{flowControlFilter(
			object{"resource": "/org.example.Shop/slow", "threshold": 1, "controlBehavior": 1, "maxQueueingTimeMs": 60_000},
		)}, map[string]*provider{"shop": startProvider(t, "shop", nil)}, routeWhen("shop", "service: .*"))
		caller := newConsumer(t, address)
		slow, quick := invocation{service: "org.example.Shop", method: "slow"}, invocation{service: "org.example.Shop", method: "quick"}
		began := time.Now()
		caller.send(slow, slow, quick, quick)
		for n := range 4 {
			got := caller.receive()
			if got.status != dubboOK || (got.id == 2) != (n == 3) {
				t.Errorf("response %d is that of call %d: %d %q", n, got.id, got.status, got.text)
			}
		}
		if took := time.Since(began); took < apart {
			t.Errorf("the second turn came after %v, want %v", took, apart)
		}
	})
}

// flowControlExample runs flow_control.json and verifies a rule of each kind, for HTTP and Dubbo.
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
	began := time.Now()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			if got, err := tryRequest(t.Context(), newClient(t), "POST", url+"/orders", "one"); err != nil || got.status != 200 {
				t.Errorf("an order: %d, %v", got.status, err)
			}
		})
	}
	callers.Wait()
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("five orders took %v, want them 50ms apart", took)
	}
	first := requestInBackground(t, url+"/export/a")
	app.await(t)
	if got := sendRequest(t, newClient(t), "GET", url+"/export/b", ""); got.status != 429 {
		t.Errorf("a second export: %d, want 429", got.status)
	}
	close(app.release)
	if got := first(); got.status != 200 {
		t.Errorf("the first export: %d", got.status)
	}
	for range 3 {
		if got := sendRequest(t, newClient(t), "GET", url+"/trial", ""); got.status != 200 {
			t.Errorf("what only counts: %d", got.status)
		}
	}
	for labels, want := range map[[2]string]float64{
		{"front", "/report"}: 1, {"front", "/orders"}: 0, {"front", "export"}: 1, {"trial", "/trial"}: 2,
	} {
		if got := w.metric("weft_filter_flow_control_blocked_total", `stat_prefix="`+labels[0]+`"`, `rule="`+labels[1]+`"`); got != want {
			t.Errorf("beyond the rule %v: %v, want %v", labels, got, want)
		}
	}
	caller := newConsumer(t, e.address("3946"))
	for i, c := range []struct {
		method string
		want   byte
	}{{"report", dubboOK}, {"report", dubboExhausted}, {"buy", dubboOK}} {
		if got := caller.call(invocation{service: "org.example.Shop", method: c.method}); got.status != c.want {
			t.Errorf("call %d: %d %q, want %d", i, got.status, got.text, c.want)
		}
	}
}
