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

// delayedUnregister is a registry that takes a second to unregister a URL, even if the caller no
// longer waits.
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
	r := newRig(t, defaultConfig())
	c := defaultConfig()
	c.UnregisterWait = 10 * time.Second
	discovery, err := dubbo.New(dubbo.Options{
		Registries: map[string]registry.OpenFunc{"fake": func(o registry.Options) (registry.Registry, error) {
			_, err := r.fake.open(o)
			return &delayedUnregister{r.fake}, err
		}},
		Config: c, Apply: r.apply, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	r.discovery = discovery
	return r.run()
}

// TestUnpublishDuringUnregisterAll verifies that Unpublish does not cancel what UnregisterAll has
// begun.
func TestUnpublishDuringUnregisterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDelayedUnregister(t)
		defer r.end()
		must(t, r.discovery.Publish(t.Context(), request("x")))
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			r.discovery.UnregisterAll(t.Context())
			if took := time.Since(began); took != 11*time.Second {
				t.Errorf("UnregisterAll returned after %v, want 1s for the registry and 10s for consumers", took)
			}
		})
		synctest.Wait()
		if err := r.discovery.Unpublish(t.Context(), request("x")); err != nil {
			t.Errorf("Unpublish: %v", err)
		}
		all.Wait()
		if got := r.fake.registered(); len(got) > 0 {
			t.Errorf("still registered: %q", got)
		}
	})
}

// TestPublishAsInstanceTwice verifies that the second call does not cancel the unregistration of
// the URL that the first one has begun.
func TestPublishAsInstanceTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDelayedUnregister(t)
		defer r.end()
		must(t, r.discovery.Publish(t.Context(), inMode("all", "x")))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if err := r.discovery.Publish(t.Context(), inMode("instance", "x")); err != nil {
					t.Errorf("Publish: %v", err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if got := r.fake.registered(); len(got) > 0 {
			t.Errorf("still registered: %q", got)
		}
	})
}
