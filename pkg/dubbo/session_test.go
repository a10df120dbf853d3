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
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		for i := range 5 {
			r.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			must(t, r.discovery.Publish(r.Context(), request(fmt.Sprint("s", i))))
			must(t, r.discovery.Subscribe(r.Context(), request(fmt.Sprint("s", i))))
		}
		if r.fake.opened != 1 {
			t.Errorf("%d sessions, want 1", r.fake.opened)
		}
		q := request("s0")
		q.Registry.Username = "u"
		q.Registry.Password = "p"
		must(t, r.discovery.Publish(r.Context(), q))
		if r.fake.opened != 2 {
			t.Errorf("%d sessions, want another one for another user", r.fake.opened)
		}
		if n := len(r.discovery.Status().Published); n != 5 {
			t.Errorf("%d services are published, want 5: it is the same whoever says it", n)
		}
	})
}

func TestRegistryOpenedLater(t *testing.T) {
	c := defaultConfig()
	c.StateFile = filepath.Join(t.TempDir(), "state.json")
	inSynctest(t, c, func(r *testEnv) {
		r.fake.report("y", "10.0.0.1")
		must(r.T, r.discovery.Publish(r.Context(), request("x")))
		must(r.T, r.discovery.Subscribe(r.Context(), request("y")))
		r.fake.mu.Lock()
		r.fake.openErr = errors.New("no certificate")
		r.fake.mu.Unlock()
		r.restart(c)
		r.run()
		defer r.end()
		if p := r.discovery.Status().Published[0]; p.Registered || !strings.Contains(p.Error, "no certificate") {
			t.Errorf("described as %+v, want the reason", p)
		}
		r.desired("y=10.0.0.1")
		r.fake.mu.Lock()
		r.fake.openErr = nil
		r.fake.mu.Unlock()
		must(r.T, r.discovery.Publish(r.Context(), request("z")))
		r.fake.report("y", "10.0.0.1", "10.0.0.2")
		synctest.Wait()
		r.desired("y=10.0.0.1,10.0.0.2")
		if got := strings.Join(r.fake.registered(), "; "); got != "dubbo x#get; dubbo z#get" {
			t.Errorf("registered: %s", got)
		}
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
			must(r.T, r.discovery.Publish(r.Context(), at(i)))
		}
		var field *dubbo.FieldError
		if err := r.discovery.Publish(r.Context(), at(most)); !errors.As(err, &field) || field.Field != "registry.addr" {
			t.Errorf("one more: %v, want a mistake in registry.addr", err)
		}
		must(r.T, r.discovery.Publish(r.Context(), at(1)))
		must(r.T, r.discovery.Unpublish(r.Context(), at(1)))
		must(r.T, r.discovery.Publish(r.Context(), at(most)))
	})
}

func TestRegistryCannotBeOpened(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		q := request("x")
		q.Registry.Address = "bad"
		var field *dubbo.FieldError
		if err := r.discovery.Subscribe(r.Context(), q); !errors.As(err, &field) || field.Field != "registry.addr" {
			t.Errorf("got %v, want a mistake in registry.addr", err)
		}
		if s := r.discovery.Status(); len(s.Registries) != 0 || len(s.Subscribed) != 0 {
			t.Errorf("what was wrong is known: %+v", s)
		}
	})
}
