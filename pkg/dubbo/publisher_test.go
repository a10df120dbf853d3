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

func TestPublishing(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		must(t, r.discovery.Publish(r.Context(), request("g/x:1")))
		must(t, r.discovery.Publish(r.Context(), request("g/x:1"))) // the second has no effect
		q := request("g/x:1")
		q.Service.Methods = []string{"get", "set"}
		q.Service.Name = "shop"
		q.Service.Parameters = map[string]string{"weight": "7", "generic": "true"}
		must(t, r.discovery.Publish(r.Context(), q))
		synctest.Wait() // until the replaced URL is unregistered
		must(t, r.discovery.Publish(r.Context(), request("y")))
		synctest.Wait()
		if got, want := r.fake.calls, []string{"+dubbo g/x:1#get", "+dubbo g/x:1#get,set", "-dubbo g/x:1#get", "+dubbo y#get"}; !slices.Equal(got, want) {
			t.Errorf("calls of the registry = %q, want %q", got, want)
		}
		p := r.discovery.Status().Published[0]
		for _, part := range []string{"dubbo://10.1.1.1:20080/x?", "group=g", "version=1", "methods=get,set", "application=shop", "side=provider", "weight=7", "generic=true"} {
			if !strings.Contains(p.URL, part) {
				t.Errorf("the URL %s lacks %s", p.URL, part)
			}
		}
		if strings.Contains(p.URL, "pid=") {
			t.Errorf("the URL %s is another one after a restart", p.URL)
		}
		if !p.Registered || p.Error != "" {
			t.Errorf("the service is described as %+v, want it registered", p)
		}
		must(t, r.discovery.Unpublish(r.Context(), request("g/x:1")))
		if got := strings.Join(r.fake.registered(), " "); got != "y#get" && got != "dubbo y#get" {
			t.Errorf("registered: %q, want y alone", got)
		}
		if err := r.discovery.Unpublish(r.Context(), request("g/x:1")); !errors.Is(err, dubbo.ErrNotFound) {
			t.Errorf("again: %v, want ErrUnknown", err)
		}
	})
}

// TestPublishingWithOtherCredentials verifies that a service is registered with the new credentials
// before it is unregistered with the old ones, and stays registered if the new ones are wrong.
func TestPublishingWithOtherCredentials(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		q := request("x")
		must(t, r.discovery.Publish(r.Context(), q))
		r.fake.set(false, errors.New("wrong password"))
		q.Registry.Username, q.Registry.Password = "u", "p"
		if err := r.discovery.Publish(r.Context(), q); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("got %v, want ErrKept", err)
		}
		advanceClock(time.Hour)
		if got := r.fake.registered(); len(got) != 1 {
			t.Errorf("%q is registered, want what was before", got)
		}
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		if got, want := r.fake.calls, []string{"+dubbo x#get", "+dubbo x#get", "-dubbo x#get"}; !slices.Equal(got, want) {
			t.Errorf("calls of the registry = %q, want %q", got, want)
		}
		must(t, r.discovery.Publish(r.Context(), request("x")))
		must(t, r.discovery.Unpublish(r.Context(), request("x")))
		synctest.Wait()
		if got := r.fake.registered(); len(got) != 0 {
			t.Errorf("%q is registered", got)
		}
		if n := len(r.discovery.Status().Registries); n != 0 {
			t.Errorf("%d sessions are open", n)
		}
	})
}

func TestPublishingIsKept(t *testing.T) {
	refusal := errors.New("no permission")
	tests := []struct {
		name    string
		away    bool
		refusal error
		want    string
		within  time.Duration
	}{
		{"while the registry is away", true, nil, "no response yet", 3 * time.Second},
		{"while it refuses", false, refusal, "no permission", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inSynctest(t, defaultConfig(), func(r *testEnv) {
				r.fake.set(tt.away, tt.refusal)
				began := time.Now()
				err := r.discovery.Publish(r.Context(), request("x"))
				if !errors.Is(err, dubbo.ErrPending) || !strings.Contains(err.Error(), tt.want) || time.Since(began) != tt.within {
					t.Errorf("got %v after %v, want ErrKept with %q after %v", err, time.Since(began), tt.want, tt.within)
				}
				r.fake.set(false, nil)
				advanceClock(time.Minute)
				if got := r.fake.registered(); len(got) != 1 {
					t.Errorf("a minute after the registry is there again %q is registered", got)
				}
				if p := r.discovery.Status().Published[0]; !p.Registered || p.Error != "" {
					t.Errorf("described as %+v", p)
				}
			})
		})
	}
}

func TestUnpublishBeforeRegistered(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.set(true, nil)
		if err := r.discovery.Publish(r.Context(), request("x")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("got %v, want ErrKept", err)
		}
		must(t, r.discovery.Unpublish(r.Context(), request("x")))
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		if got := r.fake.registered(); len(got) != 0 {
			t.Errorf("%q is registered", got)
		}
	})
}

func TestUnregisterAll(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("y", "10.0.0.1")
		must(t, r.discovery.Publish(r.Context(), request("x")))
		must(t, r.discovery.Subscribe(r.Context(), request("y")))
		began := time.Now()
		r.discovery.UnregisterAll(r.Context())
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v, want the time that callers need to notice", took)
		}
		if got := r.fake.registered(); len(got) != 0 {
			t.Errorf("%q is still registered", got)
		}
		r.desired("y=10.0.0.1")
		if err := r.discovery.Publish(r.Context(), request("z")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("publishing after that: %v, want ErrKept", err)
		}
	})
}

func TestUnregisterAllWhileRegistryUnavailable(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for i := range 10 {
			must(t, r.discovery.Publish(r.Context(), request(fmt.Sprint("s", i))))
		}
		r.fake.set(true, nil)
		began := time.Now()
		r.discovery.UnregisterAll(r.Context())
		// UnregisterAll does not wait for consumers if no registry has confirmed.
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v, want three seconds of waiting for a response", took)
		}
	})
}

func TestUnregisterAllOfUnregisteredIsImmediate(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.discovery.UnregisterAll(r.Context())
		if err := r.discovery.Publish(r.Context(), request("x")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("publishing after that: %v, want ErrKept", err)
		}
		began := time.Now()
		r.discovery.UnregisterAll(r.Context())
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
