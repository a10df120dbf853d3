package dubbo_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/layers"
)

func TestVersionsAtOneAddress(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1?version=1&weight=10", "10.0.0.1?version=2&weight=20", "10.0.0.2?version=2")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.desired("x=10.0.0.1,10.0.0.2; x?version=2=10.0.0.1,10.0.0.2")
		if n := r.discovery.Totals().Providers; n != 2 {
			t.Errorf("%d addresses are counted, want 2", n)
		}
		var listed []string
		for _, p := range r.discovery.Status().Subscribed[0].Providers {
			listed = append(listed, fmt.Sprintf("%s %s*%d", p.Address, p.Version, p.Weight))
			for _, other := range p.Variants {
				listed = append(listed, fmt.Sprintf("beside %s*%d", other.Version, other.Weight))
			}
		}
		if got, want := strings.Join(listed, ", "), "10.0.0.1:20880 1*10, beside 2*20, 10.0.0.2:20880 2*100"; got != want {
			t.Errorf("listed are %s, want %s", got, want)
		}
		r.mu.Lock()
		before := r.clusters["x"]
		r.mu.Unlock()
		r.fake.report("x", "10.0.0.1?version=1&weight=10", "10.0.0.1?version=2&weight=30", "10.0.0.2?version=2")
		advanceClock(time.Second)
		r.mu.Lock()
		if c := r.clusters["x?version=2"]; c == nil || c.Hosts[0].Weight != 30 || r.clusters["x"] != before {
			t.Errorf("a new weight of one version makes %+v, or changes the others", c)
		}
		r.mu.Unlock()
		r.fake.report("x", "10.0.0.1?version=1", "10.0.0.2?version=2")
		advanceClock(time.Second)
		r.desired("x=10.0.0.1,10.0.0.2")
		r.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=2")
		advanceClock(time.Second)
		r.desired("x=10.0.0.1; x?version=2=10.0.0.1")
		must(t, r.discovery.Unsubscribe(r.Context(), request("x")))
		r.desired("")
	})
}

// TestStatusPrefersUsedVariant verifies that the first variant that gets calls
// represents its address.
func TestStatusPrefersUsedVariant(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1?version=1&weight=0", "10.0.0.1?version=2&weight=0", "10.0.0.1?version=3&weight=30", "10.0.0.1?version=4",
			"10.0.0.2?version=1", "10.0.0.2?version=2")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		p := r.discovery.Status().Subscribed[0].Providers
		if len(p) != 2 || p[0].Version != "3" || p[0].UnusedReason != "" {
			t.Fatalf("the providers are %+v", p)
		}
		var beside []string
		for _, other := range p[0].Variants {
			beside = append(beside, fmt.Sprintf("%s %q", other.Version, other.UnusedReason))
		}
		if got, want := strings.Join(beside, ", "), `1 "its weight is 0", 2 "its weight is 0", 4 ""`; got != want {
			t.Errorf("other providers = %s, want %s", got, want)
		}
	})
}

// TestRetainedVersionsReturnIndependently verifies that the return of one version does not
// affect the retained others.
func TestRetainedVersionsReturnIndependently(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		const first, second = "10.0.0.1?version=1", "10.0.0.1?version=2"
		r.fake.report("x", first, second)
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		for _, said := range [][]string{{}, {first}, {first, second}, {}, {second}} {
			r.fake.report("x", said...)
			advanceClock(time.Second)
			r.desired("x=10.0.0.1; x?version=2=10.0.0.1")
		}
		if p := r.discovery.Status().Subscribed[0].Providers; len(p) != 1 || p[0].Version != "1" || !p[0].Retained || len(p[0].Variants) != 1 || p[0].Variants[0].Retained {
			t.Errorf("the providers are %+v, of which the first version is kept", p)
		}
		advanceClock(10 * time.Minute)
		r.desired("x=10.0.0.1")
	})
}

func TestVersionsAtOneAddressSurviveRestart(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(r *testEnv) {
		r.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=2")
		must(r.T, r.discovery.Subscribe(r.Context(), request("x")))
		r.restart(c)
		if clusters, _ := r.discovery.Resources(); len(clusters) != 2 || clusters[0].Name != "x" || clusters[1].Name != "x?version=2" {
			t.Errorf("before Run, there are %d clusters", len(clusters))
		}
		r.run()
		defer r.end()
		r.desired("x=10.0.0.1; x?version=2=10.0.0.1")
	})
}

func TestFailedApplyRollsBackAllClusters(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=2")
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		r.mu.Lock()
		r.refuse = func(layers.Change) error { return errors.New("no") }
		r.mu.Unlock()
		r.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=3")
		advanceClock(time.Second / 2)
		if clusters, _ := r.discovery.Resources(); len(clusters) != 2 || clusters[1].Name != "x?version=2" {
			t.Errorf("there are %d clusters", len(clusters))
		}
		r.mu.Lock()
		r.refuse = nil
		r.mu.Unlock()
		advanceClock(time.Minute)
		r.desired("x=10.0.0.1; x?version=3=10.0.0.1")
	})
}

func TestUnroutedVersionsAreLoggedOnce(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		var log bytes.Buffer
		r.end()
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		r.discovery = r.newDiscovery(defaultConfig())
		r.run()
		defer r.end()
		var many []string
		for i := range 34 {
			many = append(many, fmt.Sprintf("10.0.0.1?version=1.%02d", i))
		}
		r.fake.report("x", many...)
		must(t, r.discovery.Subscribe(r.Context(), request("x")))
		const want = "calls for 1.32, 1.33 match no route"
		if got := r.discovery.Status().Subscribed[0].Sources[0].Error; !strings.Contains(got, want) {
			t.Errorf("the error is %q, want one with %q", got, want)
		}
		r.fake.report("x", append(many, "10.0.0.2?version=1.00")...)
		advanceClock(time.Second)
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("the log says it %d times:\n%s", n, &log)
		}
		r.fake.report("x", many[:32]...)
		advanceClock(time.Second)
		if got := r.discovery.Status().Subscribed[0].Sources[0].Error; got != "" {
			t.Errorf("the error is %q when all have routes", got)
		}
	})
}
