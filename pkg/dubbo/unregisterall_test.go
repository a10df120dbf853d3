package dubbo_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/registry"
)

// instanceTracker is a registry that records the registered instances by application.
type instanceTracker struct {
	*fakeRegistry

	mu    sync.Mutex
	there map[string]string // guarded by mu; the services of each instance
}

func (h *instanceTracker) open(o registry.Options) (registry.Registry, error) {
	_, err := h.fakeRegistry.open(o)
	return h, err
}

func (h *instanceTracker) RegisterInstance(_ context.Context, a *registry.InstanceRegistration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.there[a.Instance.Application] = strings.Join(a.Interfaces, ",")
	return nil
}

func (h *instanceTracker) UnregisterInstance(_ context.Context, i registry.Instance) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.there, i.Application)
	return nil
}

// TestUnpublishAfterUnregisterAll covers an application and a sidecar that stop at the
// same time, while the application unpublishes its services one by one.
func TestUnpublishAfterUnregisterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, defaultConfig())
		to := &instanceTracker{fakeRegistry: r.fake, there: map[string]string{}}
		discovery, err := dubbo.New(dubbo.Options{
			Registries: map[string]registry.OpenFunc{"fake": to.open}, Config: defaultConfig(), Apply: r.apply, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		r.discovery = discovery
		r.run()
		defer r.end()
		all := map[string]dubbo.Request{}
		for _, name := range []string{"x", "y", "z"} {
			q := request(name)
			q.Service.Name = "shop"
			q.Service.Parameters = map[string]string{"register-mode": "all"}
			all[name] = q
			must(t, r.discovery.Publish(t.Context(), q))
		}
		want := func(instances string, urls ...string) {
			t.Helper()
			synctest.Wait()
			if got := fmt.Sprint(to.there); got != instances || !slices.Equal(r.fake.registered(), urls) {
				t.Errorf("registered instances and URLs = %s and %q, want %s and %q", got, r.fake.registered(), instances, urls)
			}
		}
		want("map[shop:x,y,z]", "dubbo x#get", "dubbo y#get", "dubbo z#get")
		must(t, r.discovery.Unpublish(t.Context(), all["y"]))
		want("map[shop:x,z]", "dubbo x#get", "dubbo z#get")
		r.discovery.UnregisterAll(t.Context())
		want("map[]")
		must(t, r.discovery.Unpublish(t.Context(), all["x"]))
		want("map[]")
		must(t, r.discovery.Unpublish(t.Context(), all["z"]))
		want("map[]")
	})
}
