package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hangingUpstream is an upstream that never responds and reports canceled requests.
type hangingUpstream struct {
	address  string
	requests atomic.Int64
	canceled chan struct{} // gets a value for each canceled request
}

func startHangingUpstream(t *testing.T, protocol string) *hangingUpstream {
	t.Helper()
	u := &hangingUpstream{canceled: make(chan struct{}, 1000)}
	stop := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server detects a disconnect
		u.requests.Add(1)
		select {
		case <-r.Context().Done():
			u.canceled <- struct{}{}
		case <-stop:
		}
	}))
	s.Config.Protocols = httpProtocols(protocol)
	s.Start()
	u.address = s.Listener.Addr().String()
	t.Cleanup(func() { close(stop); s.Close() })
	return u
}

// clusterState is what /clusters reports about a cluster.
type clusterState struct {
	Name    string
	Retries int64
	// Breakers are the configured limits.
	Breakers []struct {
		Priority, Limit string
		Used, Most      int64
		Open            bool
	} `json:"circuit_breakers"`
	Hosts []struct {
		Address   string
		InFlight  int64  `json:"in_flight"`
		Failures  uint64 `json:"failures_total"`
		Cancelled uint64 `json:"cancelled_total"`
	}
}

func (w *weft) clusterState(cluster string) clusterState {
	w.t.Helper()
	var clusters []clusterState
	if err := json.Unmarshal([]byte(w.adminGet("/clusters")), &clusters); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range clusters {
		if c.Name == cluster {
			return c
		}
	}
	w.t.Fatalf("/clusters has no cluster %s", cluster)
	return clusterState{}
}

// hedgePolicy returns a route action that hedges a request after 50 ms.
func hedgePolicy() object {
	return object{
		"retry_policy": object{"retry_on": "5xx", "num_retries": 1, "per_try_timeout": "50ms"},
		"hedge_policy": object{"hedge_on_per_try_timeout": true},
	}
}

// allowHedges raises max_retries of a cluster, which bounds the hedges in flight, from the default
// of 3.
func allowHedges(cluster object) object {
	cluster["circuit_breakers"] = list{object{"max_retries": 100}}
	return cluster
}

// TestHedging verifies hedging for each pair of protocols. One of the two hosts never
// responds, and each request has its own body.
func TestHedging(t *testing.T) {
	t.Parallel()
	for _, p := range []*protocolPair{
		{downstream: "Http1", upstream: "Http1"}, {downstream: "Http1", upstream: "Http2"},
		{downstream: "Http2", upstream: "Http1"}, {downstream: "Http2", upstream: "Http2"},
		{downstream: "Http2", upstream: "Http2", grpc: true},
	} {
		t.Run(p.name(), func(t *testing.T) {
			t.Parallel()
			slow := startHangingUpstream(t, p.upstream)
			fast := httptest.NewUnstartedServer(describeRequestAs("app"))
			fast.Config.Protocols = httpProtocols(p.upstream)
			fast.Start()
			t.Cleanup(fast.Close)
			front := freeAddress()
			w := startWeft(t, setup{
				listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{"downstream_protocol": p.downstream, "router_config_name": "front"}})},
				tables:    list{routeTable("front", routeTo("/", "app", hedgePolicy()))},
				clusters:  list{cluster("app", allowHedges(object{"upstream_protocol": p.upstream}), slow.address, fast.Listener.Addr().String())},
			}.config())
			c := newClient(t)
			c.Transport.(*http.Transport).Protocols = httpProtocols(p.downstream)
			const workers, perWorker = 8, 5
			var wg sync.WaitGroup
			for i := range workers {
				wg.Go(func() {
					for n := range perWorker {
						body := fmt.Sprintf("%d/%d ", i, n) + strings.Repeat("x", 100*i*n)
						p.sendRequest(t, c, "http://"+front, &requestCase{method: "PUT", path: fmt.Sprintf("/shop.Shop/%d.%d", i, n), requestBody: body,
							status: 200, code: "0", body: body, wantHeaders: map[string]string{"X-App": "app", "X-Request-Line": p.expectedRequest(i, n)}})
					}
				})
			}
			wg.Wait()
			requests := slow.requests.Load()
			if requests == 0 {
				t.Fatal("no first attempt went to the slow host")
			}
			for range requests {
				<-slow.canceled
			}
			w.checkHedges(requests)
			for _, h := range w.clusterState("app").Hosts {
				if h.Failures != 0 || h.InFlight != 0 {
					t.Errorf("%s has %d failures, %d in flight; want 0, 0", h.Address, h.Failures, h.InFlight)
				}
			}
		})
	}
}

// checkHedges waits until each attempt at the slow host is counted as canceled. On a busy machine
// the other host may get the first attempt and respond late, but before the hedged attempt has a
// host. Then Weft counts no hedge.
func (w *weft) checkHedges(requests int64) {
	w.t.Helper()
	eventually(w.t, "each attempt at the slow host is counted as canceled", func() bool {
		hedges, won := w.metric("weft_cluster_hedges_total"), w.metric("weft_cluster_hedges_won_total")
		canceled := w.metric("weft_cluster_attempts_cancelled_total")
		return hedges >= float64(requests) && won > 0 && won <= hedges && canceled >= float64(requests) && canceled <= hedges &&
			w.metric("weft_cluster_requests_active") == 0
	})
}

// expectedRequest returns the X-Request-Line header that the upstream must send.
func (p *protocolPair) expectedRequest(i, n int) string {
	method := "PUT"
	if p.grpc {
		method = "POST"
	}
	return fmt.Sprintf("%s shop.test/shop.Shop/%d.%d", method, i, n)
}

// TestHedgingOfDubboCalls verifies hedging of Dubbo calls, several in flight on one connection.
// Each call must get its own response.
func TestHedgingOfDubboCalls(t *testing.T) {
	t.Parallel()
	slow, fast := startProvider(t, "slow", func([]byte, int64) byte { return noResponse }), startProvider(t, "fast", nil)
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{listenDubbo("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", hedgePolicy()))},
		clusters:  list{cluster("app", allowHedges(object{}), slow.address, fast.address)},
	}.config())
	client := newConsumer(t, front)
	const calls = 20
	var invocations []invocation
	for range calls {
		invocations = append(invocations, invocation{service: "org.example.Shop", method: "buy"})
	}
	start := time.Now()
	client.send(invocations...)
	seen := make(map[uint64]bool)
	for range calls {
		got := client.receive()
		if got.status != dubboOK || got.text != "fast" || seen[got.id] || got.id == 0 || got.id > calls {
			t.Errorf("response %d: %d %q; want \"fast\", once for each call", got.id, got.status, got.text)
		}
		seen[got.id] = true
	}
	if elapsed := time.Since(start); elapsed < 50*time.Millisecond {
		t.Errorf("all responses after %v, want at least 50ms", elapsed)
	}
	w.checkHedges(slow.calls.Load())
}

// TestMaxRetriesBoundsHedges verifies that max_retries bounds the requests with a hedged
// attempt.
func TestMaxRetriesBoundsHedges(t *testing.T) {
	t.Parallel()
	front := freeAddress()
	action := hedgePolicy()
	action["timeout"] = "300ms"
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", action))},
		clusters: list{cluster("app", object{"circuit_breakers": list{object{"max_retries": 1}}},
			startHangingUpstream(t, "Http1").address, startHangingUpstream(t, "Http1").address)},
	}.config())
	var pending []func() httpResponse
	for range 6 {
		pending = append(pending, requestInBackground(t, "http://"+front+"/"))
	}
	for _, wait := range pending {
		if got := wait(); got.status != 504 {
			t.Errorf("status %d, want 504", got.status)
		}
	}
	if rejected, hedges := w.metric("weft_cluster_overflow_total", `limit="retries"`), w.metric("weft_cluster_hedges_total"); rejected != 5 || hedges != 1 {
		t.Errorf("%v hedges rejected, %v sent, want 5 and 1", rejected, hedges)
	}
	eventually(t, "no retry is in flight", func() bool { return w.clusterState("app").Retries == 0 })
}

// hedgingExample runs hedging.json. Every request succeeds in both HTTP versions, although one host
// never responds. Requests of high priority have their own limits.
func hedgingExample(t *testing.T) {
	e := loadExample(t, "hedging.json")
	slow := startHangingUpstream(t, "Http1")
	e.replace("127.0.0.1:"+e.port["3271"], slow.address)
	startUpstreamAt(t, e.address("3272"), describeRequestAs("app"))
	w := e.run("hedging.json")
	w.admin = e.address("3267")
	for _, version := range []string{"Http1", "Http2"} {
		c := newClient(t)
		c.Transport.(*http.Transport).Protocols = httpProtocols(version)
		for _, path := range []string{"/prices", "/prices", "/orders", "/orders"} {
			if got := sendRequest(t, c, "GET", "http://"+e.address("3265")+path, ""); got.status != 200 || got.header.Get("X-App") != "app" || got.header.Get("X-Version") != "1" {
				t.Errorf("%s in %s: %d from %q in HTTP/%s; want 200, \"app\", \"1\"", path, version, got.status, got.header.Get("X-App"), got.header.Get("X-Version"))
			}
		}
	}
	if won := w.metric("weft_cluster_hedges_won_total"); won == 0 || w.metric("weft_cluster_hedges_total") < 4 {
		t.Errorf("%v hedges, of which %v won; want at least 4 and at least one that won", w.metric("weft_cluster_hedges_total"), won)
	}
	if n := w.metric("weft_cluster_breaker_remaining", `priority="high"`, `limit="requests"`); n != 10 {
		t.Errorf("high priority requests have %v remaining, want 10", n)
	}
}
