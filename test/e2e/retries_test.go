package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// retryConditions verifies each condition of retry_on. The upstream flaky selects its response
// to the first request of a path by the last segment of the path.
func (p *protocolPair) retryConditions() feature {
	on := func(conditions string, extra object) object {
		first, _, _ := strings.Cut(conditions, ",")
		return routeTo("/"+first, "flaky", object{"retry_policy": object{
			"retry_on": conditions, "num_retries": 1, "retry_back_off": object{"base_interval": "1ms"},
		}.with(extra)})
	}
	app := map[string]string{"X-App": "app"}
	return feature{
		name: "retry_on",
		routes: []object{
			on("5xx", nil), on("gateway-error", nil), on("reset", nil), on("retriable-4xx", nil),
			on("retriable-status-codes", object{"retriable_status_codes": list{429}}),
			on("retriable-headers", object{"retriable_headers": list{object{"name": "x-again"}}}),
			on("cancelled", nil), on("deadline-exceeded", nil), on("internal", nil),
			on("resource-exhausted,unavailable", nil), on("unavailable", nil),
		},
		clusters: list{cluster("flaky", nil, p.flaky)},
		cases: []requestCase{
			{name: "5xx: 500", path: "/5xx/500", status: 200, wantHeaders: app},
			{name: "gateway-error: 503", path: "/gateway-error/503", status: 200, wantHeaders: app},
			{name: "gateway-error: 500", path: "/gateway-error/500", status: 500},
			{name: "gateway-error: no response", path: "/gateway-error/abort", status: 200, code: "0", wantHeaders: app},
			{name: "reset: no response", method: "PUT", path: "/reset/abort", requestBody: "replayed", status: 200, code: "0", body: "replayed", wantHeaders: app},
			{name: "reset: 503", path: "/reset/503", status: 503},
			{name: "retriable-4xx: 409", path: "/retriable-4xx/409", status: 200, wantHeaders: app},
			{name: "retriable-4xx: 404", path: "/retriable-4xx/404", status: 404},
			{name: "retriable-status-codes: 429", method: "PUT", path: "/retriable-status-codes/429", requestBody: "replayed", status: 200, body: "replayed", wantHeaders: app},
			{name: "retriable-status-codes: 503", path: "/retriable-status-codes/503", status: 503},
			{name: "retriable-headers: matching header", path: "/retriable-headers/header", status: 200, code: "0", wantHeaders: app},
			{name: "retriable-headers: 503", path: "/retriable-headers/503", status: 503},
			{name: "cancelled", path: "/cancelled/grpc-1", code: "0", wantHeaders: app},
			{name: "deadline-exceeded", path: "/deadline-exceeded/grpc-4", code: "0", wantHeaders: app},
			{name: "internal", path: "/internal/grpc-13", code: "0", requestBody: "replayed", wantHeaders: app},
			{name: "resource-exhausted", path: "/resource-exhausted/grpc-8", code: "0", wantHeaders: app},
			{name: "unavailable and another condition", path: "/resource-exhausted/grpc-14", code: "0", wantHeaders: app},
			{name: "unavailable: resource-exhausted", path: "/unavailable/grpc-8", code: "8"},
		},
	}
}

// failFirst returns a handler. The last segment of a path selects the response to its first
// request: a status, a gRPC status, a header, or no response. Later requests succeed.
func failFirst() http.HandlerFunc {
	var requests sync.Map // by path
	app := describeRequestAs("app")
	return func(w http.ResponseWriter, r *http.Request) {
		if _, seen := requests.LoadOrStore(r.URL.Path, true); seen {
			app(w, r)
			return
		}
		if isCall(r) {
			w.Header().Set("Content-Type", "application/grpc")
		}
		switch behavior := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; {
		case behavior == "abort":
			panic(http.ErrAbortHandler)
		case behavior == "header":
			w.Header().Set("X-Again", "yes")
		case strings.HasPrefix(behavior, "grpc-"):
			w.Header().Set("Grpc-Status", strings.TrimPrefix(behavior, "grpc-"))
		default:
			w.WriteHeader(map[string]int{"404": 404, "409": 409, "429": 429, "500": 500, "503": 503}[behavior])
		}
	}
}

func TestRetryBudget(t *testing.T) {
	t.Parallel()
	w, end := exceedRetryLimit(t, object{
		"max_retries": 100, "retry_budget": object{"budget_percent": 50, "min_retry_concurrency": 1}})
	defer end()
	if n, other := w.metric("weft_cluster_overflow_total", `limit="retry_budget"`), w.metric("weft_cluster_overflow_total", `limit="retries"`); n != 1 || other != 0 {
		t.Errorf("rejected by the retry budget: %v, by max_retries: %v; want 1 and 0", n, other)
	}
}

// TestRetryBackoffDoesNotBlock verifies that a request that waits for its retry does not block
// other requests of its connection, and ends when its client disconnects. The backoff is a random
// time of up to an hour, so the retry happens in about one run of 100,000.
func TestRetryBackoffDoesNotBlock(t *testing.T) {
	t.Parallel()
	backoffPolicy := object{"timeout": "0s", "retry_policy": object{
		"retry_on": true, "retry_back_off": object{"base_interval": "1h"}}}
	checkDisconnected := func(t *testing.T, w *weft, calls *atomic.Int64) {
		t.Helper()
		eventually(t, "the request has ended with its client", func() bool {
			return w.metric("weft_listener_request_failures_total", `reason="downstream_gone"`) == 1
		})
		if n := calls.Load(); n != 1 {
			t.Errorf("%d attempts, want 1", n)
		}
	}
	for _, version := range []string{"Http1", "Http2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/failing" {
					calls.Add(1)
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			front := freeAddress()
			w := startWeft(t, setup{
				listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
					"downstream_protocol": version, "upstream_protocol": "Http1", "router_config_name": "front"}})},
				tables:   list{routeTable("front", routeTo("/", "app", backoffPolicy))},
				clusters: list{cluster("app", nil, app.address)},
			}.config())
			c := newClient(t)
			c.Transport.(*http.Transport).Protocols = httpProtocols(version)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := tryRequest(ctx, c, "GET", "http://"+front+"/failing", "")
				done <- err
			}()
			eventually(t, "the first attempt has been sent", func() bool { return calls.Load() == 1 })
			if got := sendRequest(t, c, "GET", "http://"+front+"/healthy", ""); got.status != 200 {
				t.Errorf("other request: %d, want 200", got.status)
			}
			cancel()
			if err := <-done; err == nil {
				t.Error("the request got a response, want an error")
			}
			checkDisconnected(t, w, &calls)
		})
	}
	t.Run("dubbo", func(t *testing.T) {
		t.Parallel()
		failing, healthy := startProvider(t, "failing", func([]byte, int64) byte { return dubboErred }), startProvider(t, "healthy", nil)
		address, w := rpcProxy(t, map[string]*provider{"failing": failing, "healthy": healthy},
			withAction(routeWhen("failing", "method: fail"), backoffPolicy), routeWhen("healthy", "service: .*"))
		client := newConsumer(t, address)
		client.send(invocation{service: "org.example.Shop", method: "fail"})
		eventually(t, "the first attempt has been sent", func() bool { return failing.calls.Load() == 1 })
		if got := client.call(invocation{service: "org.example.Shop", method: "buy"}); got.status != dubboOK {
			t.Errorf("other call: status %d, want %d", got.status, dubboOK)
		}
		_ = client.conn.Close()
		checkDisconnected(t, w, &failing.calls)
	})
}

// retriesExample runs retries.json. Retries hide a busy host and a busy provider. A status or a
// method that is not listed is not retried.
func retriesExample(t *testing.T) {
	busy := func(_ []byte, n int64) byte {
		if n%2 == 1 {
			return dubboExhausted
		}
		return dubboOK
	}
	items := startProvider(t, "items", busy)
	e := loadExample(t, "retries.json")
	e.replace("127.0.0.1:"+e.port["3253"], items.address)
	startUpstreamAt(t, e.address("3251"), func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/orders/busy":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/orders/broken":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	startUpstreamAt(t, e.address("3252"), respondWith("2"))
	w := e.run("retries.json")
	w.admin = e.address("3247")
	c, url := newClient(t), "http://"+e.address("3245")
	for path, want := range map[string]int{"/orders/busy": 0, "/orders/down": 0, "/other": 0, "/orders/broken": 2} {
		failed := 0
		for range 4 {
			if sendRequest(t, c, "GET", url+path, "").status != 200 {
				failed++
			}
		}
		if failed != want {
			t.Errorf("%[2]d of 4 requests for %[1]s failed, want %[3]d", path, failed, want)
		}
	}
	if n := w.metric("weft_cluster_retries_total", `cluster="shop"`); n < 3 {
		t.Errorf("%v retries, want at least one for each path except /orders/broken", n)
	}
	client := newConsumer(t, e.address("3246"))
	if got := client.call(invocation{service: "org.example.Items", method: "list"}); got.status != dubboOK || items.calls.Load() != 2 {
		t.Errorf("method with retries: status %d after %d calls, want %d after 2", got.status, items.calls.Load(), dubboOK)
	}
	if got := client.call(invocation{service: "org.example.Items", method: "add"}); got.status != dubboExhausted || items.calls.Load() != 3 {
		t.Errorf("method without retries: status %d after %d calls, want %d after 3", got.status, items.calls.Load(), dubboExhausted)
	}
}
