package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// TestReloadsAndDrain verifies that no request fails while the configuration is reloaded every
// second with other routes, clusters and hosts. It then terminates the process under load and
// verifies that only refused connections fail: requests in flight complete and keepalive
// connections are drained.
func TestReloadsAndDrain(t *testing.T) {
	r := newTestRun(t)
	var pages, rpcs []string
	for i := range 4 {
		_, addrs := r.newHost(fmt.Sprintf("host%d", i))
		pages, rpcs = append(pages, addrs.http), append(rpcs, addrs.rpc)
	}
	pageAt, grpcAt, rpcAt := freePort(), freePort(), freePort()
	config := func(n int) setup {
		twoOf := func(results []string) []string { return []string{results[n%4], results[(n+1)%4]} }
		name := fmt.Sprintf("web%d", n%3)
		return setup{
			listeners: list{listener("web", pageAt, "Auto"), listener("grpc", grpcAt, "Http2"), listener("dubbo", rpcAt, "dubbo")},
			tables: list{
				routeTable("web", route(fmt.Sprintf("/nobody%d", n), "grpc"), route("/echo", name, object{"timeout": fmt.Sprintf("%ds", 8+n%3)})),
				routeTable("grpc", route("/", "grpc")), routeTable("dubbo", route("/", "dubbo")),
			},
			clusters: list{
				cluster(name, twoOf(pages)),
				cluster("grpc", twoOf(pages), object{"lb_type": []string{"LB_ROUNDROBIN", "LB_LEAST_REQUEST", "LB_RANDOM"}[n%3]}),
				cluster("dubbo", twoOf(rpcs)),
			},
		}
	}
	w := r.newWeft(config(0), nil, nil)
	first, second, unary, rpc := r.newHTTPClient(pageAt, false, plainDial), r.newHTTPClient(pageAt, true, plainDial), r.newHTTPClient(grpcAt, true, plainDial), r.newDubboClient(rpcAt, plainDial)
	loads := []load{
		first.getLoad("http1", "/echo", 120), second.getLoad("http2", "/echo", 120), unary.grpcLoad("grpc", 120), rpc.callLoad("dubbo", 120),
		first.getLoad("http1-slow", "/echo?wait=1500", 10), second.getLoad("http2-slow", "/echo?wait=1500", 10),
	}
	hangUp := func() {
		for _, c := range []*httpClient{first, second, unary} {
			c.transport.CloseIdleConnections()
		}
		rpc.close()
	}
	w.warmUp(hangUp, loads...)

	reloads := 0
	end := r.runInBackground(func(stop <-chan struct{}) {
		for sleep(stop, time.Second) {
			reloads++
			w.reload(config(reloads))
		}
	})
	results := r.runLoads(loads...)
	end()
	r.Logf("%d reloads", reloads)
	for _, name := range []string{"http1", "http2", "grpc", "dubbo"} {
		r.check(results[name], bounds{p50: 20 * time.Millisecond, p99: 300 * time.Millisecond})
	}
	for _, name := range []string{"http1-slow", "http2-slow"} {
		r.check(results[name], bounds{p99: slowCall + 300*time.Millisecond})
	}
	hangUp()
	w.checkNoLeak()

	r.drain(w, loads)
}

// drain terminates the process in the middle of the loads and verifies that only requests on
// refused connections fail.
func (r *testRun) drain(w *weft, loads []load) {
	r.Helper()
	end := r.runInBackground(func(<-chan struct{}) {
		sleep(nil, 2*time.Second)
		w.signal(syscall.SIGTERM)
		w.awaitExit(waitTimeout)
	})
	loads = withSuffix(loads, ", drain")
	results := r.runLoadsFor(5*time.Second, loads...)
	end()
	for _, l := range loads {
		t := results[l.name]
		r.check(t, bounds{allowedKinds: []string{"refused"}, maxFailed: 0.8})
		if t.failures() == 0 {
			r.Errorf("%s: no request failed after the exit, want refused connections", t.name)
		}
	}
}
