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
// at the pressure at.
func overloadManager(monitor string, settings object, at float64, actions ...string) object {
	acts := list{}
	for _, name := range actions {
		acts = append(acts, object{"name": name, "triggers": list{object{"name": monitor, "threshold": object{"value": at}}}})
	}
	return object{"overload_manager": object{
		"refresh_interval":  "20ms",
		"resource_monitors": list{object{"name": monitor, "typed_config": settings}},
		"actions":           acts,
	}}
}

// overloaded returns the state of an action from /overload.
func (w *weft) overloaded(action string) string {
	w.t.Helper()
	var status struct {
		Actions []struct{ Name, State string }
	}
	if err := json.Unmarshal([]byte(w.get("/overload")), &status); err != nil {
		w.t.Fatal(err)
	}
	for _, a := range status.Actions {
		if a.Name == action {
			return a.State
		}
	}
	w.t.Fatalf("no action %s", action)
	return ""
}

// TestMemoryThatIsShortSheds verifies that Weft rejects requests while clients that send large
// frames slowly use up the memory. Connections stay open, and requests are served again after those
// clients have disconnected.
func TestMemoryThatIsShortSheds(t *testing.T) {
	t.Parallel()
	const callers, frame, sent = 24, 7 << 20, 6 << 20
	app := serve(t, answers("served"))
	s, front := simple(app.address)
	slow := free()
	s.listeners = append(s.listeners, listenDubbo("slow", slow))
	s.tables = append(s.tables, table("slow", to("/", "app")))
	s.more = overloadManager("fixed_heap", object{"max_heap_size_bytes": callers * sent}, 0.8, "stop_accepting_requests")
	w := run(t, s.config())
	open := dial(t, front)
	if response, _ := open.send(get).response("GET"); response.StatusCode != 200 {
		t.Fatalf("before: %d", response.StatusCode)
	}
	var conns []net.Conn
	for id := range callers {
		c, err := net.Dial("tcp", slow)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c)
		head := append([]byte{0xda, 0xbb, 0xc2, 0}, make([]byte, 12)...)
		binary.BigEndian.PutUint64(head[4:], uint64(id))
		binary.BigEndian.PutUint32(head[12:], frame)
		if _, err := c.Write(append(head, make([]byte, sent)...)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "memory is short", func() bool { return w.overloaded("stop_accepting_requests") == "saturated" })
	response, body := open.send(get).response("GET")
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || body != "overloaded\n" {
		t.Errorf("while memory is short: %d %v %q", response.StatusCode, response.Header, body)
	}
	if n := app.hits.Load(); n != 1 {
		t.Errorf("the application got %d requests, want 1", n)
	}
	for _, c := range conns {
		_ = c.Close() // frees memory
	}
	began := time.Now()
	eventually(t, "memory is not short any more", func() bool { return w.overloaded("stop_accepting_requests") == "inactive" })
	t.Logf("it was over %v after the callers had gone", time.Since(began).Round(time.Millisecond))
	if response, body := open.send(get).response("GET"); response.StatusCode != 200 || body != "served" {
		t.Errorf("afterwards: %d %q", response.StatusCode, body)
	}
	if n := w.metric("weft_overload_action_done_total", `action="stop_accepting_requests"`); n != 1 {
		t.Errorf("%v requests were counted, want 1", n)
	}
}

// TestRefusalsAreEachProtocolsOwn verifies that an overloaded Weft rejects requests with a status
// of their protocol.
func TestRefusalsAreEachProtocolsOwn(t *testing.T) {
	t.Parallel()
	always := overloadManager("downstream_connections", object{"max_active_downstream_connections": 1000}, 0.0005,
		"stop_accepting_requests", "disable_http_keepalive")
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		app := serve(t, answers("served"))
		front := free()
		w := run(t, setup{
			listeners: list{chained("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": "Http1,Http2", "router_config_name": "front"}})},
			tables: list{table("front", to("/", "app"))}, clusters: list{cluster("app", nil, app.address)}, more: always,
		}.config())
		held := dial(t, front)
		held.send("GET / HTTP/1.1\n") // keeps a connection open
		eventually(t, "there is a connection", func() bool { return w.overloaded("stop_accepting_requests") == "saturated" })
		one := dial(t, front).send(get)
		if response, _ := one.response("GET"); response.StatusCode != 503 || !response.Close {
			t.Errorf("HTTP/1.1: %d, close %v", response.StatusCode, response.Close)
		}
		if rest := one.rest(); rest != "" {
			t.Errorf("HTTP/1.1: behind the answer there is %q", rest)
		}
		if got := ask2(t, front, ""); !strings.HasPrefix(got, "503") {
			t.Errorf("HTTP/2: %s", got)
		}
		call := ":method: POST\ncontent-type: application/grpc\nte: trailers"
		if got := ask2(t, front, call); !strings.Contains(got, "grpc-status: 14") {
			t.Errorf("gRPC: %s", got)
		}
		eventually(t, "connections ended for it", func() bool {
			return w.metric("weft_listener_connections_closed_total", `cause="overload"`) >= 1
		})
		if n := app.hits.Load(); n != 0 {
			t.Errorf("the application got %d requests", n)
		}
	})
	eachRPC(t, func(t *testing.T, r *rpc) {
		app, got := r.app(t)
		front := free()
		w := run(t, setup{
			listeners: list{chained("front", front, object{"type": "proxy", "config": object{
				"downstream_protocol": r.Name(), "upstream_protocol": r.Name(), "router_config_name": "front"}})},
			tables: list{table("front", to("/", "app"))}, clusters: list{cluster("app", nil, app)}, more: always,
		}.config())
		caller := r.dial(t, front)
		eventually(t, "there is a connection", func() bool { return w.overloaded("stop_accepting_requests") == "saturated" })
		for id := uint64(1); id < 4; id++ { // the connection stays open
			caller.send(caller.request(id))
			if a := caller.answer(); a.id != id || a.code != r.code(protocol.Overloaded) {
				t.Errorf("answer %d with code %d; want answer %d with %d", a.id, a.code, id, r.code(protocol.Overloaded))
			}
		}
		if len(got) > 0 {
			t.Errorf("the application got %d requests", len(got))
		}
	})
}

// TestDescriptorsThatAreShort verifies that Weft stops accepting connections before descriptors run
// out. Open connections are served without errors. Later ones wait, and are served when others have
// closed. Reload and shutdown still work.
func TestDescriptorsThatAreShort(t *testing.T) {
	t.Parallel()
	app := serve(t, answers("served"))
	s, front := simple(app.address)
	s.more = overloadManager("file_descriptors", nil, 0.8, "stop_accepting_connections")
	w := launch(t, launchOptions{config: s.config(), shell: `ulimit -n 100; exec "$@"`})
	w.awaitReady()
	open := dial(t, front).send(get)
	open.response("GET")
	var held []net.Conn
	for range 101 {
		c, err := net.DialTimeout("tcp", front, patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		held = append(held, c)
		if len(held) > 60 { // not faster than the monitor is read
			<-time.After(25 * time.Millisecond)
		}
	}
	w.stderr.await(t, 0, "action=stop_accepting_connections state=saturated")
	waiting := dial(t, front).send(get)
	if response, _ := open.send(get).response("GET"); response.StatusCode != 200 {
		t.Errorf("a connection that is open: %d", response.StatusCode)
	}
	// Reload while Weft accepts no connections.
	s.tables = list{table("front", says("/new", 200, "new"), to("/", "app"))}
	s.admin = w.admin
	w.reload(s.config())
	if _, body := open.send("GET /new HTTP/1.1\nHost: a\n\n").response("GET"); body != "new" {
		t.Errorf("after a reload: %q", body)
	}
	for _, c := range held {
		_ = c.Close() // frees descriptors
	}
	if response, _ := waiting.response("GET"); response.StatusCode != 200 {
		t.Errorf("the one that waited: %d", response.StatusCode)
	}
	if n := w.metric("weft_listener_accept_errors_total"); n != 0 {
		t.Errorf("%v times accepting failed: nothing was to be accepted", n)
	}
	w.signal(syscall.SIGTERM)
	if status := w.awaitExit(patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestIdleConnectionsMakeRoom verifies that Weft closes idle connections when descriptors are
// short, and serves new ones.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	app := serve(t, answers("served"))
	s, front := simple(app.address)
	s.more = overloadManager("file_descriptors", object{"max_file_descriptors": 100}, 0.7, "shrink_idle")
	w := run(t, s.config())
	var held []*wire
	for range 90 {
		held = append(held, dial(t, front))
	}
	for _, c := range held {
		if rest := c.rest(); rest != "" {
			t.Fatalf("an idle connection got %q", rest)
		}
	}
	if got := ask(t, client(t), "GET", "http://"+front, ""); got.status != 200 {
		t.Errorf("afterwards: %d", got.status)
	}
	if n := w.metric("weft_listener_connections_closed_total", `cause="overload"`); n != 90 {
		t.Errorf("%v connections ended for it, want 90", n)
	}
}

// TestConnectionsAreLimitedOverAllListeners verifies that a limit of two connections counts the
// connections of both listeners.
func TestConnectionsAreLimitedOverAllListeners(t *testing.T) {
	t.Parallel()
	one, other := free(), free()
	s := setup{
		listeners: list{listen("one", one), listen("other", other)},
		tables:    list{table("one", says("/", 200, "ok")), table("other", says("/", 200, "ok"))},
		more:      overloadManager("downstream_connections", object{"max_active_downstream_connections": 2}, 1, "shrink_heap"),
	}
	w := run(t, s.config())
	first, second := dial(t, one), dial(t, other)
	first.send(get).response("GET")
	second.send(get).response("GET")
	for _, address := range []string{one, other} {
		if got := dial(t, address).rest(); got != "" {
			t.Errorf("the third got %q, want its end", got)
		}
	}
	if n := w.metric("weft_listener_connections_refused_total"); n != 2 {
		t.Errorf("weft_listener_connections_refused_total = %v, want 2", n)
	}
	_ = first.Close() // frees a slot
	eventually(t, "there is room at the other listener", func() bool {
		c, err := net.Dial("tcp", other)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte(get)); err != nil {
			return false
		}
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	})
}

// TestOverloadIsNoDrain verifies that a healthcheck filter does not report a drain when overload
// closes the connection.
func TestOverloadIsNoDrain(t *testing.T) {
	t.Parallel()
	s, front := simple(serve(t, answers("served")).address)
	s.listeners[0].(object)["stream_filters"] = list{filterOf("healthcheck", object{"endpoint": "/healthz"})}
	s.more = overloadManager("downstream_connections", object{"max_active_downstream_connections": 10}, 0.1, "disable_http_keepalive")
	w := run(t, s.config())
	open := dial(t, front)
	eventually(t, "connections are short", func() bool { return w.overloaded("disable_http_keepalive") == "saturated" })
	response, body := open.send(strings.Replace(get, "GET / ", "GET /healthz ", 1)).response("GET")
	if response.StatusCode != 200 || !response.Close {
		t.Errorf("%d %q, closes: %t; want 200, and the connection's end", response.StatusCode, body, response.Close)
	}
}

// TestConnectionsBeyondTheRateWait verifies that connections above the accept rate wait and are not
// refused.
func TestConnectionsBeyondTheRateWait(t *testing.T) {
	t.Parallel()
	const perSecond, burst, all = 20, 5, 20
	s, front := simple("127.0.0.1:1")
	s.tables = list{table("front", says("/", 200, "ok"))}
	s.listeners = list{listen("front", front, object{"accept_rate": object{"per_second": perSecond, "burst": burst}})}
	w := run(t, s.config())
	began := time.Now()
	var callers []*wire
	for range all {
		callers = append(callers, dial(t, front).send(get))
	}
	for i, c := range callers {
		if response, _ := c.response("GET"); response.StatusCode != 200 {
			t.Errorf("caller %d: %d", i, response.StatusCode)
		}
	}
	// Weft may accept a connection before its token is available.
	if took, least := time.Since(began), time.Duration(all-burst-1)*time.Second/perSecond; took < least || took > least+soon {
		t.Errorf("%d connections took %v, want %v", all, took, least)
	}
	if n := w.metric("weft_listener_connections_refused_total"); n != 0 {
		t.Errorf("%v connections were refused", n)
	}
}

// overloadExample runs overload.json. Above 10 connections a response closes its connection. States
// and pressures are reported.
func overloadExample(t *testing.T) {
	e := openExample(t, "overload.json")
	serveAt(t, e.at("3191"), answers("served"))
	w := e.run("overload.json")
	w.admin = e.at("3187")
	var callers []*wire
	for range 12 {
		callers = append(callers, dial(t, e.at("3185")).send(get))
	}
	for _, c := range callers {
		if response, body := c.response("GET"); response.StatusCode != 200 || body != "served" {
			t.Errorf("%d %q", response.StatusCode, body)
		}
	}
	for range 8 {
		dial(t, e.at("3185")).send("GET / HTTP/1.1\n") // stays open
	}
	eventually(t, "there are many connections", func() bool { return w.overloaded("disable_http_keepalive") == "saturated" })
	ended := 0
	for _, c := range callers {
		if response, _ := c.send(get).response("GET"); response.Close {
			ended++
		}
	}
	if ended == 0 {
		t.Error("no answer ended its connection")
	}
	for _, action := range []string{"shrink_heap", "stop_accepting_requests", "shrink_idle", "stop_accepting_connections"} {
		if state := w.overloaded(action); state != "inactive" {
			t.Errorf("%s is %s", action, state)
		}
	}
	if n := w.metric("weft_overload_pressure"); n <= 0 {
		t.Errorf("pressures are %v", n)
	}
}
