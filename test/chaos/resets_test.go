package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestTruncatedResponses verifies that Weft handles hosts that reset the connection in a fifth of
// the responses: before the first byte, in the head, in a body with Content-Length, in a chunk, in
// an HTTP/2 or Dubbo frame, one byte before the end.
//
// No client takes a truncated response for a complete one. Weft retries idempotent requests whose
// client has received nothing yet; POSTs, and calls without a retry policy, reach a host once.
// Another host is not affected.
func TestTruncatedResponses(t *testing.T) {
	r := newTestRun(t)
	first, second := r.newResettingHost(1, serveHTTP1), r.newResettingHost(2, serveHTTP2)
	rpcOnce, rpcAgain := r.newResettingHost(3, serveResettingRPC), r.newResettingHost(4, serveResettingRPC)
	_, well := r.newHost("well")

	retried := retryPolicy("reset", 3, "2s")
	oneAt, twoAt, onceAt, againAt, wellAt := freePort(), freePort(), freePort(), freePort(), freePort()
	w := r.newWeft(setup{
		listeners: list{
			listener("one", oneAt, "Auto"), listener("two", twoAt, "Auto"), listener("once", onceAt, "dubbo"), listener("again", againAt, "dubbo"),
			listener("wellrpc", wellAt, "dubbo"),
		},
		tables: list{
			routeTable("one", route("/well", "well"), route("/plain", "one"), route("/", "one", retried)),
			routeTable("two", route("/well", "well"), route("/plain", "two"), route("/", "two", retried)),
			routeTable("once", route("/", "once")), routeTable("again", route("/", "again", retried)), routeTable("wellrpc", route("/", "wellrpc")),
		},
		clusters: list{
			cluster("one", []string{first.address}), cluster("two", []string{second.address}),
			cluster("once", []string{rpcOnce.address}), cluster("again", []string{rpcAgain.address}),
			cluster("well", []string{well.http}), cluster("wellrpc", []string{well.rpc}),
		},
	}, nil, nil)
	oneCaller, twoCaller := r.newHTTPClient(oneAt, false, plainDial), r.newHTTPClient(twoAt, true, plainDial)
	once, other, calm := r.newDubboClient(onceAt, plainDial), r.newDubboClient(againAt, plainDial), r.newDubboClient(wellAt, plainDial)
	large := load{name: "http1-large", rate: 40, call: func(ctx context.Context, n int) (string, error) {
		return oneCaller.request(ctx, http.MethodGet, "/echo", fmt.Sprintf("large-%d", n), 100_000)
	}}
	loads := []load{
		oneCaller.getLoad("http1", "/echo", 60), oneCaller.getLoad("http1-plain", "/plain", 60), oneCaller.postLoad("http1-post", "/echo", 60), large,
		twoCaller.getLoad("http2", "/echo", 60), twoCaller.getLoad("http2-plain", "/plain", 60), twoCaller.postLoad("http2-post", "/echo", 60),
		once.callLoad("dubbo-once", 60), other.callLoad("dubbo-again", 60),
		oneCaller.getLoad("http1-well", "/well", 60), twoCaller.getLoad("http2-well", "/well", 60), calm.callLoad("dubbo-well", 60),
	}
	hangUp := func() {
		oneCaller.transport.CloseIdleConnections()
		twoCaller.transport.CloseIdleConnections()
		for _, c := range []*dubboClient{once, other, calm} {
			c.close()
		}
	}
	w.warmUp(hangUp, loads...)
	results := r.runLoads(loads...)

	const latency = 250 * time.Millisecond
	broken := []string{"502", "broken off", "reset stream", "status 35", "status 60", "status 80"}
	for name, failed := range map[string]float64{
		"http1": 0.3, "http1-plain": 0.3, "http1-post": 0.3, "http1-large": 0.3,
		// A connection that ends fails all requests in flight on it: many, if the machine was busy
		// for a while.
		"http2": 0.6, "http2-plain": 0.85, "http2-post": 0.85, "dubbo-once": 0.7, "dubbo-again": 0.4,
	} {
		r.check(results[name], bounds{allowedKinds: broken, maxFailed: failed, p99: latency, maxLatency: 9 * time.Second})
	}
	for _, name := range []string{"http1-well", "http2-well", "dubbo-well"} {
		r.check(results[name], bounds{p50: 20 * time.Millisecond, p99: latency})
	}
	// Among the requests whose client has received nothing yet, more fail without retries than
	// with. Responses that break off later are not retried.
	early := slices.DeleteFunc(slices.Clone(broken), func(kind string) bool { return kind == "broken off" })
	for _, pair := range [][2]string{{"http1", "http1-plain"}, {"http2", "http2-plain"}, {"dubbo-again", "dubbo-once"}} {
		if with, without := results[pair[0]].failures(early...), results[pair[1]].failures(early...); with >= without {
			r.Errorf("%s failed %d times, %s without retries %d times; want fewer failures with retries", pair[0], with, pair[1], without)
		}
	}
	for _, l := range []*opCounts{&first.posts, &second.posts, &rpcOnce.posts} {
		l.checkOnce(r)
	}
	if n := w.metric("weft_cluster_retries_total", `cluster="once"`); n != 0 {
		r.Errorf("%v calls without a retry policy were retried", n)
	}
	for _, name := range []string{"one", "two", "again"} {
		if n := w.metric("weft_cluster_retries_total", fmt.Sprintf("cluster=%q", name)); n < r.duration.Seconds()/5 {
			r.Errorf("only %v requests of %s were retried", n, name)
		}
	}
	hangUp()
	w.checkNoLeak()
}
