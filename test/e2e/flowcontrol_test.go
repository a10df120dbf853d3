package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// controlledFlow returns the flow control filter with rules.
func controlledFlow(rules ...any) object {
	return filterOf("flowControlFilter", object{"global_switch": true, "rules": list(rules)})
}

// longRule returns a rule that allows threshold requests of a resource in 10 minutes, which is
// longer than a test.
func longRule(resource string, threshold int, more object) object {
	return object{"resource": resource, "threshold": threshold, "statIntervalInMs": 600_000}.with(more)
}

// flowControl verifies rules whose resources are original paths.
func (p *pair) flowControl() feature {
	const turn = 100 * time.Millisecond
	rule := func(more object) object {
		return object{"global_switch": true, "rules": list{longRule("/monitored", 0, nil)}}.with(more)
	}
	return feature{
		name: "flowControlFilter",
		filters: list{controlledFlow(
			longRule("/few", 3, nil),
			object{"resource": "/turns", "threshold": 10, "controlBehavior": 1, "maxQueueingTimeMs": 60_000},
			longRule("^/all/", 2, object{"regex": true}),
		)},
		routes: []object{
			own("/monitored", "flowControlFilter", rule(object{"monitor": true})),
			own("/off", "flowControlFilter", object{}),
		},
		trials: []trial{
			{name: "as many as a rule lets through", path: "/few?a=b", times: 3, status: 200, code: "0", want: map[string]string{"X-App": "app"}},
			{name: "one more", path: "/few", status: 509, code: "14", reason: "rate_limited", want: map[string]string{"X-App": ""}},
			{name: "one more, with content", method: "POST", path: "/few?c", content: "lost", status: 509, code: "14", reason: "rate_limited"},
			{name: "the content of a refusal", path: "/few", status: 509, body: "current request is limited", reason: "rate_limited"},
			{name: "another path", path: "/fewer", times: 5, status: 200, code: "0"},
			{name: "one turn", path: "/turns", status: 200, code: "0"},
			{name: "the next ones", method: "POST", path: "/turns", content: "kept", times: 3, status: 200, code: "0", body: "kept", judge: func(t *testing.T, all []answer) {
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

// TestFlowControlInTheTermsOfRPC verifies that resources are methods, and that a queued call does
// not delay other calls on its connection.
func TestFlowControlInTheTermsOfRPC(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		address, _ := r.app(t)
		front := free()
		w := run(t, setup{
			listeners: list{chained("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": r.Name(), "upstream_protocol": r.Name(), "router_config_name": "front",
			}}, object{"stream_filters": list{controlledFlow(longRule(".", 3, object{"regex": true, "id": "all"}))}})},
			tables:   list{table("front", to("/", "app"))},
			clusters: list{cluster("app", nil, address)},
		}.config())
		caller := r.dial(t, front)
		for id := range uint64(5) {
			caller.send(r.request(id + 1))
			if got := caller.answer(); got.ok != (id < 3) || !got.ok && got.code != r.code(protocol.RateLimited) {
				t.Errorf("call %d: code %d", id+1, got.code)
			}
		}
		if passed, refused := w.metric("weft_filter_flow_control_passed_total", `rule="all"`), w.metric("weft_filter_flow_control_refused_total"); passed != 3 || refused != 2 {
			t.Errorf("%v passed and %v were refused, want 3 and 2", passed, refused)
		}
	})
	t.Run("turns", func(t *testing.T) {
		t.Parallel()
		const apart = time.Second
		address, _ := filteredRPC(t, list{controlledFlow(
			object{"resource": "/org.example.Shop/slow", "threshold": 1, "controlBehavior": 1, "maxQueueingTimeMs": 60_000},
		)}, map[string]*provider{"shop": provide(t, "shop", nil)}, when("shop", "service: .*"))
		caller := consume(t, address)
		slow, quick := invocation{service: "org.example.Shop", method: "slow"}, invocation{service: "org.example.Shop", method: "quick"}
		began := time.Now()
		caller.send(slow, slow, quick, quick)
		for n := range 4 {
			got := caller.answer()
			if got.status != dubboOK || (got.id == 2) != (n == 3) {
				t.Errorf("answer %d is that of call %d: %d %q", n, got.id, got.status, got.text)
			}
		}
		if took := time.Since(began); took < apart {
			t.Errorf("the second turn came after %v, want %v", took, apart)
		}
	})
}

// flowControlExample runs flow_control.json and verifies a rule of each kind, for HTTP and Dubbo.
func flowControlExample(t *testing.T) {
	e := openExample(t, "flow_control.json")
	app, shop := hold(t), provide(t, "shop", nil)
	quick := serve(t, sayRequest)
	e.replace(`{"name": "rest", "match": {"prefix": "/"}`, `{"match": {"prefix": "/export"}, "route": {"cluster_name": "slow"}}, {"name": "rest", "match": {"prefix": "/"}`)
	e.replace(`{"name": "shop",`, `{"name": "slow", "hosts": [{"address": "`+app.address+`"}]}, {"name": "shop",`)
	e.replace(e.at("3947"), quick.address)
	e.replace(e.at("3948"), shop.address)
	w := e.run("flow_control.json")
	w.admin = e.at("34918")
	url := "http://" + e.at("3945")
	for i, want := range []int{200, 200, 429} {
		if got := ask(t, client(t), "GET", url+"/report?of=today", ""); got.status != want || want == 429 && got.body != "too many, come back later\n" {
			t.Errorf("report %d: %d %q, want %d", i, got.status, got.body, want)
		}
	}
	began := time.Now()
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			if got, err := try(t.Context(), client(t), "POST", url+"/orders", "one"); err != nil || got.status != 200 {
				t.Errorf("an order: %d, %v", got.status, err)
			}
		})
	}
	callers.Wait()
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("five orders took %v, want them 50ms apart", took)
	}
	first := background(t, url+"/export/a")
	app.await(t)
	if got := ask(t, client(t), "GET", url+"/export/b", ""); got.status != 429 {
		t.Errorf("a second export: %d, want 429", got.status)
	}
	close(app.leave)
	if got := first(); got.status != 200 {
		t.Errorf("the first export: %d", got.status)
	}
	for range 3 {
		if got := ask(t, client(t), "GET", url+"/trial", ""); got.status != 200 {
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
	caller := consume(t, e.at("3946"))
	for i, c := range []struct {
		method string
		want   byte
	}{{"report", dubboOK}, {"report", dubboExhausted}, {"buy", dubboOK}} {
		if got := caller.call(invocation{service: "org.example.Shop", method: c.method}); got.status != c.want {
			t.Errorf("call %d: %d %q, want %d", i, got.status, got.text, c.want)
		}
	}
}
