package dubbo_test

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSubscribeAppliesSnapshots(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1")
		start := time.Now()
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		if elapsed := time.Since(start); elapsed != 0 {
			t.Errorf("Subscribe took %v, want 0", elapsed)
		}
		env.wantActive("x=10.0.0.1")
		env.fake.report("x", "10.0.0.1", "10.0.0.2")
		synctest.Wait()
		env.wantActive("x=10.0.0.1,10.0.0.2")
		env.fake.report("x", "10.0.0.2")
		synctest.Wait()
		env.wantActive("x=10.0.0.2")
		must(t, env.discovery.Unsubscribe(env.Context(), request("x")))
		env.wantActive("")
		synctest.Wait()
		if n := len(env.fake.watchers); n != 0 || env.fake.closed != 1 {
			t.Errorf("%d subscriptions, %d closed sessions; want 0 and 1", n, env.fake.closed)
		}
	})
}

func TestServicesWithDifferentKeys(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		for _, s := range []string{"x", "g/x", "x:1", "g/x:1"} {
			env.fake.report("x", "10.0.0.1")
			must(t, env.discovery.Subscribe(env.Context(), request(s)))
		}
		env.wantActive("g/x:1=10.0.0.1; g/x=10.0.0.1; x:1=10.0.0.1; x=10.0.0.1")
		must(t, env.discovery.Unsubscribe(env.Context(), request("g/x")))
		env.wantActive("g/x:1=10.0.0.1; x:1=10.0.0.1; x=10.0.0.1")
	})
}

func TestSubscribeWhileRegistryUnavailable(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.set(true, nil)
		env.fake.report("x", "10.0.0.1")
		start := time.Now()
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		if elapsed := time.Since(start); elapsed != 3*time.Second {
			t.Errorf("Subscribe took %v, want registryTimeout (3s)", elapsed)
		}
		env.wantActive("x=")
		if totals := env.discovery.Totals(); totals.WithoutSnapshot != 1 || totals.ConnectedRegistries != 0 {
			t.Errorf("totals %+v, want one service without a snapshot, and no connected registry", totals)
		}
		env.fake.set(false, nil)
		synctest.Wait()
		env.wantActive("x=10.0.0.1")
	})
}

func TestSameServiceAtTwoRegistries(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1")
		atOtherRegistry := request("x")
		atOtherRegistry.Registry.Address = "h:2"
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		must(t, env.discovery.Subscribe(env.Context(), atOtherRegistry))
		env.wantActive("x=10.0.0.1")
		must(t, env.discovery.Unsubscribe(env.Context(), request("x")))
		env.wantActive("x=10.0.0.1")
		must(t, env.discovery.Unsubscribe(env.Context(), atOtherRegistry))
		env.wantActive("")
	})
}

// TestRestoredSubscriptionStartsOnce covers a subscription whose session opens before the loop has
// started the subscription.
func TestRestoredSubscriptionStartsOnce(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(env *testEnv) {
		env.fake.report("x", "10.0.0.1")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		env.restart(c)
		env.run()
		defer env.end()
		env.fake.mu.Lock()
		defer env.fake.mu.Unlock()
		if n := len(env.fake.watchers); n != 1 {
			t.Errorf("the registry has %d subscriptions, want 1", n)
		}
	})
}
