package e2e

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// countingUpstream is an HTTP/2 upstream that counts the requests of each connection.
type countingUpstream struct {
	address string

	mu     sync.Mutex
	counts map[string]int // by remote address of the connection
	order  []string       // connections in the order of their first requests
}

func startCountingUpstream(t *testing.T) *countingUpstream {
	t.Helper()
	u := &countingUpstream{counts: map[string]int{}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { u.record(r.RemoteAddr) }))
	s.Config.Protocols = httpProtocols("Http2")
	s.Start()
	t.Cleanup(s.Close)
	u.address = s.Listener.Addr().String()
	return u
}

func (u *countingUpstream) record(connection string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts[connection] == 0 {
		u.order = append(u.order, connection)
	}
	u.counts[connection]++
}

// checkCounts checks how many requests each connection had, in the order of their first requests.
func (u *countingUpstream) checkCounts(t *testing.T, want ...int) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.order) != len(want) {
		t.Errorf("requests used %d connections, want %d", len(u.order), len(want))
	}
	for i := range min(len(u.order), len(want)) {
		if got := u.counts[u.order[i]]; got != want[i] {
			t.Errorf("connection %d had %d requests, want %d", i, got, want[i])
		}
	}
}

// checkMaxCount checks that no connection had more than maximum requests.
func (u *countingUpstream) checkMaxCount(t *testing.T, maximum int) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, got := range u.counts {
		if got > maximum {
			t.Errorf("a connection had %d requests, want at most %d", got, maximum)
		}
	}
}

// total returns the number of requests on all connections.
func (u *countingUpstream) total() (sum int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, got := range u.counts {
		sum += got
	}
	return sum
}

func TestMaxRequestsPerHTTP2Connection(t *testing.T) {
	t.Parallel()
	app := startCountingUpstream(t)
	w, url := startHTTP2Proxy(t, cluster("app", object{"max_request_per_conn": 7}, app.address))
	c := newClient(t)
	for i := range 23 {
		if got := sendRequest(t, c, "GET", url, ""); got.status != 200 {
			t.Errorf("response to request %d: %d %q, want 200", i, got.status, got.body)
		}
	}
	app.checkCounts(t, 7, 7, 7, 2)
	if got := w.metric("weft_cluster_connections_max_requests_total"); got != 3 {
		t.Errorf("%v connections counted as closed by max_request_per_conn, want 3", got)
	}
	eventually(t, "connections that reached the limit are closed", func() bool { return w.metric("weft_cluster_connections_active") == 1 })
}

// TestMaxRequestsPerConnectionUnderLoad verifies that concurrent requests of HTTP/1.1 and
// HTTP/2 clients all succeed while upstream connections reach max_request_per_conn.
func TestMaxRequestsPerConnectionUnderLoad(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string]object{
		"one connection":    {},
		"three connections": {"connection_pool": object{"connections": 3}},
		"warm":              {"connection_pool": object{"warm": "Http2"}},
		"max_connections":   {"circuit_breakers": list{object{"max_connections": 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := startCountingUpstream(t)
			front := freeAddress()
			startWeft(t, setup{
				listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
					"downstream_protocol": "Auto", "router_config_name": "front",
				}})},
				tables:   list{routeTable("front", routeTo("/", "app", object{"upstream_protocol": "Http2"}))},
				clusters: list{cluster("app", object{"max_request_per_conn": 7}.with(extra), app.address)},
			}.config())
			var wg sync.WaitGroup
			for _, version := range []string{"Http1", "Http2"} {
				c := newClient(t)
				c.Transport.(*http.Transport).Protocols = httpProtocols(version)
				for range 4 {
					wg.Go(func() {
						for range 100 {
							got, err := tryRequest(context.Background(), c, "GET", "http://"+front, "")
							if err != nil || got.status != 200 {
								t.Errorf("response %d %q, %v; want 200", got.status, got.body, err)
							}
						}
					})
				}
			}
			wg.Wait()
			app.checkMaxCount(t, 7)
			if got := app.total(); got != 800 {
				t.Errorf("%d of 800 requests arrived, want all", got)
			}
		})
	}
}

// TestReloadsChangeMaxRequestsPerConnection verifies that no request is lost while reloads change
// the hosts and max_request_per_conn.
func TestReloadsChangeMaxRequestsPerConnection(t *testing.T) {
	t.Parallel()
	first, second := startCountingUpstream(t), startCountingUpstream(t)
	front := freeAddress()
	config := func(generation int) object {
		hosts := []string{first.address, second.address}[generation%2:]
		return setup{
			listeners: list{httpListener("front", front)},
			tables:    list{routeTable("front", routeTo("/", "app", object{"upstream_protocol": "Http2"}))},
			clusters:  list{cluster("app", object{"max_request_per_conn": 7 - generation%3}, hosts...)},
		}.config()
	}
	w := startWeft(t, config(0))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var requests atomic.Int64
	for range 8 {
		c := newClient(t)
		wg.Go(func() {
			for ctx.Err() == nil {
				requests.Add(1)
				got, err := tryRequest(context.Background(), c, "GET", "http://"+front, "")
				if err != nil || got.status != 200 {
					t.Errorf("response %d %q, %v; want 200", got.status, got.body, err)
				}
			}
		})
	}
	for generation := range 10 {
		w.reload(config(generation + 1))
	}
	stop()
	wg.Wait()
	first.checkMaxCount(t, 7)
	second.checkMaxCount(t, 7)
	if got := int64(first.total() + second.total()); got != requests.Load() {
		t.Errorf("%d of %d requests arrived, want all", got, requests.Load())
	}
}

// TestMaxRequestsPerRPCConnection verifies that a connection closes after as many requests as
// max_requests of connection_pool allows, including one-way requests. max_requests takes precedence
// over max_request_per_conn.
func TestMaxRequestsPerRPCConnection(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		app := &countingUpstream{counts: map[string]int{}}
		received := make(chan struct{}, 1)
		app.address = startTCPServer(t, func(c net.Conn) {
			for rest := []byte(nil); ; {
				f, err := r.next(c, &rest)
				if err != nil {
					return // the client disconnected
				}
				app.record(c.RemoteAddr().String())
				if f.Kind != xprotocol.Request {
					received <- struct{}{}
					continue
				}
				if _, err := c.Write(r.AppendResponse(nil, f.ID, make([]byte, 1))); err != nil {
					return
				}
			}
		})
		address, _ := r.startProxy(t, nil, list{cluster("app", object{"max_request_per_conn": 2, "connection_pool": object{"max_requests": 4}}, app.address)}, routeWhen("app"))
		c := r.dial(t, address)
		for id := range uint64(3) {
			c.checkCall(id)
		}
		c.send(r.withByte(t, r.request(3), r.kindAt, r.oneWay))
		select {
		case <-received:
		case <-time.After(waitTimeout):
			t.Fatal("the one-way request did not arrive")
		}
		for id := range uint64(6) {
			c.checkCall(id + 4)
		}
		app.checkCounts(t, 4, 4, 2)
	})
}
