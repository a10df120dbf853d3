package dubbo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
)

func TestManySubscriptionsNeedFewChanges(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		const n = 500
		env.reject = func(layers.Change) error { // a change takes 20 ms
			<-time.After(20 * time.Millisecond)
			return nil
		}
		var wg sync.WaitGroup
		for i := range n {
			env.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			wg.Go(func() {
				if err := env.discovery.Subscribe(env.Context(), request(fmt.Sprint("s", i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(env.clusters) != n || env.applies > 4 {
			t.Errorf("%d clusters after %d changes, want %d after at most 4", len(env.clusters), env.applies, n)
		}
		env.applies = 0
		env.fake.report("s7", "10.0.0.2")
		advanceClock(time.Second)
		if env.applies != 1 || env.clusters["s7"].Hosts[0].Address != "10.0.0.2:20880" {
			t.Errorf("%d changes, hosts of s7 %+v; want one change and 10.0.0.2:20880", env.applies, env.clusters["s7"].Hosts)
		}
	})
}

func TestChangeContainsOnlyDifferences(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		for _, s := range []string{"x", "y"} {
			env.fake.report(s, "10.0.0.1")
			must(t, env.discovery.Subscribe(env.Context(), request(s)))
		}
		var got []layers.Change
		env.reject = func(c layers.Change) error { got = append(got, c); return nil }
		env.fake.report("x", "10.0.0.1", "10.0.0.2")
		synctest.Wait()
		env.fake.report("x", "10.0.0.2", "10.0.0.1") // the same providers
		synctest.Wait()
		env.fake.report("y", "10.0.0.1?timeout=5")
		synctest.Wait()
		if len(got) != 2 {
			t.Fatalf("%d changes, want 2", len(got))
		}
		if c := got[0]; len(c.Clusters) != 1 || c.Clusters[0].Name != "x" || c.Routes != nil {
			t.Errorf("first change %+v, want only the cluster x", c)
		}
		if c := got[1]; len(c.Clusters) != 0 || c.Routes == nil {
			t.Errorf("second change %+v, want only routes", c)
		}
	})
}

func TestFailedApplyDoesNotBlockOthers(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		applyErr := errors.New("a cluster of the file has that name")
		env.reject = func(c layers.Change) error {
			if slices.ContainsFunc(c.Clusters, func(c *config.Cluster) bool { return c.Name == "s3" }) {
				return applyErr
			}
			return nil
		}
		var wg sync.WaitGroup
		for i := range 8 {
			env.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			wg.Go(func() {
				err := env.discovery.Subscribe(env.Context(), request(fmt.Sprint("s", i)))
				if (i == 3) != errors.Is(err, applyErr) {
					t.Errorf("s%d: %v, want an error only for s3", i, err)
				}
			})
		}
		wg.Wait()
		env.wantActive("s0=10.0.0.1; s1=10.0.0.1; s2=10.0.0.1; s4=10.0.0.1; s5=10.0.0.1; s6=10.0.0.1; s7=10.0.0.1")
		if got := env.discovery.Status().LastError; !strings.Contains(got, "s3: a cluster") {
			t.Errorf("last error %q, want the error of s3", got)
		}
		env.mu.Lock()
		env.reject = nil
		env.mu.Unlock()
		advanceClock(time.Minute)
		if len(env.clusters) != 8 || env.discovery.Status().LastError != "" {
			t.Errorf("active hosts after the retry: %s, want 8 clusters and no error", env.activeHosts())
		}
	})
}
