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

// counting is an HTTP/2 upstream that counts the requests of each connection.
type counting struct {
	address string

	mu      sync.Mutex
	carried map[string]int // by remote address of the connection
	order   []string       // connections in the order of their first requests
}

func count(t *testing.T) *counting {
	t.Helper()
	n := &counting{carried: map[string]int{}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { n.carries(r.RemoteAddr) }))
	s.Config.Protocols = speaking("Http2")
	s.Start()
	t.Cleanup(s.Close)
	n.address = s.Listener.Addr().String()
	return n
}

func (n *counting) carries(connection string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.carried[connection] == 0 {
		n.order = append(n.order, connection)
	}
	n.carried[connection]++
}

// holds checks how many requests each connection has carried, in the order of their first requests.
func (n *counting) holds(t *testing.T, want ...int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.order) != len(want) {
		t.Errorf("requests came on %d connections, want %d", len(n.order), len(want))
	}
	for i := range min(len(n.order), len(want)) {
		if got := n.carried[n.order[i]]; got != want[i] {
			t.Errorf("connection %d has carried %d requests, want %d", i, got, want[i])
		}
	}
}

// holdsMost checks that no connection has carried more than most requests.
func (n *counting) holdsMost(t *testing.T, most int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, got := range n.carried {
		if got > most {
			t.Errorf("a connection has carried %d requests, and may %d", got, most)
		}
	}
}

// total returns the number of requests on all connections.
func (n *counting) total() (all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, got := range n.carried {
		all += got
	}
	return all
}

func TestSharedConnectionsOfHTTP2CarryAsManyRequestsAsTheyMay(t *testing.T) {
	t.Parallel()
	app := count(t)
	w, url := toHTTP2(t, cluster("app", object{"max_request_per_conn": 7}, app.address))
	c := client(t)
	for i := range 23 {
		if got := ask(t, c, "GET", url, ""); got.status != 200 {
			t.Errorf("request %d was answered with %d %q", i, got.status, got.body)
		}
	}
	app.holds(t, 7, 7, 7, 2)
	if got := w.metric("weft_cluster_connections_spent_total"); got != 3 {
		t.Errorf("%v spent connections are counted, want 3", got)
	}
	eventually(t, "spent connections are closed", func() bool { return w.metric("weft_cluster_connections_active") == 1 })
}

// TestManyRequestsOnConnectionsThatAreSpent verifies that concurrent requests of HTTP/1.1 and
// HTTP/2 clients all succeed while upstream connections reach max_request_per_conn.
func TestManyRequestsOnConnectionsThatAreSpent(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]object{
		"one connection":    {},
		"three connections": {"connection_pool": object{"connections": 3}},
		"warm":              {"connection_pool": object{"warm": "Http2"}},
		"max_connections":   {"circuit_breakers": list{object{"max_connections": 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := count(t)
			front := free()
			run(t, setup{
				listeners: list{chained("front", front, object{"type": "proxy", "config": object{
					"downstream_protocol": "Auto", "router_config_name": "front",
				}})},
				tables:   list{table("front", to("/", "app", object{"upstream_protocol": "Http2"}))},
				clusters: list{cluster("app", object{"max_request_per_conn": 7}.with(more), app.address)},
			}.config())
			var all sync.WaitGroup
			for _, version := range []string{"Http1", "Http2"} {
				c := client(t)
				c.Transport.(*http.Transport).Protocols = speaking(version)
				for range 4 {
					all.Go(func() {
						for range 100 {
							got, err := try(context.Background(), c, "GET", "http://"+front, "")
							if err != nil || got.status != 200 {
								t.Errorf("answered with %d %q, %v", got.status, got.body, err)
							}
						}
					})
				}
			}
			all.Wait()
			app.holdsMost(t, 7)
			if got := app.total(); got != 800 {
				t.Errorf("%d of 800 requests came", got)
			}
		})
	}
}

// TestReloadsWhileConnectionsAreSpent verifies that no request is lost while reloads change the
// hosts and max_request_per_conn.
func TestReloadsWhileConnectionsAreSpent(t *testing.T) {
	t.Parallel()
	one, two := count(t), count(t)
	front := free()
	config := func(generation int) object {
		hosts := []string{one.address, two.address}[generation%2:]
		return setup{
			listeners: list{listen("front", front)},
			tables:    list{table("front", to("/", "app", object{"upstream_protocol": "Http2"}))},
			clusters:  list{cluster("app", object{"max_request_per_conn": 7 - generation%3}, hosts...)},
		}.config()
	}
	w := run(t, config(0))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var asked atomic.Int64
	for range 8 {
		c := client(t)
		all.Go(func() {
			for ctx.Err() == nil {
				asked.Add(1)
				got, err := try(context.Background(), c, "GET", "http://"+front, "")
				if err != nil || got.status != 200 {
					t.Errorf("answered with %d %q, %v", got.status, got.body, err)
				}
			}
		})
	}
	for generation := range 10 {
		w.reload(config(generation + 1))
	}
	stop()
	all.Wait()
	one.holdsMost(t, 7)
	two.holdsMost(t, 7)
	if got := int64(one.total() + two.total()); got != asked.Load() {
		t.Errorf("%d of %d requests came", got, asked.Load())
	}
}

// TestSharedConnectionsOfRPCCarryAsManyRequestsAsTheyMay verifies the requests of each connection,
// also if the last one is one-way.
func TestSharedConnectionsOfRPCCarryAsManyRequestsAsTheyMay(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, r *rpc) {
		app := &counting{carried: map[string]int{}}
		told := make(chan struct{}, 1)
		app.address = accept(t, func(c net.Conn) {
			for rest := []byte(nil); ; {
				f, err := r.next(c, &rest)
				if err != nil {
					return // the client disconnected
				}
				app.carries(c.RemoteAddr().String())
				if f.Kind != xprotocol.Request {
					told <- struct{}{}
					continue
				}
				if _, err := c.Write(r.AppendAnswer(nil, f.ID, make([]byte, 1))); err != nil {
					return
				}
			}
		})
		address, _ := r.proxy(t, nil, list{cluster("app", object{"max_request_per_conn": 2, "connection_pool": object{"max_requests": 4}}, app.address)}, when("app"))
		c := r.dial(t, address)
		for id := range uint64(3) {
			c.holds(id)
		}
		c.send(r.patched(t, r.request(3), r.kindAt, r.oneWay))
		select {
		case <-told:
		case <-time.After(patience):
			t.Fatal("the request that nobody answers has not come")
		}
		for id := range uint64(6) {
			c.holds(id + 4)
		}
		app.holds(t, 4, 4, 2)
	})
}
