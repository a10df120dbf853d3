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
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		const n = 500
		r.refuse = func(layers.Change) error { // a change takes 20 ms
			<-time.After(20 * time.Millisecond)
			return nil
		}
		var all sync.WaitGroup
		for i := range n {
			r.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			all.Go(func() {
				if err := r.discovery.Subscribe(r.Context(), request(fmt.Sprint("s", i))); err != nil {
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
			must(t, r.discovery.Subscribe(r.Context(), request(s)))
		}
		var got []layers.Change
		r.refuse = func(c layers.Change) error { got = append(got, c); return nil }
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
		r.refuse = func(c layers.Change) error {
			if slices.ContainsFunc(c.Clusters, func(c *config.Cluster) bool { return c.Name == "s3" }) {
				return broken
			}
			return nil
		}
		var all sync.WaitGroup
		for i := range 8 {
			r.fake.report(fmt.Sprint("s", i), "10.0.0.1")
			all.Go(func() {
				err := r.discovery.Subscribe(r.Context(), request(fmt.Sprint("s", i)))
				if (i == 3) != errors.Is(err, broken) {
					t.Errorf("s%d: %v", i, err)
				}
			})
		}
		all.Wait()
		r.desired("s0=10.0.0.1; s1=10.0.0.1; s2=10.0.0.1; s4=10.0.0.1; s5=10.0.0.1; s6=10.0.0.1; s7=10.0.0.1")
		if got := r.discovery.Status().LastError; !strings.Contains(got, "s3: a cluster") {
			t.Errorf("the last error is %q", got)
		}
		r.mu.Lock()
		r.refuse = nil
		r.mu.Unlock()
		advanceClock(time.Minute)
		if len(r.clusters) != 8 || r.discovery.Status().LastError != "" {
			t.Errorf("a minute after it is possible: %s", r.inForce())
		}
	})
}
