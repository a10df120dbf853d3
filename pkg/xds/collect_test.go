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
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// collectable reports whether the value that p points to is garbage.
func collectable[T any](p weak.Pointer[T]) bool {
	for range 3 { // a value that a finalizer or a pool holds takes more than one collection
		goruntime.GC()
		if p.Value() == nil {
			return true
		}
	}
	return false
}

// TestReplacedResourcesCanBeCollected: nothing holds a resource once another of its name is in
// force. No further update is needed for that.
func TestReplacedResourcesCanBeCollected(t *testing.T) {
	pki := testpki.New(t)
	secret := func() said { return aSecret("certificate", pki.Issue(testpki.Spec{CommonName: "a"})) }
	for name, c := range map[string]struct {
		watch func(w *world) []func() bool
		next  said
	}{
		"cluster": {
			func(w *world) []func() bool {
				return []func() bool{watch(w.clusters["a"].live), watch(w.clusters["a"].made)}
			},
			aCluster("a", "hosts", "", 1),
		},
		"listener": {
			func(w *world) []func() bool {
				return []func() bool{watch(w.listeners["in"].live), watch(w.listeners["in"].made)}
			},
			aListener("in", 2001, "table", "certificate", 0),
		},
		"endpoints": {func(w *world) []func() bool { return []func() bool{watch(w.assignments["hosts"])} }, someHosts("hosts", 81)},
		"routes":    {func(w *world) []func() bool { return []func() bool{watch(w.tables["table"])} }, someRoutes("table", "two")},
		"secret": {func(w *world) []func() bool {
			return []func() bool{watch(w.secrets[resource.SecretRef{Name: "certificate"}])}
		}, secret()},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
			s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
			say(t, s, aCluster("a", "hosts", "", 0))
			say(t, s, someHosts("hosts", 80), aListener("in", 2000, "table", "certificate", 0), someRoutes("table", "one"), secret())
			if s.world.clusters["a"].made == nil || s.world.listeners["in"].made == nil {
				t.Fatal("the resources are not active")
			}
			watched := c.watch(s.world)
			say(t, s, c.next)
			for i, collectable := range watched {
				if !collectable() {
					t.Errorf("%d: still referenced after another one replaced it", i)
				}
			}
			goruntime.KeepAlive(s)
		})
	}
}

// TestALargeUpdateDoesNotKeepItsUndoList: the list of changes of an update is dropped with it.
func TestALargeUpdateDoesNotKeepItsUndoList(t *testing.T) {
	s, _ := aSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handle(t.Context(), event{feed: s.feeds[0], opened: true})
	r := &ads.Response{Type: resource.ClusterType, Version: "1", Nonce: "n"}
	for i := range 1000 {
		one := aCluster(fmt.Sprint("c", i), fmt.Sprint("hosts", i), "", 0)
		r.Resources = append(r.Resources, ads.Resource{Name: one.name, Version: "1", Body: one.body})
	}
	s.handle(t.Context(), event{feed: s.feeds[0], response: r})
	if n := len(s.world.undo); n != 0 {
		t.Errorf("%d changes can still be undone after the update ended", n)
	}
	if c := cap(s.world.undo); c > 64 {
		t.Errorf("the list has room for %d changes after the update ended", c)
	}
}

// TestStaticResourcesCanBeCollected: the start, and a file that is read again, end with nothing
// to undo.
func TestStaticResourcesCanBeCollected(t *testing.T) {
	b := bootstrapText("GRPC")
	b.Static = []byte(strings.Replace(string(b.Static), `{"clusters": [`, `{"clusters": [{"name": "more", "type": "STATIC", "connect_timeout": "1s"}, `, 1))
	s, _ := aSourceOf(t, b, slog.New(slog.DiscardHandler))
	if len(s.world.undo) != 0 {
		t.Errorf("%d changes can be rolled back after the start", len(s.world.undo))
	}
	collectable := watch(s.world.clusters["more"].live)
	b.Static = []byte(strings.Replace(string(b.Static), `"1s"`, `"2s"`, 1))
	if err := s.Rebase(t.Context(), &config.Snapshot{Bootstrap: b}); err != nil {
		t.Fatal(err)
	}
	if !collectable() {
		t.Error("the previous static cluster is still referenced")
	}
	goruntime.KeepAlive(s)
}

// watch returns a function that reports whether what p points to is garbage.
func watch[T any](p *T) func() bool {
	held := weak.Make(p)
	return func() bool { return collectable(held) }
}
