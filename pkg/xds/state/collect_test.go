package state

import (
	"fmt"
	goruntime "runtime"
	"testing"
	"time"
	"weak"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// collectable reports whether the garbage collector frees the value that p points to.
func collectable[T any](p weak.Pointer[T]) bool {
	for range 3 { // a value in a pool or with a finalizer needs more than one collection
		goruntime.GC()
		if p.Value() == nil {
			return true
		}
	}
	return false
}

// TestReplacedResourcesCanBeCollected verifies that a State does not reference a resource once its
// replacement is active and final.
func TestReplacedResourcesCanBeCollected(t *testing.T) {
	pki := testpki.New(t)
	secret := func() xdstest.Resource {
		return xdstest.Secret("certificate", pki.Issue(testpki.Spec{CommonName: "a"}))
	}
	for name, c := range map[string]struct {
		watch func(w *State) []func() bool
		next  xdstest.Resource
	}{
		"cluster": {
			func(w *State) []func() bool {
				return []func() bool{watchCollected(w.clusters.byName["a"].Active), watchCollected(w.clusters.byName["a"].ActiveConfig)}
			},
			xdstest.Cluster("a", "hosts", "", 1),
		},
		"listener": {
			func(w *State) []func() bool {
				return []func() bool{watchCollected(w.listeners.byName["in"].Active), watchCollected(w.listeners.byName["in"].ActiveConfig)}
			},
			xdstest.Listener("in", 2001, "table", "certificate", 0),
		},
		"endpoints": {func(w *State) []func() bool { return []func() bool{watchCollected(w.assignments["hosts"])} }, xdstest.Endpoints("hosts", 81)},
		"routes":    {func(w *State) []func() bool { return []func() bool{watchCollected(w.tables["table"])} }, xdstest.Routes("table", "two")},
		"secret": {func(w *State) []func() bool {
			return []func() bool{watchCollected(w.secrets[resource.SecretRef{Name: "certificate"}])}
		}, secret()},
	} {
		t.Run(name, func(t *testing.T) {
			now, w := time.Now(), newState()
			update := func(all ...xdstest.Resource) {
				for _, r := range all {
					applyResource(t, w, r, now)
				}
				w.Reconcile(now)
				w.TakeSubscriptionChanges()
				w.Checkpoint()
			}
			update(xdstest.Cluster("a", "hosts", "", 0), xdstest.Listener("in", 2000, "table", "certificate", 0))
			update(xdstest.Endpoints("hosts", 80), xdstest.Routes("table", "one"), secret())
			watched := c.watch(w)
			update(c.next)
			for i, collectable := range watched {
				if !collectable() {
					t.Errorf("value %d is still referenced after its replacement is active", i)
				}
			}
			goruntime.KeepAlive(w)
		})
	}
}

// TestLargeUndoLogIsReleased verifies that Checkpoint releases the undo log of a large update.
func TestLargeUndoLogIsReleased(t *testing.T) {
	w := newState()
	for i := range 1000 {
		applyResource(t, w, xdstest.Cluster(fmt.Sprint("c", i), fmt.Sprint("hosts", i), "", 0), time.Now())
	}
	w.Checkpoint()
	if n, c := len(w.undo.functions), cap(w.undo.functions); n != 0 || c > 64 {
		t.Errorf("undo log: length %d, capacity %d", n, c)
	}
}

// watchCollected returns a function that reports whether the garbage collector frees *p.
func watchCollected[T any](p *T) func() bool {
	held := weak.Make(p)
	return func() bool { return collectable(held) }
}
