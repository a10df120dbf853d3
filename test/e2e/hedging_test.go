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

// stuck is an upstream that never responds and reports canceled requests.
type stuck struct {
	address string
	asked   atomic.Int64
	left    chan struct{} // gets a value for each canceled request
}

func stick(t *testing.T, protocol string) *stuck {
	t.Helper()
	a := &stuck{left: make(chan struct{}, 1000)}
	over := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server detects a disconnect
		a.asked.Add(1)
		select {
		case <-r.Context().Done():
			a.left <- struct{}{}
		case <-over:
		}
	}))
	s.Config.Protocols = speaking(protocol)
	s.Start()
	a.address = s.Listener.Addr().String()
	t.Cleanup(func() { close(over); s.Close() })
	return a
}

// standing is what /clusters reports about a cluster.
type standing struct {
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

func (w *weft) standing(cluster string) standing {
	w.t.Helper()
	var all []standing
	if err := json.Unmarshal([]byte(w.get("/clusters")), &all); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == cluster {
			return c
		}
	}
	w.t.Fatalf("/clusters has no cluster %s", cluster)
	return standing{}
}

// hedging returns a route action that hedges a request after 50 ms.
func hedging() object {
	return object{
		"retry_policy": object{"retry_on": "5xx", "num_retries": 1, "per_try_timeout": "50ms"},
		"hedge_policy": object{"hedge_on_per_try_timeout": true},
	}
}

// manyHedges raises max_retries of a cluster, which bounds the hedges in flight, from the default
// of 3.
func manyHedges(cluster object) object {
	cluster["circuit_breakers"] = list{object{"max_retries": 100}}
	return cluster
}

// TestASlowHostIsHedged verifies hedging for each pair of protocols. One of the two hosts never
// responds, and each request has its own body.
func TestASlowHostIsHedged(t *testing.T) {
	t.Parallel()
	for _, p := range []*pair{
		{down: "Http1", up: "Http1"}, {down: "Http1", up: "Http2"},
		{down: "Http2", up: "Http1"}, {down: "Http2", up: "Http2"},
		{down: "Http2", up: "Http2", grpc: true},
	} {
		t.Run(p.name(), func(t *testing.T) {
			t.Parallel()
			slow := stick(t, p.up)
			fast := httptest.NewUnstartedServer(tells("app"))
			fast.Config.Protocols = speaking(p.up)
			fast.Start()
			t.Cleanup(fast.Close)
			front := free()
			w := run(t, setup{
				listeners: list{chained("front", front, object{"type": "proxy", "config": object{"downstream_protocol": p.down, "router_config_name": "front"}})},
				tables:    list{table("front", to("/", "app", hedging()))},
				clusters:  list{cluster("app", manyHedges(object{"upstream_protocol": p.up}), slow.address, fast.Listener.Addr().String())},
			}.config())
			c := client(t)
			c.Transport.(*http.Transport).Protocols = speaking(p.down)
			const callers, each = 8, 5
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for n := range each {
						content := fmt.Sprintf("%d/%d ", i, n) + strings.Repeat("x", 100*i*n)
						p.ask(t, c, "http://"+front, &trial{method: "PUT", path: fmt.Sprintf("/shop.Shop/%d.%d", i, n), content: content,
							status: 200, code: "0", body: content, want: map[string]string{"X-App": "app", "X-Asked": p.asked(i, n)}})
					}
				})
			}
			all.Wait()
			asked := slow.asked.Load()
			if asked == 0 {
				t.Fatal("no request went to the slow host first")
			}
			for range asked {
				<-slow.left
			}
			w.checkHedges(asked)
			for _, h := range w.standing("app").Hosts {
				if h.Failures != 0 || h.InFlight != 0 {
					t.Errorf("%s has %d failures, %d in flight", h.Address, h.Failures, h.InFlight)
				}
			}
		})
	}
}

// checkHedges waits until each attempt of the slow host is counted as canceled. On a busy machine
// the other host may be slow too. Then it may get the first attempt, and its response may arrive
// before the hedged attempt has a host. That counts as a hedge, but not as a canceled attempt.
func (w *weft) checkHedges(asked int64) {
	w.t.Helper()
	eventually(w.t, "each try of the slow host is counted as canceled", func() bool {
		hedges, won := w.metric("weft_cluster_hedges_total"), w.metric("weft_cluster_hedges_won_total")
		canceled := w.metric("weft_cluster_attempts_cancelled_total")
		return hedges >= float64(asked) && won > 0 && won <= hedges && canceled >= float64(asked) && canceled <= hedges &&
			w.metric("weft_cluster_requests_active") == 0
	})
}

// asked returns the X-Asked header that the upstream must send.
func (p *pair) asked(i, n int) string {
	method := "PUT"
	if p.grpc {
		method = "POST"
	}
	return fmt.Sprintf("%s shop.test/shop.Shop/%d.%d", method, i, n)
}

// TestASlowProviderIsHedged verifies hedging of Dubbo calls, several in flight on one connection.
// Each call must get its own response.
func TestASlowProviderIsHedged(t *testing.T) {
	t.Parallel()
	slow, fast := provide(t, "slow", func([]byte, int64) byte { return silence }), provide(t, "fast", nil)
	front := free()
	w := run(t, setup{
		listeners: list{listenDubbo("front", front)},
		tables:    list{table("front", to("/", "app", hedging()))},
		clusters:  list{cluster("app", manyHedges(object{}), slow.address, fast.address)},
	}.config())
	caller := consume(t, front)
	const calls = 20
	var all []invocation
	for range calls {
		all = append(all, invocation{service: "org.example.Shop", method: "buy"})
	}
	began := time.Now()
	caller.send(all...)
	answered := make(map[uint64]bool)
	for range calls {
		got := caller.answer()
		if got.status != dubboOK || got.text != "fast" || answered[got.id] || got.id == 0 || got.id > calls {
			t.Errorf("answer %d: %d %q", got.id, got.status, got.text)
		}
		answered[got.id] = true
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("all were answered after %v", took)
	}
	w.checkHedges(slow.calls.Load())
}

// TestHedgesAreRetriesForBreakers verifies that max_retries bounds the requests with a hedged
// attempt.
func TestHedgesAreRetriesForBreakers(t *testing.T) {
	t.Parallel()
	front := free()
	action := hedging()
	action["timeout"] = "300ms"
	w := run(t, setup{
		listeners: list{listen("front", front)},
		tables:    list{table("front", to("/", "app", action))},
		clusters: list{cluster("app", object{"circuit_breakers": list{object{"max_retries": 1}}},
			stick(t, "Http1").address, stick(t, "Http1").address)},
	}.config())
	var waits []func() answer
	for range 6 {
		waits = append(waits, background(t, "http://"+front+"/"))
	}
	for _, wait := range waits {
		if got := wait(); got.status != 504 {
			t.Errorf("status %d, want 504", got.status)
		}
	}
	if refused, hedges := w.metric("weft_cluster_overflow_total", `limit="retries"`), w.metric("weft_cluster_hedges_total"); refused != 5 || hedges != 1 {
		t.Errorf("%v tries were refused, and %v made, want 5 and 1", refused, hedges)
	}
	eventually(t, "no retry is left", func() bool { return w.standing("app").Retries == 0 })
}

// hedgingExample runs hedging.json. Every request succeeds in both HTTP versions, although one host
// never responds, and requests of high priority have their own limits.
func hedgingExample(t *testing.T) {
	e := openExample(t, "hedging.json")
	slow := stick(t, "Http1")
	e.replace("127.0.0.1:"+e.port["3271"], slow.address)
	serveAt(t, e.at("3272"), tells("app"))
	w := e.run("hedging.json")
	w.admin = e.at("3267")
	for _, version := range []string{"Http1", "Http2"} {
		c := client(t)
		c.Transport.(*http.Transport).Protocols = speaking(version)
		for _, path := range []string{"/prices", "/prices", "/orders", "/orders"} {
			if got := ask(t, c, "GET", "http://"+e.at("3265")+path, ""); got.status != 200 || got.header.Get("X-App") != "app" || got.header.Get("X-Version") != "1" {
				t.Errorf("%s in %s: %d from %q in HTTP/%s", path, version, got.status, got.header.Get("X-App"), got.header.Get("X-Version"))
			}
		}
	}
	if won := w.metric("weft_cluster_hedges_won_total"); won == 0 || w.metric("weft_cluster_hedges_total") < 4 {
		t.Errorf("%v hedges, of which %v were the callers'", w.metric("weft_cluster_hedges_total"), won)
	}
	if n := w.metric("weft_cluster_breaker_remaining", `priority="high"`, `limit="requests"`); n != 10 {
		t.Errorf("the operator's requests have %v left, want 10", n)
	}
}
