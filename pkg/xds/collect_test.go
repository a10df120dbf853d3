package xds

import (
	"log/slog"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
)

// TestReplacedResourcesCanBeCollected verifies that nothing references a resource once its
// replacement is active, without a further update.
func TestReplacedResourcesCanBeCollected(t *testing.T) {
	secret := xdstest.Secret("certificate", testpki.New(t).Issue(testpki.Spec{CommonName: "a"}))
	for name, c := range map[string]struct {
		watch func(s *Source) []func() bool
		next  xdstest.Resource
	}{
		"cluster": {
			func(s *Source) []func() bool {
				return []func() bool{xdstest.WatchCollected(clusterOf(s, "a").Active), xdstest.WatchCollected(clusterOf(s, "a").ActiveConfig)}
			},
			xdstest.Cluster("a", "hosts", "", 1),
		},
		"listener": {
			func(s *Source) []func() bool {
				return []func() bool{xdstest.WatchCollected(listenerOf(s, "in").Active), xdstest.WatchCollected(listenerOf(s, "in").ActiveConfig)}
			},
			xdstest.Listener("in", 2001, "table", "certificate", 0),
		},
		"routes": {func(s *Source) []func() bool { return []func() bool{xdstest.WatchCollected(activeTable(s, "table"))} }, xdstest.Routes("table", "two")},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
			s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
			respondWith(t, s, xdstest.Cluster("a", "hosts", "", 0))
			respondWith(t, s, xdstest.Endpoints("hosts", 80), xdstest.Listener("in", 2000, "table", "certificate", 0), xdstest.Routes("table", "one"), secret)
			if clusterOf(s, "a").ActiveConfig == nil || listenerOf(s, "in").ActiveConfig == nil {
				t.Fatal("the resources are not active")
			}
			checks := c.watch(s)
			respondWith(t, s, c.next)
			for i, collected := range checks {
				if !collected() {
					t.Errorf("value %d is still referenced after its replacement is active", i)
				}
			}
			goruntime.KeepAlive(s)
		})
	}
}

// TestRollbackKeepsPreviousUpdate verifies that a rollback does not undo the changes of an earlier
// update, so that the state releases the replaced resources.
func TestRollbackKeepsPreviousUpdate(t *testing.T) {
	s, _ := newTestSource(t, "DELTA_GRPC", "", slog.New(slog.DiscardHandler))
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("c", "hosts", "", 0), xdstest.Listener("l", 80, "table", "", 0))
	s.state.Rollback()
	if clusterOf(s, "c").Received == nil || listenerOf(s, "l").Received == nil {
		t.Error("Rollback undid the changes of an earlier update")
	}
}

// TestStaticResourcesCanBeCollected verifies that Rollback does not undo the static resources that
// were read at the start, and that a replaced static cluster can be collected.
func TestStaticResourcesCanBeCollected(t *testing.T) {
	b := xdstest.Bootstrap("GRPC")
	b.StaticResources = []byte(strings.Replace(string(b.StaticResources), `{"clusters": [`, `{"clusters": [{"name": "more", "type": "STATIC", "connect_timeout": "1s"}, `, 1))
	s, _ := newTestSourceFrom(t, b, slog.New(slog.DiscardHandler))
	s.state.Rollback()
	if clusterOf(s, "more").Active == nil {
		t.Error("Rollback undid the static resources of the start")
	}
	collected := xdstest.WatchCollected(clusterOf(s, "more").Active)
	b.StaticResources = []byte(strings.Replace(string(b.StaticResources), `"1s"`, `"2s"`, 1))
	if err := s.stack.SetFile(t.Context(), &config.Snapshot{Bootstrap: b}); err != nil {
		t.Fatal(err)
	}
	if !collected() {
		t.Error("the previous static cluster is still referenced")
	}
	goruntime.KeepAlive(s)
}
