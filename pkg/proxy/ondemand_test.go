package proxy

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// onDemandSnapshot makes the table of a configuration one on demand, and empty if it is asleep.
func onDemandSnapshot(c *config.Snapshot, wait time.Duration, asleep bool) *config.Snapshot {
	t := *c.Routes[0]
	t.OnDemand = config.OnDemand{Wait: wait, Unsubscribed: asleep}
	if asleep {
		t.VirtualHosts = nil
	}
	c.Routes = []*config.RouteTable{&t}
	return c
}

// TestFirstRequestsWaitForOnDemandTable, and the table is asked for once.
func TestFirstRequestsWaitForOnDemandTable(t *testing.T) {
	r := newRig(t)
	snapshot := setup{routes: directRoute("awake")}.snapshot
	r.apply(onDemandSnapshot(snapshot(t), time.Minute, true))
	address := r.address("front")
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			if got := roundTrip(t, address, get("/")); got.body != "awake" {
				t.Errorf("answer %d %q, want awake", got.StatusCode, got.body)
			}
		})
	}
	d := r.server.OnDemandRoutes()
	<-d.Requested()
	if got := d.TakeRequested(); !slices.Equal(got, []string{"table"}) {
		t.Errorf("asked for %v, want table", got)
	}
	r.apply(onDemandSnapshot(snapshot(t), time.Minute, false))
	asking.Wait()
	if !d.InUse("table") || d.InUse("table") {
		t.Error("the table was used, and is not any more: want true and then false")
	}
	open := dialClient(t, address)
	open.roundTrip(get("/"))
	if !d.InUse("table") {
		t.Error("Used = false after a request")
	}

	r.apply(onDemandSnapshot(snapshot(t), time.Minute, true))
	var waits sync.WaitGroup
	waits.Go(func() {
		if got := open.roundTrip(get("/")); got.body != "again" {
			t.Errorf("answer %d %q, want again", got.StatusCode, got.body)
		}
	})
	for asked := false; !asked; { // what was asked for before may be told of once more
		<-d.Requested()
		asked = slices.Contains(d.TakeRequested(), "table")
	}
	r.apply(onDemandSnapshot(setup{routes: directRoute("again")}.snapshot(t), time.Minute, false))
	waits.Wait()
}

func TestOnDemandTableTimeout(t *testing.T) {
	r := newRig(t)
	snapshot := setup{routes: directRoute("awake"), listener: `"access_logs": [{"log_path": "stderr"}]`}.snapshot
	r.apply(onDemandSnapshot(snapshot(t), 50*time.Millisecond, true))
	address := r.address("front")
	for range 2 {
		if got := roundTrip(t, address, get("/")); got.StatusCode != 503 || !strings.Contains(got.body, "configuration not received in time") {
			t.Errorf("answer %d %q, want 503: configuration not received in time", got.StatusCode, got.body)
		}
	}
	r.await(2, "weft_listener_request_failures_total", "front", "not_supplied")
}

// TestDisconnectEndsTableWait.
func TestDisconnectEndsTableWait(t *testing.T) {
	r := newRig(t)
	r.apply(onDemandSnapshot(setup{routes: directRoute("never")}.snapshot(t), time.Hour, true))
	c := dialClient(t, r.address("front"))
	c.send(get("/"))
	<-r.server.OnDemandRoutes().Requested()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r.await(1, "weft_listener_requests_total", "front")
}

// TestTableReplacementWakesWaiters.
func TestTableReplacementWakesWaiters(t *testing.T) {
	r := newRig(t)
	r.apply(onDemandSnapshot(setup{routes: directRoute("never")}.snapshot(t), time.Minute, true))
	address := r.address("front")
	var asking sync.WaitGroup
	asking.Go(func() {
		if got := roundTrip(t, address, get("/")); got.body != "other" {
			t.Errorf("answer %d %q, want other", got.StatusCode, got.body)
		}
	})
	<-r.server.OnDemandRoutes().Requested()
	r.apply(setup{routes: directRoute("other")}.snapshot(t))
	asking.Wait()
	if r.server.OnDemandRoutes().InUse("table") {
		t.Error("the table is kept although it is not on demand")
	}
}
