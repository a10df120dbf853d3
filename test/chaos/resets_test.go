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
// No client accepts a truncated response as complete. Weft retries idempotent requests whose client
// has received nothing yet. POSTs, and calls without a retry policy, reach a host once. Requests to
// another host are not affected.
func TestTruncatedResponses(t *testing.T) {
	r := newTestRun(t)
	http1Host, http2Host := r.newResettingHost(1, serveHTTP1), r.newResettingHost(2, serveHTTP2)
	rpcNoRetryHost, rpcRetryHost := r.newResettingHost(3, serveResettingRPC), r.newResettingHost(4, serveResettingRPC)
	_, healthy := r.newHost("healthy")

	retry := retryPolicy("reset", 3, "2s")
	http1Addr, http2Addr, noRetryAddr, retryAddr, healthyAddr := freeAddress(), freeAddress(), freeAddress(), freeAddress(), freeAddress()
	w := r.newWeft(setup{
		listeners: list{
			listener("http1", http1Addr, "Auto"), listener("http2", http2Addr, "Auto"), listener("no-retry", noRetryAddr, "dubbo"), listener("retry", retryAddr, "dubbo"),
			listener("healthy-rpc", healthyAddr, "dubbo"),
		},
		tables: list{
			routeTable("http1", route("/healthy", "healthy"), route("/plain", "http1"), route("/", "http1", retry)),
			routeTable("http2", route("/healthy", "healthy"), route("/plain", "http2"), route("/", "http2", retry)),
			routeTable("no-retry", route("/", "no-retry")), routeTable("retry", route("/", "retry", retry)), routeTable("healthy-rpc", route("/", "healthy-rpc")),
		},
		clusters: list{
			cluster("http1", []string{http1Host.address}), cluster("http2", []string{http2Host.address}),
			cluster("no-retry", []string{rpcNoRetryHost.address}), cluster("retry", []string{rpcRetryHost.address}),
			cluster("healthy", []string{healthy.http}), cluster("healthy-rpc", []string{healthy.rpc}),
		},
	}, nil, nil)
	http1Client, http2Client := r.newHTTPClient(http1Addr, false, plainDial), r.newHTTPClient(http2Addr, true, plainDial)
	noRetryClient, retryClient, healthyClient := r.newDubboClient(noRetryAddr, plainDial), r.newDubboClient(retryAddr, plainDial), r.newDubboClient(healthyAddr, plainDial)
	large := load{name: "http1-large", rate: 40, call: func(ctx context.Context, n int) (string, error) {
		return http1Client.request(ctx, http.MethodGet, "/echo", fmt.Sprintf("large-%d", n), 100_000)
	}}
	loads := []load{
		http1Client.getLoad("http1", "/echo", 60), http1Client.getLoad("http1-plain", "/plain", 60), http1Client.postLoad("http1-post", "/echo", 60), large,
		http2Client.getLoad("http2", "/echo", 60), http2Client.getLoad("http2-plain", "/plain", 60), http2Client.postLoad("http2-post", "/echo", 60),
		noRetryClient.callLoad("dubbo-no-retry", 60), retryClient.callLoad("dubbo-retry", 60),
		http1Client.getLoad("http1-healthy", "/healthy", 60), http2Client.getLoad("http2-healthy", "/healthy", 60), healthyClient.callLoad("dubbo-healthy", 60),
	}
	closeConns := func() {
		http1Client.transport.CloseIdleConnections()
		http2Client.transport.CloseIdleConnections()
		for _, c := range []*dubboClient{noRetryClient, retryClient, healthyClient} {
			c.close()
		}
	}
	w.warmUp(closeConns, loads...)
	results := r.runLoads(loads...)

	const latency = 250 * time.Millisecond
	failureKinds := []string{"502", "broken off", "reset stream", "status 35", "status 60", "status 80"}
	for name, maxFailed := range map[string]float64{
		"http1": 0.3, "http1-plain": 0.3, "http1-post": 0.3, "http1-large": 0.3,
		// All requests in flight on a connection fail when the connection ends. On a busy machine
		// many requests are in flight.
		"http2": 0.6, "http2-plain": 0.85, "http2-post": 0.85, "dubbo-no-retry": 0.7, "dubbo-retry": 0.4,
	} {
		r.check(results[name], bounds{allowedKinds: failureKinds, maxFailed: maxFailed, p99: latency, maxLatency: 9 * time.Second})
	}
	for _, name := range []string{"http1-healthy", "http2-healthy", "dubbo-healthy"} {
		r.check(results[name], bounds{p50: 20 * time.Millisecond, p99: latency})
	}
	// Retries reduce the failures of requests whose client has received nothing yet. Weft does not
	// retry a request after its response has started.
	retriableKinds := slices.DeleteFunc(slices.Clone(failureKinds), func(kind string) bool { return kind == "broken off" })
	for _, pair := range [][2]string{{"http1", "http1-plain"}, {"http2", "http2-plain"}, {"dubbo-retry", "dubbo-no-retry"}} {
		if with, without := results[pair[0]].failures(retriableKinds...), results[pair[1]].failures(retriableKinds...); with >= without {
			r.Errorf("%s failed %d times, %s without retries %d times; want fewer failures with retries", pair[0], with, pair[1], without)
		}
	}
	for _, posts := range []*opCounts{&http1Host.posts, &http2Host.posts, &rpcNoRetryHost.posts} {
		posts.checkOnce(r)
	}
	if n := w.metric("weft_cluster_retries_total", `cluster="no-retry"`); n != 0 {
		r.Errorf("%v calls without a retry policy were retried, want 0", n)
	}
	for _, name := range []string{"http1", "http2", "retry"} {
		if n := w.metric("weft_cluster_retries_total", fmt.Sprintf("cluster=%q", name)); n < r.duration.Seconds()/5 {
			r.Errorf("only %v requests of %s were retried", n, name)
		}
	}
	closeConns()
	w.checkNoLeak()
}
