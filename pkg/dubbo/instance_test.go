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
	q := request(service)
	q.Service.Parameters = map[string]string{}
	if mode != "" {
		q.Service.Parameters["register-mode"] = mode
	}
	for _, p := range parameters {
		key, value, _ := strings.Cut(p, "=")
		q.Service.Parameters[key] = value
	}
	return q
}

// wantInstances verifies the registered instances.
func (r *testEnv) wantInstances(want ...string) {
	r.Helper()
	synctest.Wait()
	if got := r.fake.instances(); !slices.Equal(got, want) {
		r.Errorf("the instances are %q, want %q", got, want)
	}
}

// wantInstanceCalls verifies the registered provider URLs.
func (r *testEnv) wantInstanceCalls(want ...string) {
	r.Helper()
	synctest.Wait()
	if got := r.fake.registered(); !slices.Equal(got, want) {
		r.Errorf("the URLs are %q, want %q", got, want)
	}
}

// TestUnmappableInterfaceKeepsInstance verifies that an interface that the
// registry cannot map is reported and logged once, and that the application stays registered.
func TestUnmappableInterfaceKeepsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := newRig(t, defaultConfig())
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		r.fake.instanceCalls.unmappable = "odd"
		r.discovery = r.newDiscovery(defaultConfig())
		r.run()
		defer r.end()
		for _, name := range []string{"x", "odd", "y"} {
			must(t, r.discovery.Publish(t.Context(), inMode("instance", name)))
		}
		r.wantInstances("weft 10.1.1.1:20080 odd,x,y")
		for _, p := range r.discovery.Status().Published {
			if told := strings.Contains(p.Error, "it is odd"); !p.Registered || told != (p.Key == "odd") {
				t.Errorf("%s is registered: %t, its error is %q", p.Key, p.Registered, p.Error)
			}
		}
		advanceClock(time.Hour)
		if n := strings.Count(log.String(), "cannot find weft by odd"); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, &log)
		}
		must(t, r.discovery.Unpublish(t.Context(), inMode("instance", "odd")))
		r.wantInstances("weft 10.1.1.1:20080 x,y")
		for _, p := range r.discovery.Status().Published {
			if p.Error != "" {
				t.Errorf("the error of %s is %q", p.Key, p.Error)
			}
		}
	})
}

func TestOneInstancePerApplication(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x")))
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "g/y:1")))
		r.wantInstances("weft 10.1.1.1:20080 g/y:1,x")
		r.wantInstanceCalls()
		other := inMode("instance", "z")
		other.Service.Name = "other"
		must(r.T, r.discovery.Publish(r.Context(), other))
		r.wantInstances("other 10.1.1.1:20080 z", "weft 10.1.1.1:20080 g/y:1,x")

		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x"))) // nothing changes
		must(r.T, r.discovery.Unpublish(r.Context(), request("x")))
		r.wantInstances("other 10.1.1.1:20080 z", "weft 10.1.1.1:20080 g/y:1")
		must(r.T, r.discovery.Unpublish(r.Context(), request("g/y:1")))
		r.wantInstances("other 10.1.1.1:20080 z")
		want := []string{"+weft x", "+weft g/y:1,x", "+other z", "+weft g/y:1", "-weft"}
		if got := r.fake.instanceCalls.calls; !slices.Equal(got, want) {
			t.Errorf("calls of the registry = %q, want %q", got, want)
		}
		must(r.T, r.discovery.Unpublish(r.Context(), request("z")))
		synctest.Wait()
		r.fake.mu.Lock()
		defer r.fake.mu.Unlock()
		if r.fake.closed != 1 {
			t.Errorf("an unused session was closed %d times", r.fake.closed)
		}
	})
}

func TestConfiguredRegisterMode(t *testing.T) {
	for _, tt := range []struct {
		configured config.RegisterMode
		said       string
		url, other bool
	}{
		{"", "", true, false},
		{config.RegisterInstance, "", false, true},
		{config.RegisterAll, "", true, true},
		{config.RegisterAll, "interface", true, false},
		{"", "all", true, true},
	} {
		t.Run(fmt.Sprintf("%q, and a call says %q", tt.configured, tt.said), func(t *testing.T) {
			c := defaultConfig()
			c.Registries = []config.RegistrySettings{{Type: "fake", Address: "h:1", RegisterMode: tt.configured}}
			inSynctest(t, c, func(r *testEnv) {
				must(r.T, r.discovery.Publish(r.Context(), inMode(tt.said, "x")))
				if got := len(r.fake.registered()) == 1; got != tt.url {
					t.Errorf("a URL is there: %t, want %t", got, tt.url)
				}
				if got := len(r.fake.instances()) == 1; got != tt.other {
					t.Errorf("an instance is there: %t, want %t", got, tt.other)
				}
				for text := range r.fake.urls {
					if strings.Contains(text, "register-mode") {
						t.Errorf("it is part of %s", text)
					}
				}
				if got := r.discovery.Status().Published[0]; !got.Registered || got.Error != "" || got.Mode != "" != tt.other {
					t.Errorf("status = %+v", got)
				}
			})
		})
	}
}

func TestInvalidRegisterModeIsRejected(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		var field *dubbo.FieldError
		if err := r.discovery.Publish(r.Context(), inMode("application", "x")); !errors.As(err, &field) || field.Field != "service.parameters.register-mode" {
			t.Errorf("Publish: %v", err)
		}
		if err := r.discovery.Subscribe(r.Context(), inMode("instance", "x")); !errors.As(err, &field) {
			t.Errorf("Subscribe: %v", err)
		}
	})
}

func TestChangedRegisterMode(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x")))
		must(r.T, r.discovery.Publish(r.Context(), inMode("interface", "x")))
		r.wantInstances()
		r.wantInstanceCalls("dubbo x#get")
		must(r.T, r.discovery.Publish(r.Context(), inMode("all", "x")))
		r.wantInstances("weft 10.1.1.1:20080 x")
		r.wantInstanceCalls("dubbo x#get")
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x")))
		r.wantInstances("weft 10.1.1.1:20080 x")
		r.wantInstanceCalls()
	})
}

func TestMetadataContainsNoHost(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x", "weight=50")))
		first := r.fake.instanceCalls.there["weft 10.1.1.1:20080"]
		const want = `"params":{"application":"weft","dubbo":"2.0.2","dynamic":"true","generic":"false","interface":"x","methods":"get","side":"provider","weight":"50"}`
		if text := string(first.MetadataInfo); !strings.Contains(text, want) {
			t.Errorf("the metadata are %s, want %s", text, want)
		}
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x", "weight=60")))
		second := r.fake.instanceCalls.there["weft 10.1.1.1:20080"]
		if first.Revision == second.Revision || first.Instance.Metadata["timestamp"] != second.Instance.Metadata["timestamp"] {
			t.Errorf("after another weight the instance is %v, was %v", second.Instance.Metadata, first.Instance.Metadata)
		}
	})
}

func TestInstanceIsRegisteredWhenRegistryReturns(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.set(true, nil)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if err := r.discovery.Publish(r.Context(), inMode("instance", fmt.Sprintf("s%d", i))); !errors.Is(err, dubbo.ErrPending) {
					t.Errorf("Publish: %v, want %v", err, dubbo.ErrPending)
				}
			})
		}
		all.Wait()
		if err := r.discovery.Unpublish(r.Context(), request("s0")); err == nil {
			t.Error("Unpublish returns no error although the registry is unavailable")
		}
		advanceClock(time.Hour)
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		r.wantInstances("weft 10.1.1.1:20080 s1,s2,s3,s4,s5,s6,s7,s8,s9")
		r.fake.set(false, errors.New("not you"))
		must(r.T, waited(r, func() error { return r.discovery.Unpublish(r.Context(), request("s1")) }, "not you"))
		if got := r.discovery.Status().Published[0]; got.Registered || !strings.Contains(got.Error, "not you") {
			t.Errorf("status = %+v", got)
		}
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		r.wantInstances("weft 10.1.1.1:20080 s2,s3,s4,s5,s6,s7,s8,s9")
	})
}

// waited returns nil if a call fails with a text.
func waited(r *testEnv, call func() error, text string) error {
	r.Helper()
	if err := call(); err == nil || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("got %w, want %s", err, text)
	}
	return nil
}

func TestInstanceRepublishedImmediately(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), request("stays"))) // keeps the session open
		for range 20 {
			must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x")))
			r.fake.set(true, nil)
			var all sync.WaitGroup
			// Neither call can complete now, whichever is first.
			for _, ask := range []func() error{
				func() error { return r.discovery.Publish(r.Context(), inMode("instance", "x", "weight=1")) },
				func() error { return r.discovery.Unpublish(r.Context(), request("x")) },
			} {
				all.Go(func() { _ = ask() })
			}
			all.Wait()
			r.fake.set(false, nil)
			must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x")))
			must(r.T, r.discovery.Unpublish(r.Context(), request("x")))
			must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "y")))
			r.wantInstances("weft 10.1.1.1:20080 y")
			must(r.T, r.discovery.Unpublish(r.Context(), request("y")))
			r.wantInstances()
		}
	})
}

// TestConcurrentPublishes verifies that each Publish returns when its own
// change is registered, whatever other calls have changed since.
func TestConcurrentPublishes(t *testing.T) {
	const many, each = 64, 5
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.instanceCalls.latency = 100 * time.Millisecond
		began := time.Now()
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				for j := range each {
					if err := r.discovery.Publish(r.Context(), inMode("instance", fmt.Sprintf("s%d.%d", i, j))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		// Each call waits for the registration in flight, and for the one with its change.
		if took, most := time.Since(began), 2*each*r.fake.instanceCalls.latency; took > most {
			t.Errorf("it took %v and %d announcements, want %v at most", took, len(r.fake.instanceCalls.calls), most)
		}
	})
}

func TestChangedCredentialsKeepInstance(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		q := inMode("instance", "x")
		must(r.T, r.discovery.Publish(r.Context(), q))
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "y")))
		q.Registry.Username, q.Registry.Password = "u", "p"
		must(r.T, r.discovery.Publish(r.Context(), q))
		if got := r.fake.instanceCalls.calls[2]; got != "+weft x,y" {
			t.Errorf("the other session begins with %q", got)
		}
		must(r.T, r.discovery.Unpublish(r.Context(), request("y")))
		must(r.T, r.discovery.Unpublish(r.Context(), request("x")))
		r.wantInstances()
	})
}

func TestInstancesAreUnregisteredBeforeDrain(t *testing.T) {
	c := defaultConfig()
	c.UnregisterWait = 5 * time.Second
	inSynctest(t, c, func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x")))
		must(r.T, r.discovery.Publish(r.Context(), inMode("all", "y")))
		began := time.Now()
		go func() {
			<-time.After(time.Second) // fake time
			if got := r.fake.instances(); len(got) > 0 {
				t.Errorf("during withdraw_wait there are %v", got)
			}
		}()
		r.discovery.UnregisterAll(r.Context())
		if waited := time.Since(began); waited != c.UnregisterWait {
			t.Errorf("it took %v", waited)
		}
		r.wantInstances()
		r.wantInstanceCalls()
		if err := r.discovery.Publish(r.Context(), inMode("instance", "z")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("after it, Publish: %v", err)
		}
		r.wantInstances()
	})
}

func TestInstanceIsSameAfterRestart(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), inMode("instance", "x")))
		advanceClock(time.Minute)
		must(r.T, r.discovery.Publish(r.Context(), inMode("all", "y")))
		before := r.fake.instanceCalls.there["weft 10.1.1.1:20080"]
		advanceClock(time.Minute)
		r.restart(c)
		r.run()
		defer r.end()
		advanceClock(time.Minute)
		r.wantInstances("weft 10.1.1.1:20080 x,y")
		r.wantInstanceCalls("dubbo y#get")
		after := r.fake.instanceCalls.there["weft 10.1.1.1:20080"]
		if before == after || after.Revision != before.Revision || after.Instance.Metadata["timestamp"] != before.Instance.Metadata["timestamp"] {
			t.Errorf("the instance is %v, was %v", after.Instance.Metadata, before.Instance.Metadata)
		}
	})
}
