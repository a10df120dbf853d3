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

// slowUnregister is a registry that unregisters instances only after proceed is closed.
type slowUnregister struct {
	*fakeRegistry

	proceed <-chan struct{}
}

func (s *slowUnregister) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	<-s.proceed
	return s.fakeRegistry.UnregisterInstance(ctx, i)
}

// TestRepublishWithOtherCredentials covers an instance that is published again while its previous
// registration is being removed over a shared session.
func TestRepublishWithOtherCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, defaultConfig())
		proceed := make(chan struct{})
		discovery, err := dubbo.New(dubbo.Options{
			Registries: map[string]registry.OpenFunc{"fake": func(o registry.Options) (registry.Registry, error) {
				_, err := env.fake.open(o)
				return &slowUnregister{env.fake, proceed}, err
			}},
			Config: defaultConfig(), Apply: env.apply, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		env.discovery = discovery
		env.run()
		defer env.end()
		must(t, discovery.Publish(t.Context(), inMode("instance", "x")))
		must(t, discovery.Publish(t.Context(), request("y")))
		must(t, discovery.Publish(t.Context(), request("z")))

		var unpublishErr error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			unpublishErr = discovery.Unpublish(t.Context(), request("x"))
		}()
		synctest.Wait()
		republish := inMode("instance", "x")
		republish.Registry.Username, republish.Registry.Password = "u", "p"
		env.fake.set(false, errors.New("rejected"))
		if err := discovery.Publish(t.Context(), republish); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish: %v, want %v", err, dubbo.ErrPending)
		}
		close(proceed)
		<-ended
		must(t, unpublishErr)
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		env.wantInstances("weft 10.1.1.1:20080 x")

		must(t, discovery.Unpublish(t.Context(), request("y")))
		synctest.Wait()
		env.fake.mu.Lock()
		defer env.fake.mu.Unlock()
		if env.fake.closed != 0 {
			t.Error("the session of z was closed")
		}
	})
}

// TestRepublishAsInstanceWithOtherCredentials verifies that the URL of the previous publication
// stays registered only until the instance is registered.
func TestRepublishAsInstanceWithOtherCredentials(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		must(t, env.discovery.Publish(env.Context(), inMode("interface", "x")))
		must(t, env.discovery.Publish(env.Context(), request("y"))) // keeps the session open
		republish := inMode("instance", "x")
		republish.Registry.Username, republish.Registry.Password = "u", "p"
		env.fake.set(false, errors.New("rejected"))
		if err := env.discovery.Publish(env.Context(), republish); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish: %v, want %v", err, dubbo.ErrPending)
		}
		env.wantURLs("dubbo x#get", "dubbo y#get")
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		env.wantInstances("weft 10.1.1.1:20080 x")
		env.wantURLs("dubbo y#get")
	})
}

// TestInstanceWithOtherCredentialsReleasesSession verifies that the session with the previous
// credentials closes.
func TestInstanceWithOtherCredentialsReleasesSession(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		req := inMode("instance", "x")
		must(t, env.discovery.Publish(env.Context(), req))
		req.Registry.Username, req.Registry.Password = "u", "p"
		must(t, env.discovery.Publish(env.Context(), req))
		synctest.Wait()
		if registries := env.discovery.Status().Registries; len(registries) != 1 || registries[0].Username != "u" {
			t.Errorf("sessions %+v, want only the session of user u", registries)
		}
	})
}
