package xds

import (
	"fmt"
	"log/slog"
	goruntime "runtime"
	"strings"
	"testing"
	"weak"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/ads"
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

// TestReplacedResourcesCanBeCollected verifies that nothing references a resource once its
// replacement is active, without a further update.
func TestReplacedResourcesCanBeCollected(t *testing.T) {
	pki := testpki.New(t)
	secret := func() xdstest.Resource {
		return xdstest.Secret("certificate", pki.Issue(testpki.Spec{CommonName: "a"}))
	}
	for name, c := range map[string]struct {
		watch func(w *state) []func() bool
		next  xdstest.Resource
	}{
		"cluster": {
			func(w *state) []func() bool {
				return []func() bool{watchCollected(w.clusters["a"].active), watchCollected(w.clusters["a"].activeConfig)}
			},
			xdstest.Cluster("a", "hosts", "", 1),
		},
		"listener": {
			func(w *state) []func() bool {
				return []func() bool{watchCollected(w.listeners["in"].active), watchCollected(w.listeners["in"].activeConfig)}
			},
			xdstest.Listener("in", 2001, "table", "certificate", 0),
		},
		"endpoints": {func(w *state) []func() bool { return []func() bool{watchCollected(w.assignments["hosts"])} }, xdstest.Endpoints("hosts", 81)},
		"routes":    {func(w *state) []func() bool { return []func() bool{watchCollected(w.tables["table"])} }, xdstest.Routes("table", "two")},
		"secret": {func(w *state) []func() bool {
			return []func() bool{watchCollected(w.secrets[resource.SecretRef{Name: "certificate"}])}
		}, secret()},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0))
			respondWith(t, s, xdstest.Endpoints("hosts", 80), xdstest.Listener("in", 2000, "table", "certificate", 0), xdstest.Routes("table", "one"), secret())
			if s.state.clusters["a"].activeConfig == nil || s.state.listeners["in"].activeConfig == nil {
				t.Fatal("the resources are not active")
			}
			watched := c.watch(s.state)
			respondWith(t, s, c.next)
			for i, collectable := range watched {
				if !collectable() {
					t.Errorf("%d: still referenced after another one replaced it", i)
				}
			}
			goruntime.KeepAlive(s)
		})
	}
}

// TestLargeUndoLogIsReleased verifies that the undo log of a large update is released when the
// update ends.
func TestLargeUndoLogIsReleased(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	r := &ads.Response{Type: resource.ClusterType, Version: "1", Nonce: "n"}
	for i := range 1000 {
		one := xdstest.Cluster(fmt.Sprint("c", i), fmt.Sprint("hosts", i), "", 0)
		r.Resources = append(r.Resources, ads.Resource{Name: one.Name, Version: "1", Body: one.Body})
	}
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: r})
	if n := len(s.state.undoLog); n != 0 {
		t.Errorf("%d changes can still be undone after the update ended", n)
	}
	if c := cap(s.state.undoLog); c > 64 {
		t.Errorf("the list has room for %d changes after the update ended", c)
	}
}

// TestStaticResourcesCanBeCollected verifies that the undo log is empty after the start, and that a
// replaced static cluster can be collected.
func TestStaticResourcesCanBeCollected(t *testing.T) {
	b := xdstest.Bootstrap("GRPC")
	b.StaticResources = []byte(strings.Replace(string(b.StaticResources), `{"clusters": [`, `{"clusters": [{"name": "more", "type": "STATIC", "connect_timeout": "1s"}, `, 1))
	s, _ := newTestSourceOf(t, b, slog.New(slog.DiscardHandler))
	if len(s.state.undoLog) != 0 {
		t.Errorf("%d changes can be rolled back after the start", len(s.state.undoLog))
	}
	collectable := watchCollected(s.state.clusters["more"].active)
	b.StaticResources = []byte(strings.Replace(string(b.StaticResources), `"1s"`, `"2s"`, 1))
	if err := s.ApplyFile(t.Context(), &config.Snapshot{Bootstrap: b}); err != nil {
		t.Fatal(err)
	}
	if !collectable() {
		t.Error("the previous static cluster is still referenced")
	}
	goruntime.KeepAlive(s)
}

// watchCollected returns a function that reports whether the garbage collector frees *p.
func watchCollected[T any](p *T) func() bool {
	held := weak.Make(p)
	return func() bool { return collectable(held) }
}
