package proxy

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// onDemandSnapshot puts the route table of c on demand. If unsubscribed is true, the table is
// empty.
func onDemandSnapshot(c *config.Snapshot, wait time.Duration, unsubscribed bool) *config.Snapshot {
	t := *c.Routes[0]
	t.OnDemand = config.OnDemand{Wait: wait, Unsubscribed: unsubscribed}
	if unsubscribed {
		t.VirtualHosts = nil
	}
	c.Routes = []*config.RouteTable{&t}
	return c
}

// TestFirstRequestsWaitForOnDemandTable verifies that the first requests wait for the table and
// that the server requests the table once.
func TestFirstRequestsWaitForOnDemandTable(t *testing.T) {
	r := newRig(t)
	snapshot := setup{routes: directRoute("awake")}.snapshot
	r.apply(onDemandSnapshot(snapshot(t), time.Minute, true))
	address := r.address("front")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := roundTrip(t, address, get("/")); got.body != "awake" {
				t.Errorf("response %d %q, want awake", got.StatusCode, got.body)
			}
		})
	}
	d := r.server.OnDemandRoutes()
	<-d.Requested()
	if got := d.TakeRequested(); !slices.Equal(got, []string{"table"}) {
		t.Errorf("requested tables %v, want table", got)
	}
	r.apply(onDemandSnapshot(snapshot(t), time.Minute, false))
	wg.Wait()
	if !d.InUse("table") || d.InUse("table") {
		t.Error("InUse must return true after a request and then false")
	}
	c := dialClient(t, address)
	c.roundTrip(get("/"))
	if !d.InUse("table") {
		t.Error("InUse = false after a request")
	}

	r.apply(onDemandSnapshot(snapshot(t), time.Minute, true))
	var waiter sync.WaitGroup
	waiter.Go(func() {
		if got := c.roundTrip(get("/")); got.body != "again" {
			t.Errorf("response %d %q, want again", got.StatusCode, got.body)
		}
	})
	for requested := false; !requested; { // an earlier request for the table may signal again
		<-d.Requested()
		requested = slices.Contains(d.TakeRequested(), "table")
	}
	r.apply(onDemandSnapshot(setup{routes: directRoute("again")}.snapshot(t), time.Minute, false))
	waiter.Wait()
}

func TestOnDemandTableTimeout(t *testing.T) {
	r := newRig(t)
	snapshot := setup{routes: directRoute("awake"), listener: `"access_logs": [{"log_path": "stderr"}]`}.snapshot
	r.apply(onDemandSnapshot(snapshot(t), 50*time.Millisecond, true))
	address := r.address("front")
	for range 2 {
		if got := roundTrip(t, address, get("/")); got.StatusCode != 503 || !strings.Contains(got.body, "configuration not received in time") {
			t.Errorf("response %d %q, want 503: configuration not received in time", got.StatusCode, got.body)
		}
	}
	r.await(2, "weft_listener_request_failures_total", "front", "not_supplied")
}

// TestDisconnectEndsTableWait verifies that a request stops waiting for its table when the client
// disconnects.
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

// TestTableReplacementWakesWaiters verifies that waiting requests use the new table when a
// configuration replaces the on-demand table with one that is not on demand.
func TestTableReplacementWakesWaiters(t *testing.T) {
	r := newRig(t)
	r.apply(onDemandSnapshot(setup{routes: directRoute("never")}.snapshot(t), time.Minute, true))
	address := r.address("front")
	var wg sync.WaitGroup
	wg.Go(func() {
		if got := roundTrip(t, address, get("/")); got.body != "other" {
			t.Errorf("response %d %q, want other", got.StatusCode, got.body)
		}
	})
	<-r.server.OnDemandRoutes().Requested()
	r.apply(setup{routes: directRoute("other")}.snapshot(t))
	wg.Wait()
	if r.server.OnDemandRoutes().InUse("table") {
		t.Error("the on-demand state of the table remains although it is not on demand")
	}
}
