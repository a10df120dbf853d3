package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestRPCRoutesMatchEveryField verifies matches of the service, method, version, group and
// attachments: exact, by a regular expression, by a prefix, or by presence.
func TestRPCRoutesMatchEveryField(t *testing.T) {
	t.Parallel()
	routes := map[string]object{
		"service":            routeWhen("", "service: org.example.Shop"),
		"service-regex":      routeWhen("", `service~^org\.example\.(cart|bill)\.[A-Z]\w+$`),
		"service-prefix":     {"match": object{"prefix": "/org.example.stock."}},
		"service-and-method": {"match": object{"path": "/org.example.Bank/pay"}},
		"method":             routeWhen("", "method: ship"),
		"method-regex":       routeWhen("", "method~^(get|find)[A-Z]"),
		"version":            routeWhen("", "version: 2.0.0"),
		"version-regex":      routeWhen("", `version~^3\.`),
		"group":              routeWhen("", "group: blue"),
		"group-regex":        routeWhen("", "group~^canary-[0-9]+$"),
		"attachment":         routeWhen("", "tenant: 7"),
		"attachment-regex":   routeWhen("", "zone~^eu-"),
		"attachment-present": routeWhen("", "debug: .*"),
		"both":               routeWhen("", "method: buy", "user: tester"),
		"rest":               routeWhen("", "service: .*"),
	}
	order := []string{
		"service", "service-regex", "service-prefix", "service-and-method", "method", "method-regex", "version", "version-regex",
		"group", "group-regex", "attachment", "attachment-regex", "attachment-present", "both", "rest",
	}
	providers, routeList := map[string]*provider{}, []object{}
	for _, name := range order {
		providers[name] = startProvider(t, name, nil)
		routeList = append(routeList, routes[name].with(object{"route": object{"cluster_name": name}}))
	}
	address, _ := rpcProxy(t, providers, routeList...)
	client := newConsumer(t, address)
	for _, c := range []struct {
		want                     string
		service, method, version string
		attachments              []string
	}{
		{"service", "org.example.Shop", "buy", "1.0.0", nil},
		{"rest", "org.example.Shopping", "buy", "1.0.0", nil},
		{"service-regex", "org.example.cart.Cart", "buy", "1.0.0", nil},
		{"rest", "org.example.cart.cart", "buy", "1.0.0", nil},
		{"service-prefix", "org.example.stock.Stock", "buy", "1.0.0", nil},
		{"service-and-method", "org.example.Bank", "pay", "1.0.0", nil},
		{"rest", "org.example.Bank", "payLater", "1.0.0", nil},
		{"method", "org.example.Any", "ship", "1.0.0", nil},
		{"method-regex", "org.example.Any", "findAll", "1.0.0", nil},
		{"rest", "org.example.Any", "forget", "1.0.0", nil},
		{"version", "org.example.Any", "buy", "2.0.0", nil},
		{"version", "org.example.Any", "buy", "", []string{"version: 2.0.0"}},
		{"version-regex", "org.example.Any", "buy", "3.1.4", nil},
		{"rest", "org.example.Any", "buy", "13.1.4", nil},
		{"group", "org.example.Any", "buy", "1.0.0", []string{"group: blue"}},
		{"group-regex", "org.example.Any", "buy", "1.0.0", []string{"group: canary-12"}},
		{"rest", "org.example.Any", "buy", "1.0.0", []string{"group: canary-"}},
		{"attachment", "org.example.Any", "buy", "1.0.0", []string{"tenant: 7"}},
		{"rest", "org.example.Any", "buy", "1.0.0", []string{"tenant: 77"}},
		{"attachment-regex", "org.example.Any", "buy", "1.0.0", []string{"other: x", "zone: eu-west"}},
		{"attachment-present", "org.example.Any", "buy", "1.0.0", []string{"debug: "}},
		{"both", "org.example.Any", "buy", "1.0.0", []string{"user: tester"}},
		{"rest", "org.example.Any", "sell", "1.0.0", []string{"user: tester"}},
		{"rest", "org.example.Any", "buy", "1.0.0", []string{"method: ship", "service: org.example.Shop"}}, // attachments do not replace the called service and method
	} {
		call := invocation{c.service, c.method, c.version, c.attachments}
		if got := client.call(call); got.status != dubboOK || got.text != c.want {
			t.Errorf("%+v: %d from %q, want a response from %q", call, got.status, got.text, c.want)
		}
	}
}

// TestRPCWithoutRouteIsServiceNotFound verifies the status of a call without a route, and that its
// connection stays open.
func TestRPCWithoutRouteIsServiceNotFound(t *testing.T) {
	t.Parallel()
	address, _ := rpcProxy(t, map[string]*provider{"shop": startProvider(t, "shop", nil)}, routeWhen("shop", "method: buy"))
	client := newConsumer(t, address)
	got := client.call(invocation{service: "org.example.Shop", method: "sell"})
	if got.status != dubboNotFound || !strings.Contains(got.text, "org.example.Shop.sell") {
		t.Errorf("no route: %d %q", got.status, got.text)
	}
	if got := client.call(invocation{service: "org.example.Shop", method: "buy"}); got.status != dubboOK {
		t.Errorf("next call on the connection: %d %q, want %d", got.status, got.text, dubboOK)
	}
}

// TestRPCTimeoutByMethod verifies that calls that were sent together on one connection time out
// independently. A shorter timeout in the call takes precedence.
func TestRPCTimeoutByMethod(t *testing.T) {
	t.Parallel()
	respondToQuick := func(frame []byte, _ int64) byte {
		if strings.Contains(string(frame), "quick") {
			return dubboOK
		}
		return noResponse
	}
	address, _ := rpcProxy(t, map[string]*provider{"shop": startProvider(t, "shop", respondToQuick)},
		withAction(routeWhen("shop", "method: short"), object{"timeout": "700ms"}),
		withAction(routeWhen("shop", "method: long"), object{"timeout": "3s"}),
		routeWhen("shop", "service: .*"),
	)
	client := newConsumer(t, address)
	start := time.Now()
	client.send(
		invocation{service: "org.example.Shop", method: "long"},
		invocation{service: "org.example.Shop", method: "long", attachments: []string{"timeout: 1500"}},
		invocation{service: "org.example.Shop", method: "short"},
		invocation{service: "org.example.Shop", method: "quick"},
	)
	for _, want := range []struct {
		id      uint64
		status  byte
		minimum time.Duration
	}{{4, dubboOK, 0}, {3, dubboTimeout, 700 * time.Millisecond}, {2, dubboTimeout, 1500 * time.Millisecond}, {1, dubboTimeout, 3 * time.Second}} {
		got := client.receive()
		if elapsed := time.Since(start); got.id != want.id || got.status != want.status || elapsed < want.minimum {
			t.Errorf("response %d with %d %q after %v; want response %d with %d, not before %v", got.id, got.status, got.text, elapsed, want.id, want.status, want.minimum)
		}
	}
}

// TestRPCRetryPolicyByMethod verifies that a retry policy applies to the calls of its method
// only.
func TestRPCRetryPolicyByMethod(t *testing.T) {
	t.Parallel()
	failTimes := func(failure byte, times int64) func([]byte, int64) byte {
		return func(_ []byte, n int64) byte {
			if n <= times {
				return failure
			}
			return dubboOK
		}
	}
	policy := func(p object) object {
		return object{"timeout": "10s", "retry_policy": object{"retry_on": true}.with(p)}
	}
	for _, c := range []struct {
		name     string
		response func([]byte, int64) byte
		route    object // action of the route
		status   byte
		calls    int64
	}{
		{"no policy", failTimes(dubboErred, 2), object{}, dubboErred, 1},
		{"disabled policy", failTimes(dubboErred, 2), policy(object{"retry_on": false, "num_retries": 3}), dubboErred, 1},
		{"retries until success", failTimes(dubboErred, 2), policy(object{"num_retries": 3}), dubboOK, 3},
		{"num_retries reached", failTimes(dubboErred, 9), policy(object{"num_retries": 2}), dubboErred, 3},
		{"provider pool exhausted", failTimes(dubboExhausted, 1), policy(object{"num_retries": 1}), dubboOK, 2},
		{"retriable status", failTimes(dubboNotFound, 1), policy(object{"num_retries": 1, "status_codes": list{404}}), dubboOK, 2},
		{"other status", failTimes(dubboNotFound, 1), policy(object{"num_retries": 1}), dubboNotFound, 1},
		{"lost connection", failTimes(closeConnection, 1), policy(object{"num_retries": 1}), dubboOK, 2},
		{"lost connection without a policy", failTimes(closeConnection, 1), object{}, dubboInactive, 1},
		{"per-try timeout", failTimes(noResponse, 2), policy(object{"num_retries": 2, "retry_timeout": "1s"}), dubboOK, 3},
		{"protocol status", failTimes(dubboExhausted, 1), policy(object{"retry_on": "retriable-status-codes", "rpc_status_codes": list{100}}), dubboOK, 2},
		{"other protocol status", failTimes(dubboErred, 1), policy(object{"retry_on": "retriable-status-codes", "rpc_status_codes": list{100}}), dubboErred, 1},
		{"lost connection with retry_on reset", failTimes(closeConnection, 1), policy(object{"retry_on": "reset"}), dubboOK, 2},
		{"error response with retry_on reset", failTimes(dubboErred, 1), policy(object{"retry_on": "reset"}), dubboErred, 1},
		{"per-try timeout of every attempt", failTimes(noResponse, 9), policy(object{"num_retries": 1, "retry_timeout": "100ms"}), dubboTimeout, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, other := startProvider(t, "app", c.response), startProvider(t, "other", failTimes(dubboErred, 1))
			address, _ := rpcProxy(t, map[string]*provider{"app": p, "other": other},
				withAction(routeWhen("app", "service: org.example.Shop", "method: buy"), c.route), routeWhen("other", "service: .*"))
			client := newConsumer(t, address)
			if got := client.call(invocation{service: "org.example.Shop", method: "buy"}); got.status != c.status {
				t.Errorf("status %d %q, want %d", got.status, got.text, c.status)
			}
			if got := p.calls.Load(); got != c.calls {
				t.Errorf("the provider got %d calls, want %d", got, c.calls)
			}
			if got := client.call(invocation{service: "org.example.Shop", method: "sell"}); got.status != dubboErred || other.calls.Load() != 1 {
				t.Errorf("other method: status %d after %d calls, want %d after 1", got.status, other.calls.Load(), dubboErred)
			}
		})
	}
}

// TestRPCCallsAreSplitByWeight sends 400 calls on one connection to a split of 90:10. The canary
// gets 40 on average. 4 and 100 are at least six standard deviations away.
func TestRPCCallsAreSplitByWeight(t *testing.T) {
	t.Parallel()
	weighted := func(name string, weight int) object {
		return object{"cluster": object{"name": name, "weight": weight}}
	}
	address, _ := rpcProxy(t, map[string]*provider{"stable": startProvider(t, "stable", nil), "canary": startProvider(t, "canary", nil)},
		object{"match": object{"headers": list{object{"name": "method", "value": "buy"}}},
			"route": object{"weighted_clusters": list{weighted("stable", 90), weighted("canary", 10)}}},
		routeWhen("stable", "service: .*"),
	)
	client := newConsumer(t, address)
	seen := map[string]int{}
	for range 20 {
		for range 20 {
			client.send(invocation{service: "org.example.Shop", method: "buy"})
		}
		for range 20 {
			seen[client.receive().text]++
		}
	}
	if n := seen["canary"]; n < 4 || n > 100 || seen["stable"] != 400-n {
		t.Errorf("400 calls went to %v, want about 360:40", seen)
	}
	for range 20 {
		if got := client.call(invocation{service: "org.example.Shop", method: "sell"}); got.text != "stable" {
			t.Fatalf("method without weights: %d from %q", got.status, got.text)
		}
	}
}
