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
	now, s := time.Now(), newState()
	s.runtime = layeredRuntime{layers: []bootstrap.RuntimeLayer{{Resource: "one", Timeout: time.Minute}, {Resource: "two", Timeout: time.Hour}}, startedAt: now}.merge()
	applyResource(t, s, xdstest.Routes("r", "text"), now)
	applyResource(t, s, xdstest.Listener("l", 80, "r", "", 0), now)
	if _, next := s.Reconcile(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("the next reconcile is after %v, want an hour", next.Sub(now))
	}
	s.Checkpoint()
	s.setRuntime(s.runtime.withLayer("two", &resource.Layer{}))
	if _, next := s.Reconcile(now); !next.Equal(now.Add(time.Minute)) {
		t.Errorf("while only the first layer is missing, the next reconcile is after %v, want a minute", next.Sub(now))
	}
	s.Rollback()
	if _, next := s.Reconcile(now); !next.Equal(now.Add(time.Hour)) {
		t.Errorf("after the rollback, the next reconcile is after %v, want an hour", next.Sub(now))
	}
	if c, _ := s.Reconcile(now.Add(time.Hour)); len(c.ActivatedListeners) != 1 {
		t.Errorf("change after an hour = %+v, want the listener", c)
	}
}

// TestListenersUseRuntime verifies replaceListener, which a runtime change calls: a held-back
// listener becomes active in the new version, and so does a listener whose routes were removed.
func TestListenersUseRuntime(t *testing.T) {
	now, s := time.Now(), newState()
	read := func(port int) *resource.Listener {
		l, err := resource.ReadListener(xdstest.Listener("l", port, "r", "", 0).Body, xdstest.Capabilities())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	address := func() string {
		snapshot := xdstest.Snapshot(s)
		if len(snapshot.Listeners) == 0 {
			return ""
		}
		return snapshot.Listeners[0].Address
	}
	s.setListener("l", read(80), now)
	s.setTable("r", &resource.RouteTable{Config: &config.RouteTable{Name: "r"}})
	s.HoldBack("l")
	if s.Reconcile(now); address() != "" {
		t.Errorf("the held-back listener is active at %s, want it inactive", address())
	}
	s.replaceListener("l", read(81))
	if s.Reconcile(now); address() != "127.0.0.1:81" {
		t.Errorf("listener at %q, want port 81", address())
	}
	s.setTable("r", nil)
	s.Reconcile(now)
	s.Checkpoint()
	s.replaceListener("l", read(82))
	if c, _ := s.Reconcile(now); address() != "127.0.0.1:82" || len(c.ActivatedListeners) != 0 {
		t.Errorf("listener at %q, activated %q; want port 82, none", address(), c.ActivatedListeners)
	}
	s.Rollback()
	if s.Reconcile(now); address() != "127.0.0.1:81" {
		t.Errorf("listener at %q, want port 81 again", address())
	}
}
