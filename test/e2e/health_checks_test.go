package e2e

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// hostState is what /clusters reports about a host.
type hostState struct {
	Address   string `json:"address"`
	Health    string `json:"health"`
	Why       string `json:"why"`
	Checks    int    `json:"health_checks_total"`
	Error     string `json:"health_check_error"`
	Ejections int    `json:"ejections_total"`
}

// hostState returns what /clusters reports about a host of a cluster.
func (w *weft) hostState(cluster, address string) hostState {
	w.t.Helper()
	var clusters []struct {
		Name  string      `json:"name"`
		Hosts []hostState `json:"hosts"`
	}
	if err := json.Unmarshal([]byte(w.adminGet("/clusters")), &clusters); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range clusters {
		for _, h := range c.Hosts {
			if c.Name == cluster && h.Address == address {
				return h
			}
		}
	}
	w.t.Fatalf("/clusters has no host %s of %s", address, cluster)
	return hostState{}
}

// distinctBodies sends n requests and returns the distinct bodies, sorted.
func distinctBodies(t *testing.T, c *http.Client, url string, n int) string {
	t.Helper()
	bodies := map[string]bool{}
	for range n {
		bodies[sendRequest(t, c, "GET", url, "").body] = true
	}
	var sorted []string
	for text := range bodies {
		sorted = append(sorted, text)
	}
	slices.Sort(sorted)
	return strings.Join(sorted, " ")
}

// flakyUpstream is an upstream that responds with its name, and with status 500 while failing is
// set.
type flakyUpstream struct {
	*origin
	failing atomic.Bool
}

func startFlakyUpstream(t *testing.T, name string) *flakyUpstream {
	t.Helper()
	u := new(flakyUpstream)
	u.origin = startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		if u.failing.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, name)
	})
	return u
}

func TestEjectionAndReturn(t *testing.T) {
	t.Parallel()
	a, b := startFlakyUpstream(t, "a"), startFlakyUpstream(t, "b")
	s, front := simpleProxy()
	s.clusters = list{cluster("app", object{"outlier_detection": object{
		"consecutive_5xx": 3, "interval": "100ms", "base_ejection_time": "500ms", "max_ejection_percent": 50,
	}}, a.address, b.address)}
	w := startWeft(t, s.config())
	c, url := newClient(t), "http://"+front+"/"
	if got := distinctBodies(t, c, url, 10); got != "a b" {
		t.Fatalf("responses from %q, want a b", got)
	}
	a.failing.Store(true)
	failed := 0
	for range 20 {
		if sendRequest(t, c, "GET", url, "").status == 500 {
			failed++
		}
	}
	if failed != 3 {
		t.Errorf("%d of 20 requests failed, want 3", failed)
	}
	if h := w.hostState("app", a.address); h.Health != "down" || h.Why != "ejected" || h.Ejections != 1 {
		t.Errorf("/clusters reports %+v, want a host that is down and ejected once", h)
	}
	a.failing.Store(false)
	eventually(t, "the host gets requests again", func() bool { return distinctBodies(t, c, url, 4) == "a b" })
	w.stderr.await(t, 0, "upstream host ejected")
	w.stderr.await(t, 0, "upstream host returns from its ejection")
}

// TestFaultToleranceEjection verifies the older form of outlier detection, the
// fault_tolerance filter of a listener.
func TestFaultToleranceEjection(t *testing.T) {
	t.Parallel()
	a, b, bad := startFlakyUpstream(t, "a"), startFlakyUpstream(t, "b"), startFlakyUpstream(t, "bad")
	bad.failing.Store(true)
	front := freeAddress()
	s := setup{
		listeners: list{httpListener("front", front, object{"stream_filters": list{streamFilter("fault_tolerance", object{
			"enabled": true, "exceptionTypes": list{500}, "timeWindow": 100, "leastWindowCount": 5, "exceptionRateMultiple": 2, "recoverTime": 500,
		})}})},
		tables:   list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", nil, a.address, b.address, bad.address)},
	}
	w := startWeft(t, s.config())
	c, url := newClient(t), "http://"+front+"/"
	eventually(t, "the host is ejected", func() bool {
		for range 30 { // in one window
			sendRequest(t, c, "GET", url, "")
		}
		return w.hostState("app", bad.address).Why == "ejected"
	})
	bad.failing.Store(false)
	eventually(t, "the host gets requests again", func() bool { return distinctBodies(t, c, url, 6) == "a b bad" })
	if log := w.stderr.String(); !strings.Contains(log, "detector=failure_multiple") {
		t.Errorf("the log lacks the reason of the ejection:\n%s", log)
	}
}

func TestUnhealthyHostGetsNoRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, protocol string
		separatePort   bool // the endpoint has its own port
	}{
		{"HTTP/1.1", "Http1", false},
		{"HTTP/1.1 on another port", "Http1", true},
		{"HTTP/2 on another port", "Http2", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const name = "127.0.0.2"
			failing := new(atomic.Bool)
			failing.Store(true)
			healthy := new(atomic.Bool)
			a := startUpstream(t, healthEndpoint("a", failing))
			b := startUpstreamAt(t, freeAddressOn(name), healthEndpoint("b", healthy))
			request := object{"path": "/healthz?deep", "domain": "shop", "method": "HEAD", "codes": list{object{"Start": 204, "End": 206}}}
			if tt.separatePort {
				request["port"] = startHealthEndpoints(t, tt.protocol, "127.0.0.1", failing, name, healthy)
			}
			s, front := simpleProxy()
			s.clusters = list{cluster("app", object{"health_check": object{
				"protocol": tt.protocol, "interval": "50ms", "unhealthy_threshold": 2, "healthy_threshold": 2,
				"check_config": object{"http_check_config": request},
			}}, a.address, b.address)}
			w := startWeft(t, s.config())
			eventually(t, "the host fails its checks", func() bool { return w.hostState("app", a.address).Why == "failing checks" })
			if got := w.hostState("app", a.address).Error; got != "status 503" {
				t.Errorf("the check failed with %q, want status 503", got)
			}
			c, url := newClient(t), "http://"+front+"/"
			if got := distinctBodies(t, c, url, 10); got != "b" {
				t.Errorf("responses from %q, want b", got)
			}
			failing.Store(false)
			eventually(t, "the host gets requests again", func() bool { return distinctBodies(t, c, url, 4) == "a b" })
		})
	}
}

// healthEndpoint returns a handler that responds with name, and at /healthz with 204, or with 503
// while failing is set.
func healthEndpoint(name string, failing *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/healthz":
			_, _ = io.WriteString(w, name)
		case r.Method != "HEAD" || r.Host != "shop" || r.URL.RawQuery != "deep":
			w.WriteHeader(http.StatusBadRequest)
		case failing.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// startHealthEndpoints starts health endpoints on one port of two addresses, and returns the port.
func startHealthEndpoints(t *testing.T, protocol, first string, firstFailing *atomic.Bool, second string, secondFailing *atomic.Bool) int {
	t.Helper()
	_, portText, _ := net.SplitHostPort(freeAddressOn(first))
	for ip, failing := range map[string]*atomic.Bool{first: firstFailing, second: secondFailing} {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, portText))
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: healthEndpoint("", failing), Protocols: httpProtocols(protocol)}}
		s.Start()
		t.Cleanup(s.Close)
	}
	port, _ := strconv.Atoi(portText)
	return port
}

func TestRPCHeartbeatDetectsHangingHost(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		good, got := r.startServer(t)
		var hanging atomic.Bool
		hanging.Store(true)
		bad := startTCPServer(t, func(c net.Conn) {
			for rest := []byte(nil); ; {
				b := make([]byte, 4<<10)
				n, err := c.Read(b)
				if err != nil {
					return
				}
				rest = append(rest, b[:n]...)
				for {
					f, err := r.codec.ParseFrame(rest)
					if err != nil {
						t.Error(err)
						return
					}
					if f.Size == 0 || f.Size > len(rest) {
						break
					}
					if f.Kind != xprotocol.Heartbeat {
						t.Errorf("unexpected frame of kind %d at the hanging host", f.Kind)
					}
					if !hanging.Load() {
						_, _ = c.Write(r.codec.AppendHeartbeatAck(nil, rest[:f.Size])) // the check may have ended
					}
					rest = rest[f.Size:]
				}
			}
		})
		front, w := r.startProxy(t, nil, list{cluster("app", object{"health_check": object{
			"protocol": r.codec.Traits().Name, "interval": "50ms", "timeout": "2s", // the good host must respond in time on a busy machine
		}}, good, bad)}, routeTo("/", "app"))
		eventually(t, "the hanging host fails its checks", func() bool { return w.hostState("app", bad).Why == "failing checks" })
		client := r.dial(t, front)
		for id := range uint64(20) {
			client.send(r.request(id + 1))
			client.receive()
		}
		if len(got) != 20 {
			t.Errorf("the good host got %d requests, want 20", len(got))
		}
		if h := w.hostState("app", good); h.Health != "up" || h.Checks == 0 || h.Error != "" {
			t.Errorf("/clusters reports %+v for the good host, want it up after checks", h)
		}
		hanging.Store(false)
		eventually(t, "the hanging host gets calls again", func() bool { return w.hostState("app", bad).Health == "up" })
	})
}

func TestGRPCHealthCheck(t *testing.T) {
	t.Parallel()
	good, bad := serveHealth(t, 1), serveHealth(t, 2)
	w, front, c := startGRPCProxy(t, object{}, list{cluster("app", object{"health_check": object{
		"protocol": "gRPC", "interval": "50ms", "service_name": "shop.Items",
	}}, good.address, bad.address)}, routeTo("/", "app"))
	eventually(t, "the host that is not serving fails its checks", func() bool { return w.hostState("app", bad.address).Why == "failing checks" })
	for range 10 {
		if got := callGRPC(t, c, front, "/shop.Items/List"); got != "0" {
			t.Errorf("a call ends with status %s, want 0", got)
		}
	}
	if n := bad.calls.Load(); n != 0 {
		t.Errorf("the host that is not serving got %d calls, want none", n)
	}
	if got := w.hostState("app", bad.address).Error; !strings.Contains(got, "not serving") {
		t.Errorf("the check failed with %q, want that it is not serving", got)
	}
}

// serveHealth starts a gRPC server that serves shop.Items and reports status as the health of that
// service.
func serveHealth(t *testing.T, status byte) *grpcUpstream {
	t.Helper()
	upstream := new(grpcUpstream)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		response := []byte{0, 0, 0, 0, 0}
		if req.URL.Path == "/grpc.health.v1.Health/Check" {
			if string(body) != "\x00\x00\x00\x00\x0c\x0a\x0ashop.Items" {
				t.Errorf("the service of the check is %q, want shop.Items", body)
			}
			response = []byte{0, 0, 0, 0, 2, 8, status}
		} else {
			upstream.calls.Add(1)
		}
		_, _ = w.Write(response)
		h.Set(http.TrailerPrefix+"Grpc-Status", "0")
	}))
	s.Config.Protocols = httpProtocols("Http2")
	s.Start()
	t.Cleanup(s.Close)
	upstream.address = s.Listener.Addr().String()
	return upstream
}

func TestHealthCheckTimeout(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"Http1", "Http2", "gRPC"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			hanging := startTCPServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) // until the check times out
			app := startUpstream(t, respondWith("alive"))
			s, front := simpleProxy()
			s.admin = freeAddress()
			s.clusters = list{
				cluster("app", nil, app.address),
				cluster("hung", object{"health_check": object{"protocol": protocol, "interval": "50ms", "timeout": "100ms"}}, hanging),
			}
			w := startWeft(t, s.config())
			eventually(t, "the hanging host fails its checks", func() bool { return w.hostState("hung", hanging).Why == "failing checks" })
			eventually(t, "the check repeats", func() bool { return w.hostState("hung", hanging).Checks > 3 })
			if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.body != "alive" {
				t.Errorf("while the other host hangs, the upstream responds %d %q; want \"alive\"", got.status, got.body)
			}
			// A reload without the cluster ends its checks.
			s.clusters = s.clusters[:1]
			w.reload(s.config())
			eventually(t, "no checks run", func() bool {
				return !strings.Contains(w.adminGet("/debug/pprof/goroutine?debug=2"), "upstream/health")
			})
		})
	}
}

// TestTCPHealthCheck verifies that TCP health checks detect a host that refuses connections before
// it gets a request, and that they detect its recovery.
func TestTCPHealthCheck(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("alive"))
	dead := freeAddress()
	s, front := simpleProxy()
	s.clusters = list{cluster("app", object{"health_check": object{"protocol": "TCP", "interval": "50ms"}}, app.address, dead)}
	w := startWeft(t, s.config())
	eventually(t, "the dead host fails its checks", func() bool { return w.hostState("app", dead).Health == "down" })
	c := newClient(t)
	if got := distinctBodies(t, c, "http://"+front, 10); got != "alive" {
		t.Errorf("responses from %q, want the live host", got)
	}
	if n := w.metric("weft_cluster_connect_failures_total"); n != 0 {
		t.Errorf("%v requests went to the dead host, want none", n)
	}
	startUpstreamAt(t, dead, respondWith("back"))
	eventually(t, "the host gets requests again", func() bool { return distinctBodies(t, c, "http://"+front, 4) == "alive back" })
}
