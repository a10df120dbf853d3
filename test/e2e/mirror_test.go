package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// startShadow starts an upstream that reports each request on got: the request line, the header X-A
// and the digest of the body.
func startShadow(t *testing.T, protocol string) (address string, got chan string) {
	t.Helper()
	got = make(chan string, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("incomplete copy: %v", err)
		}
		got <- r.Method + " " + r.RequestURI + " " + r.Header.Get("X-A") + " " + digest(body)
		w.WriteHeader(http.StatusInternalServerError) // the response to a copy has no effect
	}))
	s.Config.Protocols = httpProtocols(protocol)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), got
}

// TestRequestsAreMirrored verifies that requests are mirrored between any two HTTP versions, unless
// the body is too large. The client gets the response of the upstream, not of the mirror cluster.
func TestRequestsAreMirrored(t *testing.T) {
	t.Parallel()
	for _, upstream := range []string{"Http1", "Http2"} {
		address, got := startShadow(t, upstream)
		app := httptest.NewUnstartedServer(http.HandlerFunc(respondDigest))
		app.Config.Protocols = httpProtocols(upstream)
		app.Start()
		t.Cleanup(app.Close)
		front := freeAddress()
		w := startWeft(t, setup{
			listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": "Auto", "upstream_protocol": upstream, "router_config_name": "front"}},
				object{"stream_filters": list{streamFilter("mirror", object{"cluster": "shadow", "upstream_protocol": upstream, "max_body_size": "100KB"})}})},
			tables:   list{routeTable("front", routeTo("/", "app"))},
			clusters: list{cluster("app", nil, app.Listener.Addr().String()), cluster("shadow", nil, address)},
		}.config())
		for version, c := range clients(t) {
			for _, size := range []int{0, 5, 100_000} {
				body := strings.Repeat("x", size)
				response := sendRequest(t, c, "POST", "http://"+front+"/a?b=c", body, "X-A: 1")
				if response.status != 200 || response.body != digest([]byte(body)) {
					t.Fatalf("%s to %s, %d bytes: the client got %d, want 200 and the digest of the body", version, upstream, size, response.status)
				}
				select {
				case copied := <-got:
					if want := "POST /a?b=c 1 " + digest([]byte(body)); copied != want {
						t.Errorf("%s to %s, %d bytes: the shadow got %s, want %s", version, upstream, size, copied, want)
					}
				case <-time.After(waitTimeout):
					t.Fatalf("%s to %s, %d bytes: the shadow got nothing", version, upstream, size)
				}
			}
			large := strings.Repeat("x", 200<<10)
			if response := sendRequest(t, c, "POST", "http://"+front+"/large", large); response.body != digest([]byte(large)) {
				t.Errorf("%s to %s: the upstream got a different large body, want the complete body", version, upstream)
			}
		}
		eventually(t, "the copies are counted", func() bool {
			return w.metric("weft_filter_mirror_copies_total", `result="succeeded"`) == 6 && w.metric("weft_filter_mirror_skipped_total", `reason="too_large"`) == 2
		})
	}
}

// TestHangingMirrorDelaysNoRequest verifies that a mirror cluster that never responds does not
// delay clients, and that max_in_flight and the timeout bound the copies.
func TestHangingMirrorDelaysNoRequest(t *testing.T) {
	t.Parallel()
	app, front := startUpstream(t, respondWith("app")), freeAddress()
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front, object{"stream_filters": list{
			streamFilter("mirror", object{"cluster": "shadow", "timeout": "1s", "max_in_flight": 3})}})},
		tables:   list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", nil, app.address), cluster("shadow", nil, unresponsiveAddress(t))},
	}.config())
	c := newClient(t)
	for range 10 {
		if got := sendRequest(t, c, "GET", "http://"+front, ""); got.status != 200 || got.took > time.Second {
			t.Errorf("%d after %v; want 200 within 1s", got.status, got.took)
		}
	}
	eventually(t, "every copy is counted", func() bool {
		return w.metric("weft_filter_mirror_copies_total", `result="failed"`)+w.metric("weft_filter_mirror_skipped_total", `reason="overflow"`) == 10
	})
	if n := w.metric("weft_filter_mirror_copies_total", `result="failed"`); n < 3 {
		t.Errorf("%v copies failed, want at least the first 3", n)
	}
}

// TestCallsAreMirrored verifies that a broadcast sends each call to every provider, unchanged
// except for its id.
func TestCallsAreMirrored(t *testing.T) {
	t.Parallel()
	copies := make(chan []byte, 100)
	record := func(frame []byte, _ int64) byte { copies <- frame; return dubboErred }
	first, second := startProvider(t, "first", record), startProvider(t, "second", record)
	shop := startProvider(t, "shop", nil)
	address := freeAddress()
	startWeft(t, setup{
		listeners: list{listenDubbo("front", address, object{"stream_filters": list{
			streamFilter("mirror", object{"cluster": "shadow", "broadcast": true})}})},
		tables:   list{routeTable("front", routeWhen("shop", "service: .*"))},
		clusters: list{cluster("shop", nil, shop.address), cluster("shadow", nil, first.address, second.address)},
	}.config())
	client := newConsumer(t, address)
	for range 3 {
		call := invocation{service: "org.example.Shop", method: "buy", attachments: []string{"user: tester"}}
		if got := client.call(call); got.status != dubboOK || got.text != "shop" {
			t.Fatalf("the client got %d %q; want dubboOK, \"shop\"", got.status, got.text)
		}
		for range 2 {
			select {
			case copied := <-copies:
				if diff := diffIgnoringID(copied, call.frame(0)); diff != "" {
					t.Errorf("the copy differs: %s", diff)
				}
			case <-time.After(waitTimeout):
				t.Fatal("a provider got no copy")
			}
		}
	}
	if first.calls.Load() != 3 || second.calls.Load() != 3 {
		t.Errorf("the providers got %d and %d copies, want 3 each", first.calls.Load(), second.calls.Load())
	}
}

func mirrorExample(t *testing.T) {
	address, got := startShadow(t, "Http1")
	app := startUpstream(t, respondWith("app"))
	e := loadExample(t, "mirror.json")
	e.replace(`{"name": "app", "hosts": [{"address": "`+e.address("2656")+`"}]}`, `{"name": "app", "hosts": [{"address": "`+app.address+`"}]}`)
	e.replace(`{"name": "shadow", "hosts": [{"address": "`+e.address("2656")+`"}]}`, `{"name": "shadow", "hosts": [{"address": "`+address+`"}]}`)
	e.run("mirror.json")
	c := newClient(t)
	for _, path := range []string{"/pay", "/twice", "/other"} {
		if response := sendRequest(t, c, "GET", "http://"+e.address("2655")+path, ""); response.status != 200 {
			t.Errorf("%s: %d, want 200", path, response.status)
		}
	}
	seen := map[string]int{}
	for range 3 {
		select {
		case copied := <-got:
			seen[strings.Fields(copied)[1]]++
		case <-time.After(waitTimeout):
			t.Fatalf("copies are missing; seen: %v", seen)
		}
	}
	if seen["/twice"] != 2 || seen["/other"] != 1 {
		t.Errorf("copies: %v, want 2 of /twice and 1 of /other", seen)
	}
}
