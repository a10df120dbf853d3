package e2e

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// overloadManager returns an overload manager that reads a monitor every 20 ms and triggers actions
// at the pressure threshold.
func overloadManager(monitor string, settings object, threshold float64, actions ...string) object {
	actionList := list{}
	for _, name := range actions {
		actionList = append(actionList, object{"name": name, "triggers": list{object{"name": monitor, "threshold": object{"value": threshold}}}})
	}
	return object{"overload_manager": object{
		"refresh_interval":  "20ms",
		"resource_monitors": list{object{"name": monitor, "typed_config": settings}},
		"actions":           actionList,
	}}
}

// overloadState returns the state of an action from /overload.
func (w *weft) overloadState(action string) string {
	w.t.Helper()
	var status struct {
		Actions []struct{ Name, State string }
	}
	if err := json.Unmarshal([]byte(w.adminGet("/overload")), &status); err != nil {
		w.t.Fatal(err)
	}
	for _, a := range status.Actions {
		if a.Name == action {
			return a.State
		}
	}
	w.t.Fatalf("/overload has no action %s", action)
	return ""
}

// TestOverloadByMemory verifies that Weft rejects requests while incomplete large frames use up the
// memory. Connections stay open, and requests are served again after the clients that sent the
// frames have disconnected.
func TestOverloadByMemory(t *testing.T) {
	t.Parallel()
	const clientCount, frame, sentPerClient = 24, 7 << 20, 6 << 20
	app := startUpstream(t, respondWith("served"))
	s, front := simpleProxy(app.address)
	slow := freeAddress()
	s.listeners = append(s.listeners, listenDubbo("slow", slow))
	s.tables = append(s.tables, routeTable("slow", routeTo("/", "app")))
	s.extra = overloadManager("fixed_heap", object{"max_heap_size_bytes": clientCount * sentPerClient}, 0.8, "stop_accepting_requests")
	w := startWeft(t, s.config())
	conn := dialRaw(t, front)
	if response, _ := conn.send(get).readResponse("GET"); response.StatusCode != 200 {
		t.Fatalf("before the overload: %d, want 200", response.StatusCode)
	}
	var conns []net.Conn
	for id := range clientCount {
		c, err := net.Dial("tcp", slow)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
		head := append([]byte{0xda, 0xbb, 0xc2, 0}, make([]byte, 12)...)
		binary.BigEndian.PutUint64(head[4:], uint64(id))
		binary.BigEndian.PutUint32(head[12:], frame)
		if _, err := c.Write(append(head, make([]byte, sentPerClient)...)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "memory is above the threshold", func() bool { return w.overloadState("stop_accepting_requests") == "saturated" })
	response, body := conn.send(get).readResponse("GET")
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || body != "overloaded\n" {
		t.Errorf("overloaded: %d %v %q; want 503, Retry-After and \"overloaded\"", response.StatusCode, response.Header, body)
	}
	if n := app.requests.Load(); n != 1 {
		t.Errorf("the upstream got %d requests, want 1", n)
	}
	for _, c := range conns {
		_ = c.Close() // frees memory
	}
	start := time.Now()
	eventually(t, "memory is below the threshold", func() bool { return w.overloadState("stop_accepting_requests") == "inactive" })
	t.Logf("overload ended %v after the clients disconnected", time.Since(start).Round(time.Millisecond))
	if response, body := conn.send(get).readResponse("GET"); response.StatusCode != 200 || body != "served" {
		t.Errorf("after the overload: %d %q; want 200, \"served\"", response.StatusCode, body)
	}
	if n := w.metric("weft_overload_action_effects_total", `action="stop_accepting_requests"`); n != 1 {
		t.Errorf("%v requests counted, want 1", n)
	}
}

// TestOverloadRejectsInProtocolTerms verifies that an overloaded Weft rejects requests with a
// status of their protocol.
func TestOverloadRejectsInProtocolTerms(t *testing.T) {
	t.Parallel()
	overloaded := overloadManager("downstream_connections", object{"max_active_downstream_connections": 1000}, 0.0005,
		"stop_accepting_requests", "disable_http_keepalive")
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		app := startUpstream(t, respondWith("served"))
		front := freeAddress()
		w := startWeft(t, setup{
			listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": "Http1,Http2", "router_config_name": "front"}})},
			tables: list{routeTable("front", routeTo("/", "app"))}, clusters: list{cluster("app", nil, app.address)}, extra: overloaded,
		}.config())
		idle := dialRaw(t, front)
		idle.send("GET / HTTP/1.1\n") // keeps a connection open
		eventually(t, "the connection is counted", func() bool { return w.overloadState("stop_accepting_requests") == "saturated" })
		first := dialRaw(t, front).send(get)
		if response, _ := first.readResponse("GET"); response.StatusCode != 503 || !response.Close {
			t.Errorf("HTTP/1.1: %d, close %v; want 503, true", response.StatusCode, response.Close)
		}
		if rest := first.readToEnd(); rest != "" {
			t.Errorf("HTTP/1.1: after the response: %q, want none", rest)
		}
		if got := requestHTTP2(t, front, ""); !strings.HasPrefix(got, "503") {
			t.Errorf("HTTP/2: %s, want prefix \"503\"", got)
		}
		call := ":method: POST\ncontent-type: application/grpc\nte: trailers"
		if got := requestHTTP2(t, front, call); !strings.Contains(got, "grpc-status: 14") {
			t.Errorf("gRPC: %s, want \"grpc-status: 14\"", got)
		}
		eventually(t, "the closed connections are counted", func() bool {
			return w.metric("weft_listener_connections_closed_total", `cause="overload"`) >= 1
		})
		if n := app.requests.Load(); n != 0 {
			t.Errorf("the upstream got %d requests, want 0", n)
		}
	})
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, got := r.startServer(t)
		front := freeAddress()
		w := startWeft(t, setup{
			listeners: list{networkListener("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": r.Name(), "upstream_protocol": r.Name(), "router_config_name": "front"}})},
			tables: list{routeTable("front", routeTo("/", "app"))}, clusters: list{cluster("app", nil, app)}, extra: overloaded,
		}.config())
		client := r.dial(t, front)
		eventually(t, "the connection is counted", func() bool { return w.overloadState("stop_accepting_requests") == "saturated" })
		for id := uint64(1); id < 4; id++ { // the connection stays open
			client.send(client.request(id))
			if resp := client.receive(); resp.id != id || resp.code != r.code(protocol.Overloaded) {
				t.Errorf("response %d with code %d; want response %d with %d", resp.id, resp.code, id, r.code(protocol.Overloaded))
			}
		}
		if len(got) > 0 {
			t.Errorf("the upstream got %d requests, want none", len(got))
		}
	})
}

// TestOverloadByDescriptors verifies that Weft stops accepting connections before descriptors run
// out. Open connections are served without errors. Later connections wait, and are served
// when others have closed. Reload and shutdown still work.
//
//arch:clock a simulated client connects no faster than Weft reads its monitor
func TestOverloadByDescriptors(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("served"))
	s, front := simpleProxy(app.address)
	s.extra = overloadManager("file_descriptors", nil, 0.8, "stop_accepting_connections")
	w := launchWeft(t, launchOptions{config: s.config(), shell: `ulimit -n 100; exec "$@"`})
	w.awaitReady()
	conn := dialRaw(t, front).send(get)
	conn.readResponse("GET")
	var idle []net.Conn
	for range 101 {
		c, err := net.DialTimeout("tcp", front, waitTimeout)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		idle = append(idle, c)
		if len(idle) > 60 { // slower than the interval of the monitor
			time.Sleep(25 * time.Millisecond)
		}
	}
	w.stderr.await(t, 0, "action=stop_accepting_connections state=saturated")
	pending := dialRaw(t, front).send(get)
	if response, _ := conn.send(get).readResponse("GET"); response.StatusCode != 200 {
		t.Errorf("open connection: %d, want 200", response.StatusCode)
	}
	// Reload while Weft accepts no connections.
	s.tables = list{routeTable("front", directRoute("/new", 200, "new"), routeTo("/", "app"))}
	s.admin = w.admin
	w.reload(s.config())
	if _, body := conn.send("GET /new HTTP/1.1\nHost: a\n\n").readResponse("GET"); body != "new" {
		t.Errorf("after a reload: %q, want \"new\"", body)
	}
	for _, c := range idle {
		_ = c.Close() // frees descriptors
	}
	if response, _ := pending.readResponse("GET"); response.StatusCode != 200 {
		t.Errorf("pending connection: %d, want 200", response.StatusCode)
	}
	if n := w.metric("weft_listener_accept_errors_total"); n != 0 {
		t.Errorf("%v accept errors, want none", n)
	}
	w.signal(syscall.SIGTERM)
	if status := w.awaitExit(waitTimeout); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestOverloadClosesIdleConnections verifies that Weft closes idle connections when descriptors run
// short, and serves new ones.
func TestOverloadClosesIdleConnections(t *testing.T) {
	t.Parallel()
	app := startUpstream(t, respondWith("served"))
	s, front := simpleProxy(app.address)
	s.extra = overloadManager("file_descriptors", object{"max_file_descriptors": 100}, 0.7, "shrink_idle")
	w := startWeft(t, s.config())
	var idle []*rawConn
	for range 90 {
		idle = append(idle, dialRaw(t, front))
	}
	for _, c := range idle {
		if rest := c.readToEnd(); rest != "" {
			t.Fatalf("an idle connection got %q, want none", rest)
		}
	}
	if got := sendRequest(t, newClient(t), "GET", "http://"+front, ""); got.status != 200 {
		t.Errorf("after idle connections are closed: %d, want 200", got.status)
	}
	if n := w.metric("weft_listener_connections_closed_total", `cause="overload"`); n != 90 {
		t.Errorf("%v connections closed by overload, want 90", n)
	}
}

// TestGlobalConnectionLimit verifies that a limit of two connections counts the connections of both
// listeners.
func TestGlobalConnectionLimit(t *testing.T) {
	t.Parallel()
	firstAddress, secondAddress := freeAddress(), freeAddress()
	s := setup{
		listeners: list{httpListener("first", firstAddress), httpListener("second", secondAddress)},
		tables:    list{routeTable("first", directRoute("/", 200, "ok")), routeTable("second", directRoute("/", 200, "ok"))},
		extra:     overloadManager("downstream_connections", object{"max_active_downstream_connections": 2}, 1, "shrink_heap"),
	}
	w := startWeft(t, s.config())
	first, second := dialRaw(t, firstAddress), dialRaw(t, secondAddress)
	first.send(get).readResponse("GET")
	second.send(get).readResponse("GET")
	for _, address := range []string{firstAddress, secondAddress} {
		if got := dialRaw(t, address).readToEnd(); got != "" {
			t.Errorf("a third connection got %q, want EOF", got)
		}
	}
	if n := w.metric("weft_listener_connections_refused_total"); n != 2 {
		t.Errorf("weft_listener_connections_refused_total = %v, want 2", n)
	}
	_ = first.Close() // frees a slot
	eventually(t, "the second listener accepts a connection", func() bool {
		c, err := net.Dial("tcp", secondAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(waitTimeout))
		if _, err := c.Write([]byte(get)); err != nil {
			return false
		}
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	})
}

// TestOverloadIsNotReportedAsDrain verifies that a healthcheck filter does not report a drain when
// overload closes the connection.
func TestOverloadIsNotReportedAsDrain(t *testing.T) {
	t.Parallel()
	s, front := simpleProxy(startUpstream(t, respondWith("served")).address)
	s.listeners[0].(object)["stream_filters"] = list{streamFilter("healthcheck", object{"endpoint": "/healthz"})}
	s.extra = overloadManager("downstream_connections", object{"max_active_downstream_connections": 10}, 0.1, "disable_http_keepalive")
	w := startWeft(t, s.config())
	conn := dialRaw(t, front)
	eventually(t, "connections are above the threshold", func() bool { return w.overloadState("disable_http_keepalive") == "saturated" })
	response, body := conn.send(strings.Replace(get, "GET / ", "GET /healthz ", 1)).readResponse("GET")
	if response.StatusCode != 200 || !response.Close {
		t.Errorf("%d %q, close: %t; want 200 and close", response.StatusCode, body, response.Close)
	}
}

// TestAcceptRateLimit verifies that connections above the accept rate wait and are not
// rejected.
func TestAcceptRateLimit(t *testing.T) {
	t.Parallel()
	const perSecond, burst, total = 20, 5, 20
	s, front := simpleProxy("127.0.0.1:1")
	s.tables = list{routeTable("front", directRoute("/", 200, "ok"))}
	s.listeners = list{httpListener("front", front, object{"accept_rate": object{"per_second": perSecond, "burst": burst}})}
	w := startWeft(t, s.config())
	start := time.Now()
	var clients []*rawConn
	for range total {
		clients = append(clients, dialRaw(t, front).send(get))
	}
	for i, c := range clients {
		if response, _ := c.readResponse("GET"); response.StatusCode != 200 {
			t.Errorf("client %d: %d, want 200", i, response.StatusCode)
		}
	}
	// Weft may accept a connection before its token is available.
	if elapsed, minimum := time.Since(start), time.Duration(total-burst-1)*time.Second/perSecond; elapsed < minimum || elapsed > minimum+rpcDeadline {
		t.Errorf("%d connections after %v, want at least %v", total, elapsed, minimum)
	}
	if n := w.metric("weft_listener_connections_refused_total"); n != 0 {
		t.Errorf("%v connections rejected, want 0", n)
	}
}

// overloadExample runs overload.json. Above 10 connections a response closes its connection. States
// and pressures are reported.
func overloadExample(t *testing.T) {
	e := loadExample(t, "overload.json")
	startUpstreamAt(t, e.address("3191"), respondWith("served"))
	w := e.run("overload.json")
	w.admin = e.address("3187")
	var clients []*rawConn
	for range 12 {
		clients = append(clients, dialRaw(t, e.address("3185")).send(get))
	}
	for _, c := range clients {
		if response, body := c.readResponse("GET"); response.StatusCode != 200 || body != "served" {
			t.Errorf("%d %q; want 200, \"served\"", response.StatusCode, body)
		}
	}
	for range 8 {
		dialRaw(t, e.address("3185")).send("GET / HTTP/1.1\n") // stays open
	}
	eventually(t, "many connections are open", func() bool { return w.overloadState("disable_http_keepalive") == "saturated" })
	closed := 0
	for _, c := range clients {
		if response, _ := c.send(get).readResponse("GET"); response.Close {
			closed++
		}
	}
	if closed == 0 {
		t.Error("no response closed its connection")
	}
	for _, action := range []string{"shrink_heap", "stop_accepting_requests", "shrink_idle", "stop_accepting_connections"} {
		if state := w.overloadState(action); state != "inactive" {
			t.Errorf("%s is %s, want \"inactive\"", action, state)
		}
	}
	if n := w.metric("weft_overload_pressure"); n <= 0 {
		t.Errorf("pressures are %v, want positive ones", n)
	}
}
