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
	var webAddrs, rpcAddrs []string
	for i := range 4 {
		_, addrs := r.newHost(fmt.Sprintf("host%d", i))
		webAddrs, rpcAddrs = append(webAddrs, addrs.http), append(rpcAddrs, addrs.rpc)
	}
	webAddr, grpcAddr, rpcAddr := freeAddress(), freeAddress(), freeAddress()
	config := func(n int) setup {
		twoOf := func(all []string) []string { return []string{all[n%4], all[(n+1)%4]} }
		name := fmt.Sprintf("web%d", n%3)
		return setup{
			listeners: list{listener("web", webAddr, "Auto"), listener("grpc", grpcAddr, "Http2"), listener("dubbo", rpcAddr, "dubbo")},
			tables: list{
				routeTable("web", route(fmt.Sprintf("/unused%d", n), "grpc"), route("/echo", name, object{"timeout": fmt.Sprintf("%ds", 8+n%3)})),
				routeTable("grpc", route("/", "grpc")), routeTable("dubbo", route("/", "dubbo")),
			},
			clusters: list{
				cluster(name, twoOf(webAddrs)),
				cluster("grpc", twoOf(webAddrs), object{"lb_type": []string{"LB_ROUNDROBIN", "LB_LEAST_REQUEST", "LB_RANDOM"}[n%3]}),
				cluster("dubbo", twoOf(rpcAddrs)),
			},
		}
	}
	w := r.newWeft(config(0), nil, nil)
	http1, http2, grpcClient, rpc := r.newHTTPClient(webAddr, false, plainDial), r.newHTTPClient(webAddr, true, plainDial), r.newHTTPClient(grpcAddr, true, plainDial), r.newDubboClient(rpcAddr, plainDial)
	loads := []load{
		http1.getLoad("http1", "/echo", 120), http2.getLoad("http2", "/echo", 120), grpcClient.grpcLoad("grpc", 120), rpc.callLoad("dubbo", 120),
		http1.getLoad("http1-slow", "/echo?wait=1500", 10), http2.getLoad("http2-slow", "/echo?wait=1500", 10),
	}
	closeConns := func() {
		for _, c := range []*httpClient{http1, http2, grpcClient} {
			c.transport.CloseIdleConnections()
		}
		rpc.close()
	}
	w.warmUp(closeConns, loads...)

	reloads := 0
	end := r.runInBackground(func(stop <-chan struct{}) {
		for sleep(stop, time.Second) {
			reloads++
			w.reload(config(reloads))
		}
	})
	all := r.runLoads(loads...)
	end()
	r.Logf("%d reloads", reloads)
	for _, name := range []string{"http1", "http2", "grpc", "dubbo"} {
		r.check(all[name], bounds{p50: 20 * time.Millisecond, p99: 300 * time.Millisecond})
	}
	for _, name := range []string{"http1-slow", "http2-slow"} {
		r.check(all[name], bounds{p99: slowCall + 300*time.Millisecond})
	}
	closeConns()
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
		res := results[l.name]
		r.check(res, bounds{allowedKinds: []string{"refused"}, maxFailed: 0.8})
		if res.failures() == 0 {
			r.Errorf("%s: no request failed after the exit, want refused connections", res.name)
		}
	}
}
