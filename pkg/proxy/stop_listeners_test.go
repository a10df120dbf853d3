package proxy

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listenersConfig returns a file with listeners of these names.
func listenersConfig(grace string, names ...string) string {
	var listeners []string
	for i, name := range names {
		listeners = append(listeners, `{"name": "`+name+`", "address": "127.0.0.`+strconv.Itoa(i+1)+`:0",
			"filter_chains": [{"filters": [{"type": "proxy", "config": {"downstream_protocol": "Http1", "router_config_name": "table"}}]}]}`)
	}
	return `{"servers": [{"graceful_timeout": "` + grace + `", "listeners": [` + strings.Join(listeners, ",") + `],
		"routers": [{"router_config_name": "table", "virtual_hosts": [{"domains": ["*"], "routers": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]}]}]}`
}

// isStopped reports whether a listener accepts no connections.
func isStopped(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// TestStopListeners verifies that open connections continue, that the server still applies
// configurations, and that new listeners are stopped, too.
func TestStopListeners(t *testing.T) {
	r := newRig(t)
	r.apply(parse(t, listenersConfig("1s", "first")))
	first := r.address("first")
	client := dialClient(t, first)
	if got := client.roundTrip(get("/")); got.StatusCode != 200 {
		t.Fatalf("status %d, want 200", got.StatusCode)
	}
	r.server.StopListeners(AllListeners)
	r.server.StopListeners(IngressListeners) // a smaller scope starts nothing again
	if !isStopped(first) {
		t.Error("the listener still accepts connections")
	}
	r.apply(parse(t, listenersConfig("1s", "first", "second")))
	if !isStopped(first) || !isStopped(r.address("second")) {
		t.Error("a listener accepts connections after a reload")
	}
	if got := client.roundTrip(get("/")); got.StatusCode != 200 || got.Close {
		t.Errorf("open connection: status %d, Close %t, want 200 and false", got.StatusCode, got.Close)
	}
	for _, l := range r.server.Describe() {
		if !l.Draining {
			t.Errorf("%s is not shown as draining", l.Name)
		}
	}
}

// TestGracefulStopEndsWithDrain verifies that Drain does not wait for the end of a graceful stop, and
// that connections close after their next response.
func TestGracefulStopEndsWithDrain(t *testing.T) {
	r := newRig(t)
	r.apply(parse(t, listenersConfig("1h", "first")))
	address := r.address("first")
	idle := dialClient(t, address)
	if got := idle.roundTrip(get("/")); got.Close {
		t.Error("the connection closes before the drain")
	}
	r.server.StopListenersGracefully(AllListeners)
	for name, client := range map[string]*testClient{"open": idle, "new": dialClient(t, address)} {
		if got := client.roundTrip(get("/")); got.StatusCode != 200 || !got.Close {
			t.Errorf("%s connection: status %d, Close %t, want 200 and true", name, got.StatusCode, got.Close)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.server.Drain(ctx)
	if ctx.Err() != nil {
		t.Error("Drain waited for its deadline")
	}
}
