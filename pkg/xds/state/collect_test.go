package state

import (
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestReplacedResourcesCanBeCollected verifies that a State does not reference a resource once its
// replacement is active and final.
func TestReplacedResourcesCanBeCollected(t *testing.T) {
	pki := testpki.New(t)
	secret := func() xdstest.Resource {
		return xdstest.Secret("certificate", pki.Issue(testpki.Spec{CommonName: "a"}))
	}
	for name, c := range map[string]struct {
		watch func(s *State) []func() bool
		next  xdstest.Resource
	}{
		"cluster": {
			func(s *State) []func() bool {
				return []func() bool{xdstest.WatchCollected(s.clusters.byName["a"].Active), xdstest.WatchCollected(s.clusters.byName["a"].ActiveConfig)}
			},
			xdstest.Cluster("a", "hosts", "", 1),
		},
		"listener": {
			func(s *State) []func() bool {
				return []func() bool{xdstest.WatchCollected(s.listeners.byName["in"].Active), xdstest.WatchCollected(s.listeners.byName["in"].ActiveConfig)}
			},
			xdstest.Listener("in", 2001, "table", "certificate", 0),
		},
		"endpoints": {func(s *State) []func() bool { return []func() bool{xdstest.WatchCollected(s.assignments["hosts"])} }, xdstest.Endpoints("hosts", 81)},
		"routes":    {func(s *State) []func() bool { return []func() bool{xdstest.WatchCollected(s.tables["table"])} }, xdstest.Routes("table", "two")},
		"secret": {func(s *State) []func() bool {
			return []func() bool{xdstest.WatchCollected(s.secrets[resource.SecretRef{Name: "certificate"}])}
		}, secret()},
	} {
		t.Run(name, func(t *testing.T) {
			now, s := time.Now(), newState()
			update := func(resources ...xdstest.Resource) {
				for _, r := range resources {
					applyResource(t, s, r, now)
				}
				s.Reconcile(now)
				s.TakeSubscriptionChanges()
				s.Checkpoint()
			}
			update(xdstest.Cluster("a", "hosts", "", 0), xdstest.Listener("in", 2000, "table", "certificate", 0))
			update(xdstest.Endpoints("hosts", 80), xdstest.Routes("table", "one"), secret())
			checks := c.watch(s)
			update(c.next)
			for i, collected := range checks {
				if !collected() {
					t.Errorf("value %d is still referenced after its replacement is active", i)
				}
			}
			goruntime.KeepAlive(s)
		})
	}
}

// TestLargeUndoLogIsReleased verifies that Checkpoint releases the undo log of a large update.
func TestLargeUndoLogIsReleased(t *testing.T) {
	s := newState()
	for i := range 1000 {
		applyResource(t, s, xdstest.Cluster(fmt.Sprint("c", i), fmt.Sprint("hosts", i), "", 0), time.Now())
	}
	s.Checkpoint()
	if n, c := len(s.undo.functions), cap(s.undo.functions); n != 0 || c > 64 {
		t.Errorf("undo log: length %d, capacity %d; want 0, at most 64", n, c)
	}
}
