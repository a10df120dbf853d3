package dubbo_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

// inMode returns a request to publish a service in a register mode, with additional parameters as
// "key=value".
func inMode(mode, service string, parameters ...string) dubbo.Request {
	req := request(service)
	req.Service.Parameters = map[string]string{}
	if mode != "" {
		req.Service.Parameters["register-mode"] = mode
	}
	for _, p := range parameters {
		key, value, _ := strings.Cut(p, "=")
		req.Service.Parameters[key] = value
	}
	return req
}

// wantInstances verifies the registered instances.
func (env *testEnv) wantInstances(want ...string) {
	env.Helper()
	synctest.Wait()
	if got := env.fake.instances(); !slices.Equal(got, want) {
		env.Errorf("instances %q, want %q", got, want)
	}
}

// wantURLs verifies the registered provider URLs.
func (env *testEnv) wantURLs(want ...string) {
	env.Helper()
	synctest.Wait()
	if got := env.fake.registered(); !slices.Equal(got, want) {
		env.Errorf("URLs %q, want %q", got, want)
	}
}

// TestUnmappableInterfaceKeepsInstance verifies that an interface that the registry cannot map is
// reported and logged once, and that the application stays registered.
func TestUnmappableInterfaceKeepsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		env := newTestEnv(t, defaultConfig())
		env.log = slog.New(slog.NewTextHandler(&log, nil))
		env.fake.instanceCalls.unmappable = "odd"
		env.discovery = env.newDiscovery(defaultConfig())
		env.run()
		defer env.end()
		for _, name := range []string{"x", "odd", "y"} {
			must(t, env.discovery.Publish(t.Context(), inMode("instance", name)))
		}
		env.wantInstances("weft 10.1.1.1:20080 odd,x,y")
		for _, p := range env.discovery.Status().Published {
			if unmapped := strings.Contains(p.Error, "invalid name"); !p.Registered || unmapped != (p.Key == "odd") {
				t.Errorf("%s is registered: %t, its error is %q; want true, and an error \"invalid name\" only for odd", p.Key, p.Registered, p.Error)
			}
		}
		advanceClock(time.Hour)
		if n := strings.Count(log.String(), "cannot find weft by odd"); n != 1 {
			t.Errorf("the log has %d entries, want 1:\n%s", n, &log)
		}
		must(t, env.discovery.Unpublish(t.Context(), inMode("instance", "odd")))
		env.wantInstances("weft 10.1.1.1:20080 x,y")
		for _, p := range env.discovery.Status().Published {
			if p.Error != "" {
				t.Errorf("the error of %s is %q, want \"\"", p.Key, p.Error)
			}
		}
	})
}

func TestOneInstancePerApplication(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x")))
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "g/y:1")))
		env.wantInstances("weft 10.1.1.1:20080 g/y:1,x")
		env.wantURLs()
		otherApplication := inMode("instance", "z")
		otherApplication.Service.Name = "other"
		must(env.T, env.discovery.Publish(env.Context(), otherApplication))
		env.wantInstances("other 10.1.1.1:20080 z", "weft 10.1.1.1:20080 g/y:1,x")

		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x"))) // nothing changes
		must(env.T, env.discovery.Unpublish(env.Context(), request("x")))
		env.wantInstances("other 10.1.1.1:20080 z", "weft 10.1.1.1:20080 g/y:1")
		must(env.T, env.discovery.Unpublish(env.Context(), request("g/y:1")))
		env.wantInstances("other 10.1.1.1:20080 z")
		want := []string{"+weft x", "+weft g/y:1,x", "+other z", "+weft g/y:1", "-weft"}
		if got := env.fake.instanceCalls.calls; !slices.Equal(got, want) {
			t.Errorf("calls of the registry = %q, want %q", got, want)
		}
		must(env.T, env.discovery.Unpublish(env.Context(), request("z")))
		synctest.Wait()
		env.fake.mu.Lock()
		defer env.fake.mu.Unlock()
		if env.fake.closed != 1 {
			t.Errorf("closed sessions: %d, want 1", env.fake.closed)
		}
	})
}

func TestConfiguredRegisterMode(t *testing.T) {
	for _, tt := range []struct {
		configured config.RegisterMode
		requested  string
		url, other bool
	}{
		{"", "", true, false},
		{config.RegisterInstance, "", false, true},
		{config.RegisterAll, "", true, true},
		{config.RegisterAll, "interface", true, false},
		{"", "all", true, true},
	} {
		t.Run(fmt.Sprintf("configured %q, requested %q", tt.configured, tt.requested), func(t *testing.T) {
			c := defaultConfig()
			c.Registries = []config.RegistrySettings{{Type: "fake", Address: "h:1", RegisterMode: tt.configured}}
			inSynctest(t, c, func(env *testEnv) {
				must(env.T, env.discovery.Publish(env.Context(), inMode(tt.requested, "x")))
				if got := len(env.fake.registered()) == 1; got != tt.url {
					t.Errorf("URL registered: %t, want %t", got, tt.url)
				}
				if got := len(env.fake.instances()) == 1; got != tt.other {
					t.Errorf("instance registered: %t, want %t", got, tt.other)
				}
				for text := range env.fake.urls {
					if strings.Contains(text, "register-mode") {
						t.Errorf("URL %s contains register-mode", text)
					}
				}
				if got := env.discovery.Status().Published[0]; !got.Registered || got.Error != "" || got.Mode != "" != tt.other {
					t.Errorf("status = %+v, want it registered without an error; with a mode: %v", got, tt.other)
				}
			})
		})
	}
}

func TestInvalidRegisterModeIsRejected(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		var field *dubbo.FieldError
		if err := env.discovery.Publish(env.Context(), inMode("application", "x")); !errors.As(err, &field) || field.Field != "service.parameters.register-mode" {
			t.Errorf("Publish: %v, want a FieldError for register-mode", err)
		}
		if err := env.discovery.Subscribe(env.Context(), inMode("instance", "x")); !errors.As(err, &field) {
			t.Errorf("Subscribe: %v, want a FieldError", err)
		}
	})
}

func TestChangedRegisterMode(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x")))
		must(env.T, env.discovery.Publish(env.Context(), inMode("interface", "x")))
		env.wantInstances()
		env.wantURLs("dubbo x#get")
		must(env.T, env.discovery.Publish(env.Context(), inMode("all", "x")))
		env.wantInstances("weft 10.1.1.1:20080 x")
		env.wantURLs("dubbo x#get")
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x")))
		env.wantInstances("weft 10.1.1.1:20080 x")
		env.wantURLs()
	})
}

func TestMetadataContainsNoHost(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x", "weight=50")))
		first := env.fake.instanceCalls.registered["weft 10.1.1.1:20080"]
		const want = `"params":{"application":"weft","dubbo":"2.0.2","dynamic":"true","generic":"false","interface":"x","methods":"get","side":"provider","weight":"50"}`
		if text := string(first.MetadataInfo); !strings.Contains(text, want) {
			t.Errorf("metadata %s, want %s", text, want)
		}
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x", "weight=60")))
		second := env.fake.instanceCalls.registered["weft 10.1.1.1:20080"]
		if first.Revision == second.Revision || first.Instance.Metadata["timestamp"] != second.Instance.Metadata["timestamp"] {
			t.Errorf("after a change of the weight: instance %v, before %v; want another revision and the same timestamp", second.Instance.Metadata, first.Instance.Metadata)
		}
	})
}

func TestInstanceIsRegisteredWhenRegistryReturns(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.set(true, nil)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if err := env.discovery.Publish(env.Context(), inMode("instance", fmt.Sprintf("s%d", i))); !errors.Is(err, dubbo.ErrPending) {
					t.Errorf("Publish: %v, want %v", err, dubbo.ErrPending)
				}
			})
		}
		wg.Wait()
		if err := env.discovery.Unpublish(env.Context(), request("s0")); err == nil {
			t.Error("Unpublish returns no error although the registry is unavailable")
		}
		advanceClock(time.Hour)
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		env.wantInstances("weft 10.1.1.1:20080 s1,s2,s3,s4,s5,s6,s7,s8,s9")
		env.fake.set(false, errors.New("no permission"))
		must(env.T, wantError(env, func() error { return env.discovery.Unpublish(env.Context(), request("s1")) }, "no permission"))
		if got := env.discovery.Status().Published[0]; got.Registered || !strings.Contains(got.Error, "no permission") {
			t.Errorf("status = %+v, want it not registered, with the error \"no permission\"", got)
		}
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		env.wantInstances("weft 10.1.1.1:20080 s2,s3,s4,s5,s6,s7,s8,s9")
	})
}

// wantError returns nil if a call fails with a text.
func wantError(env *testEnv, call func() error, text string) error {
	env.Helper()
	if err := call(); err == nil || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("got %w, want %s", err, text)
	}
	return nil
}

func TestInstanceRepublishedImmediately(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), request("stays"))) // keeps the session open
		for range 20 {
			must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x")))
			env.fake.set(true, nil)
			var wg sync.WaitGroup
			// Neither call can complete now, whichever is first.
			for _, call := range []func() error{
				func() error { return env.discovery.Publish(env.Context(), inMode("instance", "x", "weight=1")) },
				func() error { return env.discovery.Unpublish(env.Context(), request("x")) },
			} {
				wg.Go(func() { _ = call() })
			}
			wg.Wait()
			env.fake.set(false, nil)
			must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x")))
			must(env.T, env.discovery.Unpublish(env.Context(), request("x")))
			must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "y")))
			env.wantInstances("weft 10.1.1.1:20080 y")
			must(env.T, env.discovery.Unpublish(env.Context(), request("y")))
			env.wantInstances()
		}
	})
}

// TestConcurrentPublishes verifies that each Publish returns when its own change is registered,
// whatever other calls have changed since.
func TestConcurrentPublishes(t *testing.T) {
	const callers, callsPerCaller = 64, 5
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.instanceCalls.latency = 100 * time.Millisecond
		start := time.Now()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for j := range callsPerCaller {
					if err := env.discovery.Publish(env.Context(), inMode("instance", fmt.Sprintf("s%d.%d", i, j))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// Each call waits for the registration in flight, and for the one with its change.
		if elapsed, maxElapsed := time.Since(start), 2*callsPerCaller*env.fake.instanceCalls.latency; elapsed > maxElapsed {
			t.Errorf("%v and %d calls of the registry, want at most %v", elapsed, len(env.fake.instanceCalls.calls), maxElapsed)
		}
	})
}

func TestChangedCredentialsKeepInstance(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		req := inMode("instance", "x")
		must(env.T, env.discovery.Publish(env.Context(), req))
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "y")))
		req.Registry.Username, req.Registry.Password = "u", "p"
		must(env.T, env.discovery.Publish(env.Context(), req))
		if got := env.fake.instanceCalls.calls[2]; got != "+weft x,y" {
			t.Errorf("first call of the new session: %q, want \"+weft x,y\"", got)
		}
		must(env.T, env.discovery.Unpublish(env.Context(), request("y")))
		must(env.T, env.discovery.Unpublish(env.Context(), request("x")))
		env.wantInstances()
	})
}

func TestInstancesAreUnregisteredBeforeDrain(t *testing.T) {
	c := defaultConfig()
	c.UnregisterWait = 5 * time.Second
	inSynctest(t, c, func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x")))
		must(env.T, env.discovery.Publish(env.Context(), inMode("all", "y")))
		start := time.Now()
		go func() {
			<-time.After(time.Second) // fake time
			if got := env.fake.instances(); len(got) > 0 {
				t.Errorf("instances during withdraw_wait: %v, want none", got)
			}
		}()
		env.discovery.UnregisterAll(env.Context())
		if elapsed := time.Since(start); elapsed != c.UnregisterWait {
			t.Errorf("UnregisterAll took %v, want %v", elapsed, c.UnregisterWait)
		}
		env.wantInstances()
		env.wantURLs()
		if err := env.discovery.Publish(env.Context(), inMode("instance", "z")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("Publish after UnregisterAll: %v, want %v", err, dubbo.ErrPending)
		}
		env.wantInstances()
	})
}

func TestInstanceIsSameAfterRestart(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), inMode("instance", "x")))
		advanceClock(time.Minute)
		must(env.T, env.discovery.Publish(env.Context(), inMode("all", "y")))
		previous := env.fake.instanceCalls.registered["weft 10.1.1.1:20080"]
		advanceClock(time.Minute)
		env.restart(c)
		env.run()
		defer env.end()
		advanceClock(time.Minute)
		env.wantInstances("weft 10.1.1.1:20080 x,y")
		env.wantURLs("dubbo y#get")
		current := env.fake.instanceCalls.registered["weft 10.1.1.1:20080"]
		if previous == current || current.Revision != previous.Revision || current.Instance.Metadata["timestamp"] != previous.Instance.Metadata["timestamp"] {
			t.Errorf("instance %v, before the restart %v; want a new registration with the same revision and timestamp", current.Instance.Metadata, previous.Instance.Metadata)
		}
	})
}
