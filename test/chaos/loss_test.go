package chaos

import (
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/netns"
)

// TestPacketLoss verifies that one of three hosts whose link delays packets by 200 ms and loses 30
// % of them hardly affects requests to the other hosts. Weft and the hosts are in network
// namespaces.
//
// Least request and peak EWMA send that host less than its share. Requests to the other hosts are
// as fast as before. Requests to the impaired host end at the timeout of the route at the latest.
func TestPacketLoss(t *testing.T) {
	r := newTestRun(t)
	network := netns.New(t)
	proxy := network.Namespace("proxy")
	var webAddrs, rpcAddrs []string
	var impaired *netns.Link
	for i := range 3 {
		name := fmt.Sprintf("host%d", i)
		ns := network.Namespace(name)
		link := network.ConnectTUN(proxy, ns, r.seed+uint64(i))
		if i == 0 {
			impaired = link
		}
		web, rpc := r.listenIn(ns, link.B.IPv4.String()), r.listenIn(ns, link.B.IPv4.String())
		r.Cleanup(newHost(name, web, rpc, nil).close)
		webAddrs, rpcAddrs = append(webAddrs, web.Addr().String()), append(rpcAddrs, rpc.Addr().String())
	}
	retryRoute := func(path, name string) object {
		return route(path, name, object{"timeout": "3s", "retry_policy": object{"retry_on": "reset,gateway-error", "num_retries": 2, "retry_timeout": "1s"}})
	}
	// No other process listens in the namespace.
	const webAddr, rpcAddr = "127.0.0.1:8080", "127.0.0.1:8081"
	w := r.newWeft(setup{
		listeners: list{listener("web", webAddr, "Auto"), listener("dubbo", rpcAddr, "dubbo")},
		tables: list{
			routeTable("web", route("/others", "others"), retryRoute("/least", "least"), retryRoute("/ewma", "ewma"), retryRoute("/round-robin", "round-robin"),
				route("/short-timeout", "impaired", object{"timeout": "500ms"})),
			routeTable("dubbo", retryRoute("/", "rpc")),
		},
		clusters: list{
			cluster("others", webAddrs[1:]),
			cluster("impaired", webAddrs[:1]),
			cluster("least", webAddrs, object{"lb_type": "LB_LEAST_REQUEST"}),
			cluster("ewma", webAddrs, object{"lb_type": "LB_PEAK_EWMA"}),
			cluster("round-robin", webAddrs),
			cluster("rpc", rpcAddrs, object{"lb_type": "LB_PEAK_EWMA"}),
		},
	}, func(name string, args ...string) *exec.Cmd { return proxy.Command(name, args...) }, proxy.DialContext)
	http1, http2, rpc := r.newHTTPClient(webAddr, false, proxy.DialContext), r.newHTTPClient(webAddr, true, proxy.DialContext), r.newDubboClient(rpcAddr, proxy.DialContext)
	loads := []load{
		http1.getLoad("others", "/others", 50), http1.getLoad("least-request", "/least", 50), http1.getLoad("peak-ewma", "/ewma", 50),
		http1.getLoad("round-robin", "/round-robin", 20), http2.getLoad("others-http2", "/others", 50), http2.getLoad("peak-ewma-http2", "/ewma", 50),
		http1.getLoad("short-timeout", "/short-timeout", 10), rpc.callLoad("dubbo-peak-ewma", 50),
	}
	closeConns := func() {
		http1.transport.CloseIdleConnections()
		http2.transport.CloseIdleConnections()
		rpc.close()
	}
	w.warmUp(closeConns, loads...)

	if err := impaired.Impair(impaired.B.Namespace, netns.Impairment{Delay: 200 * time.Millisecond, Loss: 0.3}); err != nil {
		r.Fatal(err)
	}
	results := r.runLoads(loads...)
	if err := impaired.Impair(impaired.B.Namespace, netns.Impairment{}); err != nil {
		r.Fatal(err)
	}

	const maxP99 = 100 * time.Millisecond
	for _, name := range []string{"others", "others-http2"} {
		r.check(results[name], bounds{p50: 10 * time.Millisecond, p99: maxP99})
	}
	// All requests end within the route timeout plus a margin.
	const timeout, margin = 3 * time.Second, 500 * time.Millisecond
	timeoutKinds := []string{"504", "broken off"} // "broken off" if the response headers arrived in time
	r.check(results["least-request"], bounds{allowedKinds: timeoutKinds, maxFailed: 0.02, p50: 20 * time.Millisecond, maxLatency: timeout + margin})
	for _, name := range []string{"peak-ewma", "peak-ewma-http2"} {
		r.check(results[name], bounds{allowedKinds: timeoutKinds, maxFailed: 0.02, p50: 20 * time.Millisecond, maxLatency: timeout + margin})
	}
	r.check(results["dubbo-peak-ewma"], bounds{allowedKinds: []string{"status 31"}, maxFailed: 0.02, p50: 20 * time.Millisecond, maxLatency: timeout + margin})
	r.check(results["round-robin"], bounds{allowedKinds: timeoutKinds, maxFailed: 0.05, maxLatency: timeout + margin})
	// Clients that use only the impaired host, with a short timeout.
	r.check(results["short-timeout"], bounds{allowedKinds: timeoutKinds, maxFailed: 1, maxLatency: 500*time.Millisecond + margin})

	for name, maximum := range map[string]float64{"least-request": 0.25, "peak-ewma": 0.12, "peak-ewma-http2": 0.12} {
		if got := results[name].fraction("host0"); got > maximum {
			r.Errorf("%s: %.1f %% of the responses are from the impaired host, want at most %.1f %%", name, 100*got, 100*maximum)
		}
		for _, healthy := range []string{"host1", "host2"} {
			if got := results[name].fraction(healthy); got < 0.3 {
				r.Errorf("%s: only %.1f %% of the responses are from %s, want at least 30 %%", name, 100*got, healthy)
			}
		}
	}
	for _, address := range []string{webAddrs[1], webAddrs[2], rpcAddrs[1], rpcAddrs[2]} {
		if n := w.metric("weft_host_request_failures_total", fmt.Sprintf("host=%q", address)); n != 0 {
			r.Errorf("%v requests to %s failed although its link is not impaired", n, address)
		}
	}
	closeConns()
	w.checkNoLeak()
}

// listenIn listens in a namespace.
func (r *testRun) listenIn(ns *netns.Namespace, ip string) net.Listener {
	r.Helper()
	l, err := ns.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		r.Fatal(err)
	}
	return l
}
