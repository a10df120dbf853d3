package dubbo_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/registry"
)

// slowUnregister is a registry that unregisters an instance only after let is closed.
type slowUnregister struct {
	*fakeRegistry

	proceed <-chan struct{}
}

func (s *slowUnregister) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	<-s.proceed
	return s.fakeRegistry.UnregisterInstance(ctx, i)
}

// TestRepublishWithOtherCredentials covers an instance that is
// published again while its previous registration is being removed over a shared session.
func TestRepublishWithOtherCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, defaultConfig())
		let := make(chan struct{})
		discovery, err := dubbo.New(dubbo.Options{
			Registries: map[string]registry.OpenFunc{"fake": func(o registry.Options) (registry.Registry, error) {
				_, err := r.fake.open(o)
				return &slowUnregister{r.fake, let}, err
			}},
			Config: defaultConfig(), Apply: r.apply, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		r.discovery = discovery
		r.run()
		defer r.end()
		must(t, discovery.Publish(t.Context(), inMode("instance", "x")))
		must(t, discovery.Publish(t.Context(), request("y")))
		must(t, discovery.Publish(t.Context(), request("z")))

		var gone error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			gone = discovery.Unpublish(t.Context(), request("x"))
		}()
		synctest.Wait()
		again := inMode("instance", "x")
		again.Registry.Username, again.Registry.Password = "u", "p"
		r.fake.set(false, errors.New("not now"))
		if err := discovery.Publish(t.Context(), again); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish: %v", err)
		}
		close(let)
		<-ended
		must(t, gone)
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		r.wantInstances("weft 10.1.1.1:20080 x")

		must(t, discovery.Unpublish(t.Context(), request("y")))
		synctest.Wait()
		r.fake.mu.Lock()
		defer r.fake.mu.Unlock()
		if r.fake.closed != 0 {
			t.Error("the session that z is published in was closed")
		}
	})
}

// TestRepublishAsInstanceWithOtherCredentials verifies that the URL of the previous publication
// stays registered until the instance is, and no longer.
func TestRepublishAsInstanceWithOtherCredentials(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		must(t, r.discovery.Publish(r.Context(), inMode("interface", "x")))
		must(t, r.discovery.Publish(r.Context(), request("y"))) // keeps the session open
		again := inMode("instance", "x")
		again.Registry.Username, again.Registry.Password = "u", "p"
		r.fake.set(false, errors.New("not now"))
		if err := r.discovery.Publish(r.Context(), again); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish: %v", err)
		}
		r.wantInstanceCalls("dubbo x#get", "dubbo y#get")
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		r.wantInstances("weft 10.1.1.1:20080 x")
		r.wantInstanceCalls("dubbo y#get")
	})
}

// TestInstanceWithOtherCredentialsReleasesSession verifies that the session of the previous
// credentials ends.
func TestInstanceWithOtherCredentialsReleasesSession(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		q := inMode("instance", "x")
		must(t, r.discovery.Publish(r.Context(), q))
		q.Registry.Username, q.Registry.Password = "u", "p"
		must(t, r.discovery.Publish(r.Context(), q))
		synctest.Wait()
		if open := r.discovery.Status().Registries; len(open) != 1 || open[0].Username != "u" {
			t.Errorf("the sessions are %+v, want only that of u", open)
		}
	})
}
