package dubbo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

func TestSubscribeAppliesSnapshots(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1")
		began := time.Now()
		must(t, r.hub.Subscribe(r.Context(), request("x")))
		if took := time.Since(began); took != 0 {
			t.Errorf("the call took %v, of which the registry nothing", took)
		}
		r.desired("x=10.0.0.1")
		r.fake.report("x", "10.0.0.1", "10.0.0.2")
		synctest.Wait()
		r.desired("x=10.0.0.1,10.0.0.2")
		r.fake.report("x", "10.0.0.2")
		synctest.Wait()
		r.desired("x=10.0.0.2")
		must(t, r.hub.Unsubscribe(r.Context(), request("x")))
		r.desired("")
		synctest.Wait()
		if n := len(r.fake.watchers); n != 0 || r.fake.closed != 1 {
			t.Errorf("%d are watched, %d sessions are closed; want none and one", n, r.fake.closed)
		}
	})
}

func TestServicesWithDifferentKeys(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for _, s := range []string{"x", "g/x", "x:1", "g/x:1"} {
			r.fake.report("x", "10.0.0.1")
			must(t, r.hub.Subscribe(r.Context(), request(s)))
		}
		r.desired("g/x:1=10.0.0.1; g/x=10.0.0.1; x:1=10.0.0.1; x=10.0.0.1")
		must(t, r.hub.Unsubscribe(r.Context(), request("g/x")))
		r.desired("g/x:1=10.0.0.1; x:1=10.0.0.1; x=10.0.0.1")
	})
}

func TestSubscribeWhileRegistryUnavailable(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.set(true, nil)
		r.fake.report("x", "10.0.0.1")
		began := time.Now()
		must(t, r.hub.Subscribe(r.Context(), request("x")))
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the call took %v, want three seconds of waiting for a response", took)
		}
		r.desired("x=")
		if totals := r.hub.Totals(); totals.WithoutSnapshot != 1 || totals.Connected != 0 {
			t.Errorf("the totals are %+v, want one service without a response, and no connection", totals)
		}
		r.fake.set(false, nil)
		synctest.Wait()
		r.desired("x=10.0.0.1")
	})
}

func TestPublishing(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		must(t, r.hub.Publish(r.Context(), request("g/x:1")))
		must(t, r.hub.Publish(r.Context(), request("g/x:1"))) // the second has no effect
		q := request("g/x:1")
		q.Service.Methods = []string{"get", "set"}
		q.Service.Name = "shop"
		q.Service.Parameters = map[string]string{"weight": "7", "generic": "true"}
		must(t, r.hub.Publish(r.Context(), q))
		synctest.Wait() // until the replaced URL is unregistered
		must(t, r.hub.Publish(r.Context(), request("y")))
		synctest.Wait()
		if got, want := r.fake.calls, []string{"+dubbo g/x:1#get", "+dubbo g/x:1#get,set", "-dubbo g/x:1#get", "+dubbo y#get"}; !slices.Equal(got, want) {
			t.Errorf("calls of the registry = %q, want %q", got, want)
		}
		p := r.hub.Status().Published[0]
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
		must(t, r.hub.Unpublish(r.Context(), request("g/x:1")))
		if got := strings.Join(r.fake.registered(), " "); got != "y#get" && got != "dubbo y#get" {
			t.Errorf("registered: %q, want y alone", got)
		}
		if err := r.hub.Unpublish(r.Context(), request("g/x:1")); !errors.Is(err, dubbo.ErrNotFound) {
			t.Errorf("again: %v, want ErrUnknown", err)
		}
	})
}

// TestPublishingWithOtherCredentials verifies that a service is registered with the new credentials
// before it is unregistered with the old ones, and stays registered if the new ones are wrong.
func TestPublishingWithOtherCredentials(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		q := request("x")
		must(t, r.hub.Publish(r.Context(), q))
		r.fake.set(false, errors.New("wrong password"))
		q.Registry.Username, q.Registry.Password = "u", "p"
		if err := r.hub.Publish(r.Context(), q); !errors.Is(err, dubbo.ErrPending) {
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
		must(t, r.hub.Publish(r.Context(), request("x")))
		must(t, r.hub.Unpublish(r.Context(), request("x")))
		synctest.Wait()
		if got := r.fake.registered(); len(got) != 0 {
			t.Errorf("%q is registered", got)
		}
		if n := len(r.hub.Status().Registries); n != 0 {
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
				err := r.hub.Publish(r.Context(), request("x"))
				if !errors.Is(err, dubbo.ErrPending) || !strings.Contains(err.Error(), tt.want) || time.Since(began) != tt.within {
					t.Errorf("got %v after %v, want ErrKept with %q after %v", err, time.Since(began), tt.want, tt.within)
				}
				r.fake.set(false, nil)
				advanceClock(time.Minute)
				if got := r.fake.registered(); len(got) != 1 {
					t.Errorf("a minute after the registry is there again %q is registered", got)
				}
				if p := r.hub.Status().Published[0]; !p.Registered || p.Error != "" {
					t.Errorf("described as %+v", p)
				}
			})
		})
	}
}

func TestUnpublishBeforeRegistered(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.set(true, nil)
		if err := r.hub.Publish(r.Context(), request("x")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("got %v, want ErrKept", err)
		}
		must(t, r.hub.Unpublish(r.Context(), request("x")))
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		if got := r.fake.registered(); len(got) != 0 {
			t.Errorf("%q is registered", got)
		}
	})
}

func TestOneSessionForAllServicesOfAnAddress(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for i := range 5 {
			r.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			must(t, r.hub.Publish(r.Context(), request(fmt.Sprint("s", i))))
			must(t, r.hub.Subscribe(r.Context(), request(fmt.Sprint("s", i))))
		}
		if r.fake.opened != 1 {
			t.Errorf("%d sessions, want 1", r.fake.opened)
		}
		q := request("s0")
		q.Registry.Username = "u"
		q.Registry.Password = "p"
		must(t, r.hub.Publish(r.Context(), q))
		if r.fake.opened != 2 {
			t.Errorf("%d sessions, want another one for another user", r.fake.opened)
		}
		if n := len(r.hub.Status().Published); n != 5 {
			t.Errorf("%d services are published, want 5: it is the same whoever says it", n)
		}
	})
}

func TestTheSameServiceAtTwoRegistries(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1")
		other := request("x")
		other.Registry.Address = "h:2"
		must(t, r.hub.Subscribe(r.Context(), request("x")))
		must(t, r.hub.Subscribe(r.Context(), other))
		r.desired("x=10.0.0.1")
		must(t, r.hub.Unsubscribe(r.Context(), request("x")))
		r.desired("x=10.0.0.1")
		must(t, r.hub.Unsubscribe(r.Context(), other))
		r.desired("")
	})
}

func TestManySubscriptionsNeedFewChanges(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		const n = 500
		r.refuse = func(dubbo.Change) error { // a change takes 20 ms
			<-time.After(20 * time.Millisecond)
			return nil
		}
		var all sync.WaitGroup
		for i := range n {
			r.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			all.Go(func() {
				if err := r.hub.Subscribe(r.Context(), request(fmt.Sprint("s", i))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(r.clusters) != n || r.applies > 4 {
			t.Errorf("%d clusters by %d changes, want %d by a few", len(r.clusters), r.applies, n)
		}
		r.applies = 0
		r.fake.report("s7", "10.0.0.2")
		advanceClock(time.Second)
		if r.applies != 1 || r.clusters["s7"].Hosts[0].Address != "10.0.0.2:20880" {
			t.Errorf("%d changes, and s7 is %+v", r.applies, r.clusters["s7"].Hosts)
		}
	})
}

func TestChangeContainsOnlyDifferences(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for _, s := range []string{"x", "y"} {
			r.fake.report(s, "10.0.0.1")
			must(t, r.hub.Subscribe(r.Context(), request(s)))
		}
		var got []dubbo.Change
		r.refuse = func(c dubbo.Change) error { got = append(got, c); return nil }
		r.fake.report("x", "10.0.0.1", "10.0.0.2")
		synctest.Wait()
		r.fake.report("x", "10.0.0.2", "10.0.0.1") // the same providers
		synctest.Wait()
		r.fake.report("y", "10.0.0.1?timeout=5")
		synctest.Wait()
		if len(got) != 2 {
			t.Fatalf("%d changes, want 2", len(got))
		}
		if c := got[0]; len(c.Clusters) != 1 || c.Clusters[0].Name != "x" || c.Routes != nil {
			t.Errorf("the first change is %+v, want the cluster x alone", c)
		}
		if c := got[1]; len(c.Clusters) != 0 || c.Routes == nil {
			t.Errorf("the second change is %+v, want routes alone", c)
		}
	})
}

func TestFailedApplyDoesNotBlockOthers(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		broken := errors.New("a cluster of the file has that name")
		r.refuse = func(c dubbo.Change) error {
			if slices.ContainsFunc(c.Clusters, func(c *config.Cluster) bool { return c.Name == "s3" }) {
				return broken
			}
			return nil
		}
		var all sync.WaitGroup
		for i := range 8 {
			r.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			all.Go(func() {
				err := r.hub.Subscribe(r.Context(), request(fmt.Sprint("s", i)))
				if (i == 3) != errors.Is(err, broken) {
					t.Errorf("s%d: %v", i, err)
				}
			})
		}
		all.Wait()
		r.desired("s0=10.0.0.1; s1=10.0.0.1; s2=10.0.0.1; s4=10.0.0.1; s5=10.0.0.1; s6=10.0.0.1; s7=10.0.0.1")
		if got := r.hub.Status().LastError; !strings.Contains(got, "s3: a cluster") {
			t.Errorf("the last error is %q", got)
		}
		r.mu.Lock()
		r.refuse = nil
		r.mu.Unlock()
		advanceClock(time.Minute)
		if len(r.clusters) != 8 || r.hub.Status().LastError != "" {
			t.Errorf("a minute after it is possible: %s", r.inForce())
		}
	})
}

func TestUnregisterAll(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("y", "10.0.0.1")
		must(t, r.hub.Publish(r.Context(), request("x")))
		must(t, r.hub.Subscribe(r.Context(), request("y")))
		began := time.Now()
		r.hub.UnregisterAll(r.Context())
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v, want the time that callers need to notice", took)
		}
		if got := r.fake.registered(); len(got) != 0 {
			t.Errorf("%q is still registered", got)
		}
		r.desired("y=10.0.0.1")
		if err := r.hub.Publish(r.Context(), request("z")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("publishing after that: %v, want ErrKept", err)
		}
	})
}

func TestUnregisterAllWhileRegistryUnavailable(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for i := range 10 {
			must(t, r.hub.Publish(r.Context(), request(fmt.Sprint("s", i))))
		}
		r.fake.set(true, nil)
		began := time.Now()
		r.hub.UnregisterAll(r.Context())
		// UnregisterAll does not wait for consumers if no registry has confirmed.
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v, want three seconds of waiting for a response", took)
		}
	})
}

func TestUnregisterAllOfUnregisteredIsImmediate(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.hub.UnregisterAll(r.Context())
		if err := r.hub.Publish(r.Context(), request("x")); !errors.Is(err, dubbo.ErrPending) {
			t.Errorf("publishing after that: %v, want ErrKept", err)
		}
		began := time.Now()
		r.hub.UnregisterAll(r.Context())
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestARegistryThatCanBeOpenedLater(t *testing.T) {
	c := defaultConfig()
	c.StateFile = filepath.Join(t.TempDir(), "state.json")
	inSynctest(t, c, func(r *testEnv) {
		r.fake.report("y", "10.0.0.1")
		must(r.T, r.hub.Publish(r.Context(), request("x")))
		must(r.T, r.hub.Subscribe(r.Context(), request("y")))
		r.fake.mu.Lock()
		r.fake.openErr = errors.New("no certificate")
		r.fake.mu.Unlock()
		r.restart(c)
		r.run()
		defer r.end()
		if p := r.hub.Status().Published[0]; p.Registered || !strings.Contains(p.Error, "no certificate") {
			t.Errorf("described as %+v, want the reason", p)
		}
		r.desired("y=10.0.0.1")
		r.fake.mu.Lock()
		r.fake.openErr = nil
		r.fake.mu.Unlock()
		must(r.T, r.hub.Publish(r.Context(), request("z")))
		r.fake.report("y", "10.0.0.1", "10.0.0.2")
		synctest.Wait()
		r.desired("y=10.0.0.1,10.0.0.2")
		if got := strings.Join(r.fake.registered(), "; "); got != "dubbo x#get; dubbo z#get" {
			t.Errorf("registered: %s", got)
		}
	})
}

func TestInvalidRequests(t *testing.T) {
	r := newRig(t, config.DubboRegistry{})
	with := func(change func(*dubbo.Request)) dubbo.Request {
		q := request("x")
		change(&q)
		return q
	}
	tests := []struct {
		name  string
		q     dubbo.Request
		field string
	}{
		{"no interface", with(func(q *dubbo.Request) { q.Service.Interface = "" }), "service.interface"},
		{"an interface that is a path", with(func(q *dubbo.Request) { q.Service.Interface = "a/b" }), "service.interface"},
		{"an interface that is the folder above", with(func(q *dubbo.Request) { q.Service.Interface = ".." }), "service.interface"},
		{"an interface with a line feed", with(func(q *dubbo.Request) { q.Service.Interface = "a\nb" }), "service.interface"},
		{"an interface that is too long", with(func(q *dubbo.Request) { q.Service.Interface = strings.Repeat("x", 2000) }), "service.interface"},
		{"no methods", with(func(q *dubbo.Request) { q.Service.Methods = nil }), "service.methods"},
		{"a method without name", with(func(q *dubbo.Request) { q.Service.Methods = []string{"a", ""} }), "service.methods[1]"},
		{"several groups", with(func(q *dubbo.Request) { q.Service.Group = "a,b" }), "service.group"},
		{"any version", with(func(q *dubbo.Request) { q.Service.Version = "*" }), "service.version"},
		{"no port at all", request("x"), "service.port"},
		{"a port that is none", with(func(q *dubbo.Request) { q.Service.Port = "70000" }), "service.port"},
		{"an unknown registry", with(func(q *dubbo.Request) { q.Registry.Type = "etcd" }), "registry.type"},
		{"no type", with(func(q *dubbo.Request) { q.Registry.Type = "" }), "registry.type"},
		{"no address", with(func(q *dubbo.Request) { q.Registry.Address = "" }), "registry.addr"},
		{"a folder that is not configured", with(func(q *dubbo.Request) { q.Registry = dubbo.Registry{Type: "memory", Address: "file:/etc"} }), "registry.addr"},
		{"an address with a space", with(func(q *dubbo.Request) { q.Registry.Address = "a b" }), "registry.addr"},
		{"a parameter that is a field", with(func(q *dubbo.Request) { q.Service.Parameters = map[string]string{"group": "g"} }), "service.parameters.group"},
		{"a parameter without name", with(func(q *dubbo.Request) { q.Service.Parameters = map[string]string{"": "g"} }), "service.parameters"},
		{"a parameter with a NUL", with(func(q *dubbo.Request) { q.Service.Parameters = map[string]string{"a": "\x00"} }), "service.parameters.a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var field *dubbo.FieldError
			if err := r.hub.Publish(r.Context(), tt.q); !errors.As(err, &field) || field.Field != tt.field {
				t.Errorf("got %v, want a mistake in %s", err, tt.field)
			}
		})
	}
}

// TestSecretsAreNotShown verifies that the API and the log omit secrets, such as the token that
// authorizes calls of a provider.
func TestSecretsAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := newRig(t, defaultConfig())
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		r.hub = r.newHub(defaultConfig())
		r.run()
		defer r.end()
		q := request("x")
		q.Registry.Username, q.Registry.Password = "u", "s3cret"
		q.Service.Parameters = map[string]string{"token": "s3cret", "a.access-key": "s3cret", "weight": "7"}
		r.fake.set(false, errors.New("no"))
		_ = r.hub.Publish(t.Context(), q) // it is rejected and logged
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		text, err := json.Marshal(r.hub.Status())
		must(t, err)
		for where, said := range map[string]string{"the API": string(text), "the log": log.String()} {
			if strings.Contains(said, "s3cret") || !strings.Contains(said, "weight=7") {
				t.Errorf("%s contains %s", where, said)
			}
		}
		if got := fmt.Sprint(r.fake.urls); !strings.Contains(got, "token=s3cret") {
			t.Errorf("registered is %s", got)
		}
	})
}

// TestServicesAreBounded verifies that requests beyond the limit fail.
func TestServicesAreBounded(t *testing.T) {
	const most = 1 << 14
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for i := range most {
			must(r.T, r.hub.Publish(r.Context(), request(fmt.Sprint("s", i))))
		}
		var field *dubbo.FieldError
		if err := r.hub.Publish(r.Context(), request("more")); !errors.As(err, &field) || field.Field != "service" {
			t.Errorf("one more: %v, want a mistake in service", err)
		}
		must(r.T, r.hub.Publish(r.Context(), request("s1"))) // already published
		must(r.T, r.hub.Unpublish(r.Context(), request("s1")))
		must(r.T, r.hub.Publish(r.Context(), request("more")))
	})
}

func TestRegistriesAreBounded(t *testing.T) {
	const most = 256
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		at := func(i int) dubbo.Request {
			q := request("x")
			q.Registry.Address = fmt.Sprint("h:", i)
			return q
		}
		for i := range most {
			must(r.T, r.hub.Publish(r.Context(), at(i)))
		}
		var field *dubbo.FieldError
		if err := r.hub.Publish(r.Context(), at(most)); !errors.As(err, &field) || field.Field != "registry.addr" {
			t.Errorf("one more: %v, want a mistake in registry.addr", err)
		}
		must(r.T, r.hub.Publish(r.Context(), at(1)))
		must(r.T, r.hub.Unpublish(r.Context(), at(1)))
		must(r.T, r.hub.Publish(r.Context(), at(most)))
	})
}

// TestInvalidHostOfEnvironment verifies that an invalid host in the environment is
// rejected, because it becomes part of every URL.
func TestInvalidHostOfEnvironment(t *testing.T) {
	for text, want := range map[string]bool{"10.0.0.7\n": true, "10.0.0.7/x?weight=9": false, "a@10.0.0.7": false} {
		t.Setenv("DUBBO_IP_TO_REGISTRY", text)
		_, err := dubbo.New(dubbo.Options{Config: config.DubboRegistry{Enable: true}, Log: slog.New(slog.DiscardHandler)})
		var field *dubbo.FieldError
		if is := !errors.As(err, &field); is != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestARegistryThatCannotBeOpened(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		q := request("x")
		q.Registry.Address = "bad"
		var field *dubbo.FieldError
		if err := r.hub.Subscribe(r.Context(), q); !errors.As(err, &field) || field.Field != "registry.addr" {
			t.Errorf("got %v, want a mistake in registry.addr", err)
		}
		if s := r.hub.Status(); len(s.Registries) != 0 || len(s.Subscribed) != 0 {
			t.Errorf("what was wrong is known: %+v", s)
		}
	})
}

func TestDefaultRegistry(t *testing.T) {
	tests := []struct {
		name    string
		c       []config.RegistrySettings
		q       dubbo.Registry
		want    string
		problem string
	}{
		{"nothing said, nothing configured", nil, dubbo.Registry{}, "memory://", ""},
		{"the first that is configured", []config.RegistrySettings{{Type: "fake", Address: "a:1"}, {Type: "memory", Address: "m"}}, dubbo.Registry{}, "fake://a:1", ""},
		{"the first of the type", []config.RegistrySettings{{Type: "fake", Address: "a:1"}, {Type: "memory", Address: "m"}}, dubbo.Registry{Type: "Memory"}, "memory://m", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := defaultConfig()
			c.Registries = tt.c
			inSynctest(t, c, func(r *testEnv) {
				q := request("x")
				q.Registry = tt.q
				must(t, r.hub.Publish(r.Context(), q))
				if got := r.hub.Status().Published[0].Registry; got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}
