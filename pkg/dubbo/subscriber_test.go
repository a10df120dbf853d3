package dubbo_test

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSubscribeAppliesSnapshots(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1")
		began := time.Now()
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
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
		must(t, r.discovery.Unsubscribe(r.Context(), request("x")))
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
			must(t, r.discovery.Subscribe(r.Context(), request(s)))
		}
		r.desired("g/x:1=10.0.0.1; g/x=10.0.0.1; x:1=10.0.0.1; x=10.0.0.1")
		must(t, r.discovery.Unsubscribe(r.Context(), request("g/x")))
		r.desired("g/x:1=10.0.0.1; x:1=10.0.0.1; x=10.0.0.1")
	})
}

func TestSubscribeWhileRegistryUnavailable(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.set(true, nil)
		r.fake.report("x", "10.0.0.1")
		began := time.Now()
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the call took %v, want three seconds of waiting for a response", took)
		}
		r.desired("x=")
		if totals := r.discovery.Totals(); totals.WithoutSnapshot != 1 || totals.Connected != 0 {
			t.Errorf("the totals are %+v, want one service without a response, and no connection", totals)
		}
		r.fake.set(false, nil)
		synctest.Wait()
		r.desired("x=10.0.0.1")
	})
}

func TestSameServiceAtTwoRegistries(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1")
		other := request("x")
		other.Registry.Address = "h:2"
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		must(t, r.discovery.Subscribe(r.Context(), other))
		r.desired("x=10.0.0.1")
		must(t, r.discovery.Unsubscribe(r.Context(), request("x")))
		r.desired("x=10.0.0.1")
		must(t, r.discovery.Unsubscribe(r.Context(), other))
		r.desired("")
	})
}

// TestRestoredSubscriptionStartsOnce covers a subscription that is to be started, and whose session
// opens before the loop has started it.
func TestRestoredSubscriptionStartsOnce(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(r *testEnv) {
		r.fake.report("x", "10.0.0.1")
		must(r.T, r.discovery.Subscribe(r.Context(), request("x")))
		r.restart(c)
		r.run()
		defer r.end()
		r.fake.mu.Lock()
		defer r.fake.mu.Unlock()
		if n := len(r.fake.watchers); n != 1 {
			t.Errorf("the registry has %d subscriptions, want 1", n)
		}
	})
}
