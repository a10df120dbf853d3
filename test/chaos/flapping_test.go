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
// Idempotent requests hardly ever fail. A POST fails only if its host dies with it. Slow requests
// to the other two hosts all succeed, and no request to these hosts fails.
func TestHostsFlap(t *testing.T) {
	r := newTestRun(t)
	var mortals []*hostProcess
	var pages, rpcs []string
	for i := range 4 {
		p := r.newHostProcess(fmt.Sprintf("host%d", i))
		mortals = append(mortals, p)
		pages, rpcs = append(pages, p.addresses.http), append(rpcs, p.addresses.rpc)
	}
	guarded := func(check object) object {
		return object{
			"health_check": object{"timeout": "500ms", "interval": "200ms", "healthy_threshold": 2, "unhealthy_threshold": 2}.with(check),
			"outlier_detection": object{"consecutive_5xx": 3, "base_ejection_time": "500ms", "max_ejection_time": "1s",
				"interval": "200ms", "max_ejection_percent": 50},
		}
	}
	pageAt, grpcAt, rpcAt := freePort(), freePort(), freePort()
	w := r.newWeft(setup{
		listeners: list{listener("web", pageAt, "Auto"), listener("grpc", grpcAt, "Http2"), listener("dubbo", rpcAt, "dubbo")},
		tables: list{
			routeTable("web", route("/steady", "steady"), route("/", "web", retryPolicy("gateway-error,reset", 3, "2s"))),
			routeTable("grpc", route("/", "grpc", retryPolicy("reset,unavailable", 3, "2s"))),
			routeTable("dubbo", route("/", "dubbo", retryPolicy("reset", 3, "2s"))),
		},
		clusters: list{
			cluster("web", pages, guarded(object{"protocol": "Http1"})),
			cluster("steady", pages[2:]),
			cluster("grpc", pages, guarded(object{"protocol": "TCP"})),
			cluster("dubbo", rpcs, guarded(object{"protocol": "dubbo"})),
		},
	}, nil, nil)
	first, second, unary, rpc := r.newHTTPClient(pageAt, false, plainDial), r.newHTTPClient(pageAt, true, plainDial), r.newHTTPClient(grpcAt, true, plainDial), r.newDubboClient(rpcAt, plainDial)
	loads := []load{
		first.getLoad("http1", "/echo", 100), first.postLoad("http1-post", "/echo", 40), second.getLoad("http2", "/echo", 100),
		unary.grpcLoad("grpc", 100), rpc.callLoad("dubbo", 100), slowLoad(first, "http1-slow"), slowLoad(second, "http2-slow"),
	}
	hangUp := func() {
		for _, c := range []*httpClient{first, second, unary} {
			c.transport.CloseIdleConnections()
		}
		rpc.close()
	}
	w.warmUp(hangUp, loads...)

	deaths, ends := make([]int, 2), make([]func(), 2)
	for i := range deaths {
		ends[i] = r.runInBackground(func(stop <-chan struct{}) { deaths[i] = mortals[i].flap(stop, r.newRand(uint64(i))) })
	}
	results := r.runLoads(loads...)
	for _, end := range ends {
		end()
	}
	r.Logf("%d and %d deaths", deaths[0], deaths[1])
	if deaths[0]+deaths[1] < int(r.duration.Seconds())/4 {
		r.Error("the hosts died too rarely")
	}

	const latency = 250 * time.Millisecond
	for _, name := range []string{"http1", "http2", "grpc", "dubbo"} {
		r.check(results[name], bounds{allowedKinds: []string{"502", "503", "504", "broken off", "reset stream", "grpc 14", "status 31", "status 80"},
			maxFailed: 0.002, p50: 20 * time.Millisecond, p99: latency, maxLatency: 9 * time.Second})
	}
	r.check(results["http1-post"], bounds{allowedKinds: []string{"502", "503", "broken off"}, maxFailed: 0.02, p99: latency, maxLatency: 9 * time.Second})
	for _, name := range []string{"http1-slow", "http2-slow"} {
		r.check(results[name], bounds{p99: slowCall + latency})
	}
	for _, p := range mortals[2:] {
		for _, address := range []string{p.addresses.http, p.addresses.rpc} {
			if n := w.metric("weft_host_request_failures_total", fmt.Sprintf("host=%q", address)); n != 0 {
				r.Errorf("%v requests to %s failed although the host is alive", n, p.name)
			}
		}
	}
	hangUp()
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
func (p *hostProcess) flap(stop <-chan struct{}, chance *rand.Rand) int {
	for deaths := 0; ; deaths++ {
		if !sleep(stop, 500*time.Millisecond+time.Duration(chance.ExpFloat64()*float64(time.Second))) {
			return deaths
		}
		p.signalAndWait([]syscall.Signal{syscall.SIGKILL, syscall.SIGUSR1}[chance.IntN(2)])
		sleep(stop, time.Duration(chance.IntN(1500))*time.Millisecond)
		if err := p.start(); err != nil {
			p.r.Error(err)
			return deaths
		}
	}
}
