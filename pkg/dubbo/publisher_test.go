package dubbo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo"
)

func TestPublish(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		must(t, env.discovery.Publish(env.Context(), request("g/x:1")))
		must(t, env.discovery.Publish(env.Context(), request("g/x:1"))) // the second call has no effect
		req := request("g/x:1")
		req.Service.Methods = []string{"get", "set"}
		req.Service.Name = "shop"
		req.Service.Parameters = map[string]string{"weight": "7", "generic": "true"}
		must(t, env.discovery.Publish(env.Context(), req))
		synctest.Wait() // until the replaced URL is unregistered
		must(t, env.discovery.Publish(env.Context(), request("y")))
		synctest.Wait()
		if got, want := env.fake.calls, []string{"+dubbo g/x:1#get", "+dubbo g/x:1#get,set", "-dubbo g/x:1#get", "+dubbo y#get"}; !slices.Equal(got, want) {
			t.Errorf("calls of the registry = %q, want %q", got, want)
		}
		p := env.discovery.Status().Published[0]
		for _, part := range []string{"dubbo://10.1.1.1:20080/x?", "group=g", "version=1", "methods=get,set", "application=shop", "side=provider", "weight=7", "generic=true"} {
			if !strings.Contains(p.URL, part) {
				t.Errorf("the URL %s has no %s", p.URL, part)
			}
		}
		if strings.Contains(p.URL, "pid=") {
			t.Errorf("the URL %s contains the pid, which changes after a restart", p.URL)
		}
		if !p.Registered || p.Error != "" {
			t.Errorf("status %+v, want it registered", p)
		}
		must(t, env.discovery.Unpublish(env.Context(), request("g/x:1")))
		if got := strings.Join(env.fake.registered(), " "); got != "dubbo y#get" {
			t.Errorf("registered %q, want only y", got)
		}
		if err := env.discovery.Unpublish(env.Context(), request("g/x:1")); !errors.Is(err, dubbo.ErrNotFound) {
			t.Errorf("second Unpublish: %v, want ErrNotFound", err)
		}
	})
}

// TestPublishWithOtherCredentials verifies that a service is registered with the new credentials
// before it is unregistered with the old ones, and stays registered if the new ones are wrong.
func TestPublishWithOtherCredentials(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		req := request("x")
		must(t, env.discovery.Publish(env.Context(), req))
		env.fake.set(false, errors.New("wrong password"))
		req.Registry.Username, req.Registry.Password = "u", "p"
		if err := env.discovery.Publish(env.Context(), req); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("got %v, want ErrPending", err)
		}
		advanceClock(time.Hour)
		if got := env.fake.registered(); len(got) != 1 {
			t.Errorf("registered %q, want the previous registration", got)
		}
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		if got, want := env.fake.calls, []string{"+dubbo x#get", "+dubbo x#get", "-dubbo x#get"}; !slices.Equal(got, want) {
			t.Errorf("calls of the registry = %q, want %q", got, want)
		}
		must(t, env.discovery.Publish(env.Context(), request("x")))
		must(t, env.discovery.Unpublish(env.Context(), request("x")))
		synctest.Wait()
		if got := env.fake.registered(); len(got) != 0 {
			t.Errorf("%q is registered, want no URL", got)
		}
		if n := len(env.discovery.Status().Registries); n != 0 {
			t.Errorf("%d sessions are open, want none", n)
		}
	})
}

func TestPublishIsRetried(t *testing.T) {
	rejection := errors.New("no permission")
	tests := []struct {
		name        string
		unavailable bool
		rejection   error
		want        string
		within      time.Duration
	}{
		{"registry unavailable", true, nil, "no response yet", 3 * time.Second},
		{"registry rejects requests", false, rejection, "no permission", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inSynctest(t, defaultConfig(), func(env *testEnv) {
				env.fake.set(tt.unavailable, tt.rejection)
				start := time.Now()
				err := env.discovery.Publish(env.Context(), request("x"))
				if !errors.Is(err, dubbo.ErrPending) || !strings.Contains(err.Error(), tt.want) || time.Since(start) != tt.within {
					t.Errorf("got %v after %v, want ErrPending with %q after %v", err, time.Since(start), tt.want, tt.within)
				}
				env.fake.set(false, nil)
				advanceClock(time.Minute)
				if got := env.fake.registered(); len(got) != 1 {
					t.Errorf("registered after a minute: %q, want one URL", got)
				}
				if p := env.discovery.Status().Published[0]; !p.Registered || p.Error != "" {
					t.Errorf("status %+v, want it registered", p)
				}
			})
		})
	}
}

func TestUnpublishBeforeRegistered(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.set(true, nil)
		if err := env.discovery.Publish(env.Context(), request("x")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("got %v, want ErrPending", err)
		}
		must(t, env.discovery.Unpublish(env.Context(), request("x")))
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		if got := env.fake.registered(); len(got) != 0 {
			t.Errorf("%q is registered, want no URL", got)
		}
	})
}

func TestUnregisterAll(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("y", "10.0.0.1")
		must(t, env.discovery.Publish(env.Context(), request("x")))
		must(t, env.discovery.Subscribe(env.Context(), request("y")))
		start := time.Now()
		env.discovery.UnregisterAll(env.Context())
		if elapsed := time.Since(start); elapsed != 3*time.Second {
			t.Errorf("UnregisterAll took %v, want UnregisterWait (3s)", elapsed)
		}
		if got := env.fake.registered(); len(got) != 0 {
			t.Errorf("%q is still registered, want no URL", got)
		}
		env.wantActive("y=10.0.0.1")
		if err := env.discovery.Publish(env.Context(), request("z")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish after UnregisterAll: %v, want ErrPending", err)
		}
	})
}

func TestUnregisterAllWhileRegistryUnavailable(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		for i := range 10 {
			must(t, env.discovery.Publish(env.Context(), request(fmt.Sprint("s", i))))
		}
		env.fake.set(true, nil)
		start := time.Now()
		env.discovery.UnregisterAll(env.Context())
		// UnregisterAll does not wait for consumers if no registry has confirmed.
		if elapsed := time.Since(start); elapsed != 3*time.Second {
			t.Errorf("UnregisterAll took %v, want registryTimeout (3s)", elapsed)
		}
	})
}

func TestUnregisterAllOfUnregisteredIsImmediate(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.discovery.UnregisterAll(env.Context())
		if err := env.discovery.Publish(env.Context(), request("x")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish after UnregisterAll: %v, want ErrPending", err)
		}
		start := time.Now()
		env.discovery.UnregisterAll(env.Context())
		if elapsed := time.Since(start); elapsed != 0 {
			t.Errorf("UnregisterAll took %v, want 0", elapsed)
		}
	})
}
