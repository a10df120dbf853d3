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
	var pages, rpcs []string
	var impaired *netns.Link
	for i := range 3 {
		name := fmt.Sprintf("host%d", i)
		ns := network.Namespace(name)
		link := network.ConnectTUN(proxy, ns, r.seed+uint64(i))
		if i == 0 {
			impaired = link
		}
		page, rpc := r.listenIn(ns, link.B.IPv4.String()), r.listenIn(ns, link.B.IPv4.String())
		r.Cleanup(newHost(name, page, rpc, nil).close)
		pages, rpcs = append(pages, page.Addr().String()), append(rpcs, rpc.Addr().String())
	}
	timeouts := func(path, name string) object {
		return route(path, name, object{"timeout": "3s", "retry_policy": object{"retry_on": "reset,gateway-error", "num_retries": 2, "retry_timeout": "1s"}})
	}
	// No other process listens in the namespace.
	const pageAt, rpcAt = "127.0.0.1:8080", "127.0.0.1:8081"
	w := r.newWeft(setup{
		listeners: list{listener("web", pageAt, "Auto"), listener("dubbo", rpcAt, "dubbo")},
		tables: list{
			routeTable("web", route("/others", "others"), timeouts("/least", "least"), timeouts("/ewma", "ewma"), timeouts("/turns", "turns"),
				route("/impatient", "sick", object{"timeout": "500ms"})),
			routeTable("dubbo", timeouts("/", "rpc")),
		},
		clusters: list{
			cluster("others", pages[1:]),
			cluster("sick", pages[:1]),
			cluster("least", pages, object{"lb_type": "LB_LEAST_REQUEST"}),
			cluster("ewma", pages, object{"lb_type": "LB_PEAK_EWMA"}),
			cluster("turns", pages),
			cluster("rpc", rpcs, object{"lb_type": "LB_PEAK_EWMA"}),
		},
	}, func(name string, args ...string) *exec.Cmd { return proxy.Command(name, args...) }, proxy.DialContext)
	first, second, rpc := r.newHTTPClient(pageAt, false, proxy.DialContext), r.newHTTPClient(pageAt, true, proxy.DialContext), r.newDubboClient(rpcAt, proxy.DialContext)
	loads := []load{
		first.getLoad("others", "/others", 50), first.getLoad("least-request", "/least", 50), first.getLoad("peak-ewma", "/ewma", 50),
		first.getLoad("turns", "/turns", 20), second.getLoad("others-http2", "/others", 50), second.getLoad("peak-ewma-http2", "/ewma", 50),
		first.getLoad("impatient", "/impatient", 10), rpc.callLoad("dubbo-peak-ewma", 50),
	}
	hangUp := func() {
		first.transport.CloseIdleConnections()
		second.transport.CloseIdleConnections()
		rpc.close()
	}
	w.warmUp(hangUp, loads...)

	if err := impaired.Impair(impaired.B.Namespace, netns.Impairment{Delay: 200 * time.Millisecond, Loss: 0.3}); err != nil {
		r.Fatal(err)
	}
	results := r.runLoads(loads...)
	if err := impaired.Impair(impaired.B.Namespace, netns.Impairment{}); err != nil {
		r.Fatal(err)
	}

	const untouched = 100 * time.Millisecond
	for _, name := range []string{"others", "others-http2"} {
		r.check(results[name], bounds{p50: 10 * time.Millisecond, p99: untouched})
	}
	// All attempts end within the route timeout plus a margin.
	const timeout, moment = 3 * time.Second, 500 * time.Millisecond
	late := []string{"504", "broken off"} // 504, or broken off if the response headers arrived in time
	r.check(results["least-request"], bounds{allowedKinds: late, maxFailed: 0.02, p50: 20 * time.Millisecond, maxLatency: timeout + moment})
	for _, name := range []string{"peak-ewma", "peak-ewma-http2"} {
		r.check(results[name], bounds{allowedKinds: late, maxFailed: 0.02, p50: 20 * time.Millisecond, maxLatency: timeout + moment})
	}
	r.check(results["dubbo-peak-ewma"], bounds{allowedKinds: []string{"status 31"}, maxFailed: 0.02, p50: 20 * time.Millisecond, maxLatency: timeout + moment})
	r.check(results["turns"], bounds{allowedKinds: late, maxFailed: 0.05, maxLatency: timeout + moment})
	// Clients that use only the impaired host, with a short timeout.
	r.check(results["impatient"], bounds{allowedKinds: late, maxFailed: 1, maxLatency: 500*time.Millisecond + moment})

	for name, maximum := range map[string]float64{"least-request": 0.25, "peak-ewma": 0.12, "peak-ewma-http2": 0.12} {
		if got := results[name].fraction("host0"); got > maximum {
			r.Errorf("%s: %.1f %% of the responses are from the impaired host, want at most %.1f %%", name, 100*got, 100*maximum)
		}
		for _, healthy := range []string{"host1", "host2"} {
			if got := results[name].fraction(healthy); got < 0.3 {
				r.Errorf("%s: only %.1f %% of the responses are from %s", name, 100*got, healthy)
			}
		}
	}
	for _, address := range []string{pages[1], pages[2], rpcs[1], rpcs[2]} {
		if n := w.metric("weft_host_request_failures_total", fmt.Sprintf("host=%q", address)); n != 0 {
			r.Errorf("%v requests to %s failed although its link is not impaired", n, address)
		}
	}
	hangUp()
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
