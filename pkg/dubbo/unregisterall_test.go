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

	mu         sync.Mutex
	registered map[string]string // guarded by mu; the services of each instance
}

func (tr *instanceTracker) open(o registry.Options) (registry.Registry, error) {
	_, err := tr.fakeRegistry.open(o)
	return tr, err
}

func (tr *instanceTracker) RegisterInstance(_ context.Context, reg *registry.InstanceRegistration) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.registered[reg.Instance.Application] = strings.Join(reg.Interfaces, ",")
	return nil
}

func (tr *instanceTracker) UnregisterInstance(_ context.Context, i registry.Instance) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	delete(tr.registered, i.Application)
	return nil
}

// TestUnpublishAfterUnregisterAll covers an application and a sidecar that stop at the same time,
// while the application unpublishes its services one by one.
func TestUnpublishAfterUnregisterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, defaultConfig())
		tracker := &instanceTracker{fakeRegistry: env.fake, registered: map[string]string{}}
		discovery, err := dubbo.New(dubbo.Options{
			Registries: map[string]registry.OpenFunc{"fake": tracker.open}, Config: defaultConfig(), Apply: env.apply, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		env.discovery = discovery
		env.run()
		defer env.end()
		requests := map[string]dubbo.Request{}
		for _, name := range []string{"x", "y", "z"} {
			req := request(name)
			req.Service.Name = "shop"
			req.Service.Parameters = map[string]string{"register-mode": "all"}
			requests[name] = req
			must(t, env.discovery.Publish(t.Context(), req))
		}
		want := func(instances string, urls ...string) {
			t.Helper()
			synctest.Wait()
			if got := fmt.Sprint(tracker.registered); got != instances || !slices.Equal(env.fake.registered(), urls) {
				t.Errorf("registered instances and URLs = %s and %q, want %s and %q", got, env.fake.registered(), instances, urls)
			}
		}
		want("map[shop:x,y,z]", "dubbo x#get", "dubbo y#get", "dubbo z#get")
		must(t, env.discovery.Unpublish(t.Context(), requests["y"]))
		want("map[shop:x,z]", "dubbo x#get", "dubbo z#get")
		env.discovery.UnregisterAll(t.Context())
		want("map[]")
		must(t, env.discovery.Unpublish(t.Context(), requests["x"]))
		want("map[]")
		must(t, env.discovery.Unpublish(t.Context(), requests["z"]))
		want("map[]")
	})
}
