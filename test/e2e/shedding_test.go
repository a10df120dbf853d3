package e2e

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// responseCounts counts the responses to clients that send one request after the other. A client
// pauses after a rejection.
type responseCounts struct{ served, rejected atomic.Int64 }

// startClients starts n clients, which send requests until stop is closed.
//
//arch:clock simulated clients pause after a rejection
func (c *responseCounts) startClients(t *testing.T, clients *sync.WaitGroup, n int, url string, stop <-chan struct{}, fields ...string) {
	for range n {
		clients.Go(func() {
			for h := newClient(t); ; {
				select {
				case <-stop:
					return
				default:
				}
				switch got, err := tryRequest(t.Context(), h, "GET", url, "", fields...); {
				case err != nil:
					t.Error(err)
					return
				case got.status == 200:
					c.served.Add(1)
				case got.status == 503:
					c.rejected.Add(1)
					time.Sleep(2 * time.Millisecond)
				default:
					t.Errorf("unexpected response status %d", got.status)
					return
				}
			}
		})
	}
}

// TestPrioritiesUnderOverload verifies priorities under overload. Forty clients send requests to an
// upstream that serves four at a time. The limit is at least ten, and low priority may use half of
// it.
//
//arch:clock the simulated upstream needs time for a response
func TestPrioritiesUnderOverload(t *testing.T) {
	t.Parallel()
	workers := make(chan struct{}, 4)
	app := startUpstream(t, func(http.ResponseWriter, *http.Request) {
		workers <- struct{}{}
		time.Sleep(5 * time.Millisecond)
		<-workers
	})
	s, front := simpleProxy(app.address)
	s.listeners = list{httpListener("front", front, object{"stream_filters": list{streamFilter("adaptive_concurrency", object{
		"gradient_controller_config": object{"min_rtt_calc_params": object{"fixed_value": "5ms", "min_concurrency": 10}},
		"priority": object{"header": "x-priority", "default": "batch", "levels": list{
			object{"value": "high", "share": 100}, object{"value": "batch", "share": 50}}},
	})}})}
	w := startWeft(t, s.config())
	var high, batch responseCounts
	var clients sync.WaitGroup
	stop := make(chan struct{})
	batch.startClients(t, &clients, 36, "http://"+front+"/", stop)
	high.startClients(t, &clients, 4, "http://"+front+"/", stop, "X-Priority: high")
	eventually(t, "high priority requests are served", func() bool { return high.served.Load() >= 500 || t.Failed() })
	close(stop)
	clients.Wait()
	if n := high.rejected.Load(); n > 0 {
		t.Errorf("%d high priority requests rejected, %d served, want none rejected", n, high.served.Load())
	}
	if served, rejected := batch.served.Load(), batch.rejected.Load(); served == 0 || rejected < served {
		t.Errorf("%d low priority requests served and %d rejected, want some served and more rejected", served, rejected)
	}
	if got := w.metric(adaptiveRefused, `priority="batch"`); got != float64(batch.rejected.Load()) {
		t.Errorf("%v counted as rejected, want %d", got, batch.rejected.Load())
	}
	if got := w.metric("weft_filter_adaptive_concurrency_limit"); got < 10 || got > 100 {
		t.Errorf("the limit is %v for an application that serves four requests at a time, want 10 to 100", got)
	}
}

// adaptiveExample runs adaptive.json. Requests of priority batch leave capacity for the other
// levels, the health path has no limit, and methods have separate limits.
func adaptiveExample(t *testing.T) {
	e := loadExample(t, "adaptive.json")
	app := startHoldingUpstream(t)
	health := startUpstream(t, respondWith("ok"))
	e.replace(e.address("3847"), app.address)
	e.replace(`"match": {"path": "/health"},
            "route": {"cluster_name": "app"}`, `"match": {"path": "/health"},
            "route": {"cluster_name": "health"}`)
	e.replace(`{"name": "shop",`, `{"name": "health", "hosts": [{"address": "`+health.address+`"}]}, {"name": "shop",`)
	shop := startProvider(t, "shop", func(frame []byte, n int64) byte {
		if n <= 2 {
			return noResponse
		}
		return dubboOK
	})
	e.replace(e.address("3848"), shop.address)
	w := e.run("adaptive.json")
	w.admin = e.address("34917")
	url := "http://" + e.address("3845")

	var clients sync.WaitGroup
	send := func(n int, fields ...string) {
		for range n {
			clients.Go(func() {
				if got, err := tryRequest(t.Context(), newClient(t), "GET", url+"/items", "", fields...); err != nil || got.status != 200 {
					t.Errorf("accepted request: %d, %v; want 200", got.status, err)
				}
			})
			app.await(t)
		}
	}
	checkRejected := func(fields ...string) {
		t.Helper()
		if got := sendRequest(t, newClient(t), "GET", url+"/items", "", fields...); got.status != 503 {
			t.Errorf("%v: %d, want 503", fields, got.status)
		}
	}
	const batch, high = "X-Priority: batch", "X-Priority: high"
	send(5, batch)
	checkRejected(batch)
	send(3)
	checkRejected()
	checkRejected(batch)
	send(2, high)
	checkRejected(high)
	if got := sendRequest(t, newClient(t), "GET", url+"/health", ""); got.status != 200 {
		t.Errorf("health: %d, want 200", got.status)
	}
	close(app.release)
	clients.Wait()
	for level, want := range map[string]float64{"batch": 2, "normal": 1, "high": 1} {
		if got := w.metric(adaptiveRefused, `priority="`+level+`"`, `scope="rest"`); got != want {
			t.Errorf("%v requests of priority %s rejected, want %v", got, level, want)
		}
	}

	client := newConsumer(t, e.address("3846"))
	slow, quick := invocation{service: "org.example.Shop", method: "report"}, invocation{service: "org.example.Shop", method: "buy"}
	client.send(slow, slow)
	eventually(t, "two calls are in flight", func() bool { return shop.calls.Load() == 2 })
	if got := client.call(slow); got.status != dubboExhausted {
		t.Errorf("third call of a hanging method: %d %q, want %d", got.status, got.text, dubboExhausted)
	}
	if got := client.call(quick); got.status != dubboOK {
		t.Errorf("call of another method: %d %q, want %d", got.status, got.text, dubboOK)
	}
}

// TestRateLimitPerConnection verifies rate limits of downstream connections, in HTTP/1.1 and Dubbo.
func TestRateLimitPerConnection(t *testing.T) {
	t.Parallel()
	filters := list{streamFilter("local_ratelimit", object{
		"local_rate_limit_per_downstream_connection": true, "token_bucket": object{"max_tokens": 2, "fill_interval": "10h"}})}
	t.Run("Http1", func(t *testing.T) {
		t.Parallel()
		s, front := simpleProxy(startUpstream(t, respondWith("app")).address)
		s.listeners = list{httpListener("front", front, object{"stream_filters": filters})}
		startWeft(t, s.config())
		for range 2 {
			conn := dialRaw(t, front)
			for i, want := range []int{200, 200, 429, 429} {
				if got, _ := conn.send("GET / HTTP/1.1\nHost: a\n\n").readResponse("GET"); got.StatusCode != want {
					t.Errorf("request %d of a connection: %d, want %d", i, got.StatusCode, want)
				}
			}
		}
	})
	t.Run("dubbo", func(t *testing.T) {
		t.Parallel()
		address, _ := rpcFilterProxy(t, filters, map[string]*provider{"shop": startProvider(t, "shop", nil)}, routeWhen("shop", "service: .*"))
		for range 2 {
			client := newConsumer(t, address)
			for i, want := range []byte{dubboOK, dubboOK, dubboExhausted} {
				if got := client.call(invocation{service: "org.example.Shop", method: "buy"}); got.status != want {
					t.Errorf("call %d of a connection: %d, want %d", i, got.status, want)
				}
			}
		}
	})
}
