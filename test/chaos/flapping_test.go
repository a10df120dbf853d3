package chaos

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// TestHostsFlap verifies that retries, active health checks and outlier detection hide two of four
// hosts that repeatedly die, half of the time with a RST on each connection, and come back.
//
// Idempotent requests hardly ever fail. A POST fails only if its host dies during the request. Slow
// requests to the other two hosts all succeed, and no request to these hosts fails.
func TestHostsFlap(t *testing.T) {
	r := newTestRun(t)
	var hosts []*hostProcess
	var webAddrs, rpcAddrs []string
	for i := range 4 {
		p := r.newHostProcess(fmt.Sprintf("host%d", i))
		hosts = append(hosts, p)
		webAddrs, rpcAddrs = append(webAddrs, p.addresses.http), append(rpcAddrs, p.addresses.rpc)
	}
	healthChecked := func(check object) object {
		return object{
			"health_check": object{"timeout": "500ms", "interval": "200ms", "healthy_threshold": 2, "unhealthy_threshold": 2}.with(check),
			"outlier_detection": object{"consecutive_5xx": 3, "base_ejection_time": "500ms", "max_ejection_time": "1s",
				"interval": "200ms", "max_ejection_percent": 50},
		}
	}
	webAddr, grpcAddr, rpcAddr := freeAddress(), freeAddress(), freeAddress()
	w := r.newWeft(setup{
		listeners: list{listener("web", webAddr, "Auto"), listener("grpc", grpcAddr, "Http2"), listener("dubbo", rpcAddr, "dubbo")},
		tables: list{
			routeTable("web", route("/steady", "steady"), route("/", "web", retryPolicy("gateway-error,reset", 3, "2s"))),
			routeTable("grpc", route("/", "grpc", retryPolicy("reset,unavailable", 3, "2s"))),
			routeTable("dubbo", route("/", "dubbo", retryPolicy("reset", 3, "2s"))),
		},
		clusters: list{
			cluster("web", webAddrs, healthChecked(object{"protocol": "Http1"})),
			cluster("steady", webAddrs[2:]),
			cluster("grpc", webAddrs, healthChecked(object{"protocol": "TCP"})),
			cluster("dubbo", rpcAddrs, healthChecked(object{"protocol": "dubbo"})),
		},
	}, nil, nil)
	http1, http2, grpcClient, rpc := r.newHTTPClient(webAddr, false, plainDial), r.newHTTPClient(webAddr, true, plainDial), r.newHTTPClient(grpcAddr, true, plainDial), r.newDubboClient(rpcAddr, plainDial)
	loads := []load{
		http1.getLoad("http1", "/echo", 100), http1.postLoad("http1-post", "/echo", 40), http2.getLoad("http2", "/echo", 100),
		grpcClient.grpcLoad("grpc", 100), rpc.callLoad("dubbo", 100), slowLoad(http1, "http1-slow"), slowLoad(http2, "http2-slow"),
	}
	closeConns := func() {
		for _, c := range []*httpClient{http1, http2, grpcClient} {
			c.transport.CloseIdleConnections()
		}
		rpc.close()
	}
	w.warmUp(closeConns, loads...)

	deaths, stopFlapping := make([]int, 2), make([]func(), 2)
	for i := range deaths {
		stopFlapping[i] = r.runInBackground(func(stop <-chan struct{}) { deaths[i] = hosts[i].flap(stop, r.newRand(uint64(i))) })
	}
	results := r.runLoads(loads...)
	for _, end := range stopFlapping {
		end()
	}
	r.Logf("the two hosts died %d and %d times", deaths[0], deaths[1])
	if deaths[0]+deaths[1] < int(r.duration.Seconds())/4 {
		r.Errorf("the hosts died %d times, want at least once every 4 s", deaths[0]+deaths[1])
	}

	const latency = 250 * time.Millisecond
	for _, name := range []string{"http1", "http2", "grpc", "dubbo"} {
		r.check(results[name], bounds{allowedKinds: []string{"502", "503", "504", "broken off", "reset stream", "grpc 14", "status 31", "status 80"},
			maxFailed: 0.002, p50: 20 * time.Millisecond, p99: latency, maxLatency: 9 * time.Second, maxRetries: 3})
	}
	r.check(results["http1-post"], bounds{allowedKinds: []string{"502", "503", "broken off"}, maxFailed: 0.02, p99: latency, maxLatency: 9 * time.Second})
	for _, name := range []string{"http1-slow", "http2-slow"} {
		r.check(results[name], bounds{p99: slowCall + latency})
	}
	for _, p := range hosts[2:] {
		for _, address := range []string{p.addresses.http, p.addresses.rpc} {
			if n := w.metric("weft_host_request_failures_total", fmt.Sprintf("host=%q", address)); n != 0 {
				r.Errorf("%v requests to %s failed although the host is alive", n, p.name)
			}
		}
	}
	closeConns()
	w.checkNoLeak()
}

// slowCall is the duration of a response that must survive the death of other hosts.
const slowCall = 1500 * time.Millisecond

// slowLoad returns a load of slow requests to the hosts that stay alive.
func slowLoad(c *httpClient, name string) load {
	return c.getLoad(name, fmt.Sprintf("/steady?wait=%d", slowCall.Milliseconds()), 10)
}

// flap kills and restarts the process until stop is closed, and returns the number of deaths. The
// process runs when flap returns.
func (p *hostProcess) flap(stop <-chan struct{}, rng *rand.Rand) int {
	for deaths := 0; ; deaths++ {
		if !sleep(stop, 500*time.Millisecond+time.Duration(rng.ExpFloat64()*float64(time.Second))) {
			return deaths
		}
		p.signalAndWait([]syscall.Signal{syscall.SIGKILL, syscall.SIGUSR1}[rng.IntN(2)])
		sleep(stop, time.Duration(rng.IntN(1500))*time.Millisecond)
		if err := p.start(); err != nil {
			p.r.Error(err)
			return deaths
		}
	}
}
