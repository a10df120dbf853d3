package xds

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/ads"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// newTestSource returns a Source that does not connect to its control plane, and the snapshot that
// it applies. cache is the directory of the xDS cache.
func newTestSource(t testing.TB, apiType, cache string, log *slog.Logger) (*Source, *config.Snapshot) {
	t.Helper()
	b := xdstest.Bootstrap(apiType)
	b.Cache = config.XDSCache{Path: cache, MaxAge: time.Hour}
	return newTestSourceFrom(t, b, log)
}

// newTestSourceFrom is newTestSource with a given bootstrap.
func newTestSourceFrom(t testing.TB, b config.Bootstrap, log *slog.Logger) (*Source, *config.Snapshot) {
	t.Helper()
	return newTestSourceWith(t, b, log, func(*Options) {})
}

// newTestSourceWith is newTestSourceFrom with options that change modifies.
func newTestSourceWith(t testing.TB, b config.Bootstrap, log *slog.Logger, change func(*Options)) (*Source, *config.Snapshot) {
	t.Helper()
	active := &config.Snapshot{}
	o := Options{
		Bootstrap: b,
		Layers: layers.New(func(_ context.Context, d config.Delta) error {
			*active = *d.Next()
			return nil
		}),
		Capabilities: xdstest.Capabilities(),
		Log:          log,
	}
	change(&o)
	s, err := New(o)
	if err == nil {
		err = s.stack.SetFile(t.Context(), &config.Snapshot{Bootstrap: config.Bootstrap{StaticResources: s.opts.Bootstrap.StaticResources}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, active
}

// clusterOf returns the state of a cluster; the zero value if there is none.
func clusterOf(s *Source, name string) state.Cluster { return maps.Collect(s.state.Clusters())[name] }

// listenerOf is clusterOf for a listener.
func listenerOf(s *Source, name string) state.Listener {
	return maps.Collect(s.state.Listeners())[name]
}

// activeTable returns the active version of a route table; nil: none.
func activeTable(s *Source, name string) *config.RouteTable {
	for _, t := range s.stack.Snapshot().Routes {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// checkInvariants fails t if the state of s is not consistent.
func checkInvariants(t *testing.T, s *Source, seed uint64) {
	t.Helper()
	if err := s.state.CheckInvariants(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

// respondWith makes s handle one response of the control plane for each resource.
func respondWith(t testing.TB, s *Source, resources ...xdstest.Resource) {
	t.Helper()
	for _, r := range resources {
		s.handleEvent(t.Context(), event{channel: s.channels[0], response: &ads.Response{
			Type: r.URL, Version: "1", Nonce: "n", Resources: []ads.Resource{{Name: r.Name, Version: "1", Body: r.Body}},
		}})
	}
}

// respondWithoutClusters makes s handle a CDS response without clusters.
func respondWithoutClusters(t testing.TB, s *Source) {
	t.Helper()
	s.handleEvent(t.Context(), event{channel: s.channels[0], response: &ads.Response{Type: resource.ClusterType, Version: "1", Nonce: "n"}})
}

// TestCacheIsUsedWithoutSecrets verifies that the xDS cache contains no private keys. Until the
// control plane responds, a restarted process applies the cached resources that need no secret.
func TestCacheIsUsedWithoutSecrets(t *testing.T) {
	pki, dir := testpki.New(t), t.TempDir()
	first, firstActive := newTestSource(t, "DELTA_GRPC", dir, slog.New(slog.DiscardHandler))
	stop := first.startCache()
	first.handleEvent(t.Context(), event{channel: first.channels[0], opened: true})
	respondWith(t, first,
		xdstest.Cluster("plain", "e", "", 0), xdstest.Cluster("secured", "e", "s", 0), xdstest.Endpoints("e", 1, 2),
		xdstest.Listener("open", 80, "r", "", 0), xdstest.Listener("closed", 81, "r", "s", 0), xdstest.Routes("r", "one"),
		xdstest.Secret("s", pki.Issue(testpki.Spec{})))
	if len(firstActive.Listeners) != 2 || len(firstActive.Clusters) != 3 {
		t.Fatalf("%d active listeners and %d clusters, want 2 and 3", len(firstActive.Listeners), len(firstActive.Clusters))
	}
	stop()
	file, err := os.ReadFile(first.cache.Status().Path)
	if err != nil || bytes.Contains(file, []byte("PRIVATE KEY")) || first.cache.Status().Failure != "" {
		t.Fatalf("cache status %+v, error %v, contains a private key: %t; want no failure and no key", first.cache.Status(), err, bytes.Contains(file, []byte("PRIVATE KEY")))
	}

	var text bytes.Buffer
	restarted, active := newTestSource(t, "DELTA_GRPC", dir, slog.New(slog.NewTextHandler(&text, nil)))
	restarted.applyCacheIfSilent(t.Context())
	if len(active.Listeners) != 1 || active.Listeners[0].Name != "open" || len(active.Clusters) != 2 || len(active.Routes) != 1 {
		t.Errorf("active after the restart: %+v, want the resources without secrets", active)
	}
	restarted.applyCacheIfSilent(t.Context())
	if n := strings.Count(text.String(), "resources of the xDS cache are active"); n != 2 || !restarted.cache.Status().InUse || restarted.cache.Status().ReceivedAt.IsZero() {
		t.Errorf("%d warnings, cache status %+v, want 2 warnings and a cache in use", n, restarted.cache.Status())
	}
	// After a connect, the requests list the cached resources. A response ends the use of the cache.
	ch := restarted.channels[0]
	restarted.handleEvent(t.Context(), event{channel: ch, opened: true})
	accepted := map[string]int{}
	for _, r := range ch.queue {
		accepted[r.Type] = len(r.InitialVersions)
	}
	if want := map[string]int{resource.ClusterType: 2, resource.ListenerType: 2, resource.EndpointType: 1, resource.RouteType: 1, resource.SecretType: 0}; !reflect.DeepEqual(accepted, want) {
		t.Errorf("the requests list %v accepted resources, want %v", accepted, want)
	}
	respondWith(t, restarted, xdstest.Secret("s", pki.Issue(testpki.Spec{})))
	if restarted.cache.Status().InUse || len(active.Listeners) != 2 || len(active.Clusters) != 3 {
		t.Errorf("after the secret: active %+v, cache status %+v; want 2 listeners, 3 clusters and an unused cache", active, restarted.cache.Status())
	}
}

// TestUnusableCacheIsIgnored verifies that the Source ignores an unusable cache and logs the
// reason.
func TestUnusableCacheIsIgnored(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "resources"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	s, active := newTestSource(t, "GRPC", dir, slog.New(slog.NewTextHandler(&text, nil)))
	s.applyCacheIfSilent(t.Context())
	if len(active.Listeners) != 0 || s.cache.Status().InUse || !strings.Contains(s.cache.Status().Failure, "not an xDS cache of this version") || !strings.Contains(text.String(), "cannot use the xDS cache") {
		t.Errorf("cache status %+v, log %s; want an unused cache and the reason", s.cache.Status(), text.String())
	}
}

// TestIncompleteConfigurationIsNotCached verifies that a configuration without listeners is not
// saved, because it would replace a complete one.
func TestIncompleteConfigurationIsNotCached(t *testing.T) {
	s, _ := newTestSource(t, "GRPC", t.TempDir(), slog.New(slog.DiscardHandler))
	stop := s.startCache()
	s.handleEvent(t.Context(), event{channel: s.channels[0], opened: true})
	respondWith(t, s, xdstest.Cluster("plain", "e", "", 0), xdstest.Endpoints("e", 1))
	s.saveIfDue() // no listeners were received yet
	stop()
	if _, err := os.Stat(s.cache.Status().Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of the cache file: error %v, want %v", err, fs.ErrNotExist)
	}
}
