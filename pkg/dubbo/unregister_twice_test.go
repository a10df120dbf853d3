package dubbo_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/registry"
)

// delayedUnregister is a registry that takes a second to unregister a URL, even if the caller has
// stopped waiting.
type delayedUnregister struct{ *fakeRegistry }

func (d *delayedUnregister) Unregister(ctx context.Context, u registry.URL) error {
	done := make(chan error, 1)
	time.AfterFunc(time.Second, func() { done <- d.fakeRegistry.Unregister(ctx, u) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newDelayedUnregister(t *testing.T) *testEnv {
	env := newTestEnv(t, defaultConfig())
	c := defaultConfig()
	c.UnregisterWait = 10 * time.Second
	discovery, err := dubbo.New(dubbo.Options{
		Registries: map[string]registry.OpenFunc{"fake": func(o registry.Options) (registry.Registry, error) {
			_, err := env.fake.open(o)
			return &delayedUnregister{env.fake}, err
		}},
		Config: c, Apply: env.apply, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	env.discovery = discovery
	return env.run()
}

// TestUnpublishDuringUnregisterAll verifies that Unpublish does not cancel the unregistration that
// UnregisterAll has started.
func TestUnpublishDuringUnregisterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newDelayedUnregister(t)
		defer env.end()
		must(t, env.discovery.Publish(t.Context(), request("x")))
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			env.discovery.UnregisterAll(t.Context())
			if elapsed := time.Since(start); elapsed != 11*time.Second {
				t.Errorf("UnregisterAll returned after %v, want 1s for the registry and 10s for consumers", elapsed)
			}
		})
		synctest.Wait()
		if err := env.discovery.Unpublish(t.Context(), request("x")); err != nil {
			t.Errorf("Unpublish: %v", err)
		}
		wg.Wait()
		if got := env.fake.registered(); len(got) > 0 {
			t.Errorf("still registered: %q, want no URL", got)
		}
	})
}

// TestPublishAsInstanceTwice verifies that the second call does not cancel the unregistration of
// the URL that the first call has started.
func TestPublishAsInstanceTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newDelayedUnregister(t)
		defer env.end()
		must(t, env.discovery.Publish(t.Context(), inMode("all", "x")))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := env.discovery.Publish(t.Context(), inMode("instance", "x")); err != nil {
					t.Errorf("Publish: %v", err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if got := env.fake.registered(); len(got) > 0 {
			t.Errorf("still registered: %q, want no URL", got)
		}
	})
}
