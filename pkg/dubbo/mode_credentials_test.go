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

// urlRejecter is a registry that accepts instances, but no URLs.
type urlRejecter struct{ *fakeRegistry }

func (urlRejecter) Register(context.Context, registry.URL) error { return errors.New("no URLs") }

// TestInstanceModeEndsURLOfOtherCredentials covers a publication with other credentials. The
// registry rejects its URL, but has its instance. Then the mode changes to instance.
func TestInstanceModeEndsURLOfOtherCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, defaultConfig())
		discovery, err := dubbo.New(dubbo.Options{
			Registries: map[string]registry.OpenFunc{"fake": func(o registry.Options) (registry.Registry, error) {
				if _, err := env.fake.open(o); err != nil || o.Username == "" {
					return env.fake, err
				}
				return urlRejecter{env.fake}, nil
			}},
			Config: defaultConfig(), Apply: env.apply, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		env.discovery = discovery
		env.run()
		defer env.end()
		must(t, discovery.Publish(t.Context(), inMode("interface", "x")))
		must(t, discovery.Publish(t.Context(), request("y"))) // keeps the session open
		withOtherUser := func(mode string) dubbo.Request {
			req := inMode(mode, "x")
			req.Registry.Username, req.Registry.Password = "u", "p"
			return req
		}
		if err := discovery.Publish(t.Context(), withOtherUser("all")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish in the mode all: %v, want ErrPending, because the URL is rejected", err)
		}
		env.wantInstances("weft 10.1.1.1:20080 x")
		env.wantURLs("dubbo x#get", "dubbo y#get")
		must(t, discovery.Publish(t.Context(), withOtherUser("instance")))
		advanceClock(time.Minute)
		env.wantInstances("weft 10.1.1.1:20080 x")
		env.wantURLs("dubbo y#get")
	})
}
