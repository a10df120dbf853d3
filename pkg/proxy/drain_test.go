package proxy

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestRemovedListenerDrains(t *testing.T) {
	app := newBlockingUpstream(t, "slow")
	s := setup{routes: routeTo("app"), clusters: cluster("app", app.address)}
	r, address := s.run(t)
	busy, idle := dialClient(t, address), dialClient(t, address)
	busy.send(get("/"))
	<-app.arrived
	idle.send(get("/"))
	<-app.arrived
	app.release <- struct{}{}
	app.release <- struct{}{}
	first, second := busy.read("GET "), idle.read("GET ")
	if first.body != "slow" || second.body != "slow" {
		t.Fatalf("first responses %q and %q, want slow", first.body, second.body)
	}
	busy.send(get("/"))
	<-app.arrived

	r.apply(parse(t, `{"servers": [{"listeners": [], "routers": []}]}`))
	if got := r.server.Describe(); len(got) != 0 {
		t.Errorf("listeners: %v, want none", got)
	}
	if !idle.ended() {
		t.Error("an idle connection was not closed")
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("the removed listener still accepts connections")
	}
	// The configuration no longer contains the cluster either, but the request must succeed.
	app.release <- struct{}{}
	if got := busy.read("GET "); got.StatusCode != 200 || got.body != "slow" || !got.Close {
		t.Errorf("request in flight: %d %q, Close %t; want 200, %q, true", got.StatusCode, got.body, got.Close, "slow")
	}
	if !busy.ended() {
		t.Error("the busy connection was not closed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.server.Drain(ctx)
	if r.exports("front") {
		t.Error("metrics of the listener still exist")
	}
}

// TestAddressIsFreeAfterRemoval verifies that the next configuration can bind the address of a
// removed listener that still drains.
func TestAddressIsFreeAfterRemoval(t *testing.T) {
	app := newBlockingUpstream(t, "slow")
	s := setup{address: freeAddress(t), routes: routeTo("app"), clusters: cluster("app", app.address)}
	r, address := s.run(t)
	c := dialClient(t, address)
	c.send(get("/"))
	<-app.arrived
	for range 3 {
		r.apply(parse(t, `{"servers": [{"listeners": [], "routers": []}]}`))
		r.apply(setup{address: s.address, routes: directRoute("back")}.snapshot(t))
		if got := roundTrip(t, address, get("/")); got.body != "back" {
			t.Errorf("response %q, want %q", got.body, "back")
		}
	}
	app.release <- struct{}{}
	if got := c.read("GET "); got.body != "slow" {
		t.Errorf("request in flight: response %q, want %q", got.body, "slow")
	}
}

func TestDrainFinishesInFlightRequests(t *testing.T) {
	app := newBlockingUpstream(t, "slow")
	r, address := setup{routes: routeTo("app"), clusters: cluster("app", app.address)}.run(t)
	busy, idle := dialClient(t, address), dialClient(t, address)
	busy.send(get("/"))
	<-app.arrived
	idle.roundTrip("GET / HTTP/1.1\r\n\r\n") // rejected because Host is missing; the connection closes
	idle = dialClient(t, address)

	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.server.Drain(context.Background())
	}()
	if !idle.ended() {
		t.Error("an idle connection was not closed")
	}
	if !r.server.Draining() {
		t.Error("Draining = false")
	}
	select {
	case <-drained:
		t.Error("Drain did not wait for the request in flight")
	default:
	}
	app.release <- struct{}{}
	if got := busy.read("GET "); got.body != "slow" || !got.Close {
		t.Errorf("request in flight: response %q, Close %t; want %q, true", got.body, got.Close, "slow")
	}
	<-drained
	if err := r.server.Apply(t.Context(), config.FullDelta(setup{routes: directRoute("new")}.snapshot(t))); err == nil {
		t.Error("Apply succeeded after Drain")
	}
	if r.exports("front") || r.exports("table") || r.exports("app") {
		t.Error("metrics of the listener, route table or cluster still exist")
	}
}

// TestDrainForceClosesAtDeadline verifies that Drain ends requests that wait for an upstream or for
// the delay of a filter, also on removed listeners.
func TestDrainForceClosesAtDeadline(t *testing.T) {
	delay := setup{
		filters: `{"type": "fault", "config": {"delay": {"fixed_delay": "1h", "percentage": 100}}}`,
		routes:  directRoute("late"), server: `"graceful_timeout": "1h"`,
	}
	for name, test := range map[string]struct {
		setup   setup
		request string
		remove  bool
	}{
		"upstream":                   {setup{server: `"graceful_timeout": "1h"`}, get("/"), false},
		"upstream, listener removed": {setup{server: `"graceful_timeout": "1h"`}, get("/"), true},
		"delay":                      {delay, get("/"), false},
		"delay, incomplete body":     {delay, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", false},
		"delay, listener removed":    {delay, get("/"), true},
		"delay, incomplete body, listener removed": {delay, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", true},
	} {
		t.Run(name, func(t *testing.T) {
			filter := newBlockingFilter()
			s := test.setup
			if s.routes == "" {
				s.routes, s.clusters = routeTo("app"), cluster("app", newBlockingUpstream(t, "never").address)
			}
			s.filters = strings.TrimSuffix(`{"type": "blocking"}, `+s.filters, ", ")
			r, address := s.run(t, filter.factory())
			c := dialClient(t, address)
			c.send(test.request)
			<-filter.arrived
			if test.remove {
				r.apply(parse(t, `{"servers": [{"graceful_timeout": "1h", "listeners": [], "routers": []}]}`))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			start := time.Now()
			r.server.Drain(ctx)
			if elapsed := time.Since(start); elapsed > 5*time.Second {
				t.Errorf("Drain took %v, want at most %v", elapsed, 5*time.Second)
			}
		})
	}
}
