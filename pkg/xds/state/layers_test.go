package state

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestListenersWaitForRuntime verifies that listeners wait for missing runtime layers until the
// timeouts of the layers, which count from the start.
func TestListenersWaitForRuntime(t *testing.T) {
	now, w := time.Now(), newState()
	w.runtime = layeredRuntime{layers: []bootstrap.RuntimeLayer{{Resource: "one", Timeout: time.Minute}, {Resource: "two", Timeout: time.Hour}}, startedAt: now}.merge()
	applyResource(t, w, xdstest.Routes("r", "text"), now)
	applyResource(t, w, xdstest.Listener("l", 80, "r", "", 0), now)
	if _, next := w.Reconcile(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("the next reconcile is after %v, want an hour", next.Sub(now))
	}
	w.Checkpoint()
	w.setRuntime(w.runtime.withLayer("two", &resource.Layer{}))
	if _, next := w.Reconcile(now); !next.Equal(now.Add(time.Minute)) {
		t.Errorf("without the first layer, the next reconcile is after %v, want a minute", next.Sub(now))
	}
	w.Rollback()
	if _, next := w.Reconcile(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("after the rollback, the next reconcile is after %v, want an hour", next.Sub(now))
	}
	if c, _ := w.Reconcile(now.Add(time.Hour)); len(c.ActivatedListeners) != 1 {
		t.Errorf("change after an hour = %+v, want the listener", c)
	}
}

// TestListenersUseRuntime verifies that replaceListener also replaces a held-back listener, which
// is then applied again, and a listener whose routes were removed. A runtime change uses
// replaceListener.
func TestListenersUseRuntime(t *testing.T) {
	now, w := time.Now(), newState()
	read := func(port int) *resource.Listener {
		l, err := resource.ReadListener(xdstest.Listener("l", port, "r", "", 0).Body, xdstest.Capabilities())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	address := func() string {
		s := xdstest.Snapshot(w)
		if len(s.Listeners) == 0 {
			return ""
		}
		return s.Listeners[0].Address
	}
	w.setListener("l", read(80), now)
	w.setTable("r", &resource.RouteTable{Config: &config.RouteTable{Name: "r"}})
	w.HoldBack("l")
	if w.Reconcile(now); address() != "" {
		t.Errorf("a held-back listener is active at %s", address())
	}
	w.replaceListener("l", read(81))
	if w.Reconcile(now); address() != "127.0.0.1:81" {
		t.Errorf("listener at %q, want port 81", address())
	}
	w.setTable("r", nil)
	w.Reconcile(now)
	w.Checkpoint()
	w.replaceListener("l", read(82))
	if c, _ := w.Reconcile(now); address() != "127.0.0.1:82" || len(c.ActivatedListeners) != 0 {
		t.Errorf("listener at %q, want port 82; activated %q", address(), c.ActivatedListeners)
	}
	w.Rollback()
	if w.Reconcile(now); address() != "127.0.0.1:81" {
		t.Errorf("listener at %q, want port 81 again", address())
	}
}
