package dubbo_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weft-proxy/weft/pkg/dubbo"
)

func TestOneSessionForAllServicesOfAnAddress(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		for i := range 5 {
			env.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			must(t, env.discovery.Publish(env.Context(), request(fmt.Sprint("s", i))))
			must(t, env.discovery.Subscribe(env.Context(), request(fmt.Sprint("s", i))))
		}
		if env.fake.opened != 1 {
			t.Errorf("%d sessions, want 1", env.fake.opened)
		}
		req := request("s0")
		req.Registry.Username = "u"
		req.Registry.Password = "p"
		must(t, env.discovery.Publish(env.Context(), req))
		if env.fake.opened != 2 {
			t.Errorf("%d sessions, want a second one for another user", env.fake.opened)
		}
		if n := len(env.discovery.Status().Published); n != 5 {
			t.Errorf("%d services are published, want 5: the user does not identify a service", n)
		}
	})
}

func TestRegistryOpenedLater(t *testing.T) {
	c := defaultConfig()
	c.StateFile = filepath.Join(t.TempDir(), "state.json")
	inSynctest(t, c, func(env *testEnv) {
		env.fake.report("y", "10.0.0.1")
		must(env.T, env.discovery.Publish(env.Context(), request("x")))
		must(env.T, env.discovery.Subscribe(env.Context(), request("y")))
		env.fake.mu.Lock()
		env.fake.openErr = errors.New("no certificate")
		env.fake.mu.Unlock()
		env.restart(c)
		env.run()
		defer env.end()
		if p := env.discovery.Status().Published[0]; p.Registered || !strings.Contains(p.Error, "no certificate") {
			t.Errorf("status %+v, want the error", p)
		}
		env.wantActive("y=10.0.0.1")
		env.fake.mu.Lock()
		env.fake.openErr = nil
		env.fake.mu.Unlock()
		must(env.T, env.discovery.Publish(env.Context(), request("z")))
		env.fake.report("y", "10.0.0.1", "10.0.0.2")
		synctest.Wait()
		env.wantActive("y=10.0.0.1,10.0.0.2")
		if got := strings.Join(env.fake.registered(), "; "); got != "dubbo x#get; dubbo z#get" {
			t.Errorf("registered %s, want \"dubbo x#get; dubbo z#get\"", got)
		}
	})
}

func TestRegistriesAreBounded(t *testing.T) {
	const maxRegistries = 256
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		requestTo := func(i int) dubbo.Request {
			req := request("x")
			req.Registry.Address = fmt.Sprint("h:", i)
			return req
		}
		for i := range maxRegistries {
			must(env.T, env.discovery.Publish(env.Context(), requestTo(i)))
		}
		var field *dubbo.FieldError
		if err := env.discovery.Publish(env.Context(), requestTo(maxRegistries)); !errors.As(err, &field) || field.Field != "registry.addr" {
			t.Errorf("Publish above the limit: %v, want a FieldError for registry.addr", err)
		}
		must(env.T, env.discovery.Publish(env.Context(), requestTo(1)))
		must(env.T, env.discovery.Unpublish(env.Context(), requestTo(1)))
		must(env.T, env.discovery.Publish(env.Context(), requestTo(maxRegistries)))
	})
}

func TestRegistryCannotBeOpened(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		req := request("x")
		req.Registry.Address = "bad"
		var field *dubbo.FieldError
		if err := env.discovery.Subscribe(env.Context(), req); !errors.As(err, &field) || field.Field != "registry.addr" {
			t.Errorf("Subscribe = %v, want a FieldError for registry.addr", err)
		}
		if s := env.discovery.Status(); len(s.Registries) != 0 || len(s.Subscribed) != 0 {
			t.Errorf("status %+v, want no registry and no subscription", s)
		}
	})
}
