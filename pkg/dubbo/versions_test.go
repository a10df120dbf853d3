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
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1?version=1&weight=10", "10.0.0.1?version=2&weight=20", "10.0.0.2?version=2")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.wantActive("x=10.0.0.1,10.0.0.2; x?version=2=10.0.0.1,10.0.0.2")
		if n := env.discovery.Totals().Providers; n != 2 {
			t.Errorf("Totals counts %d addresses, want 2", n)
		}
		var lines []string
		for _, p := range env.discovery.Status().Subscribed[0].Providers {
			lines = append(lines, fmt.Sprintf("%s %s*%d", p.Address, p.Version, p.Weight))
			for _, variant := range p.Variants {
				lines = append(lines, fmt.Sprintf("variant %s*%d", variant.Version, variant.Weight))
			}
		}
		if got, want := strings.Join(lines, ", "), "10.0.0.1:20880 1*10, variant 2*20, 10.0.0.2:20880 2*100"; got != want {
			t.Errorf("providers %s, want %s", got, want)
		}
		env.mu.Lock()
		cluster := env.clusters["x"]
		env.mu.Unlock()
		env.fake.report("x", "10.0.0.1?version=1&weight=10", "10.0.0.1?version=2&weight=30", "10.0.0.2?version=2")
		advanceClock(time.Second)
		env.mu.Lock()
		if c := env.clusters["x?version=2"]; c == nil || c.Hosts[0].Weight != 30 || env.clusters["x"] != cluster {
			t.Errorf("after a new weight of version 2: cluster %+v, or the cluster of version 1 has changed", c)
		}
		env.mu.Unlock()
		env.fake.report("x", "10.0.0.1?version=1", "10.0.0.2?version=2")
		advanceClock(time.Second)
		env.wantActive("x=10.0.0.1,10.0.0.2")
		env.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=2")
		advanceClock(time.Second)
		env.wantActive("x=10.0.0.1; x?version=2=10.0.0.1")
		must(t, env.discovery.Unsubscribe(env.Context(), request("x")))
		env.wantActive("")
	})
}

// TestStatusPrefersUsedVariant verifies that the first variant that gets calls represents its
// address.
func TestStatusPrefersUsedVariant(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1?version=1&weight=0", "10.0.0.1?version=2&weight=0", "10.0.0.1?version=3&weight=30", "10.0.0.1?version=4",
			"10.0.0.2?version=1", "10.0.0.2?version=2")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		p := env.discovery.Status().Subscribed[0].Providers
		if len(p) != 2 || p[0].Version != "3" || p[0].UnusedReason != "" {
			t.Fatalf("providers %+v, want two, the first of version 3 and in use", p)
		}
		var variants []string
		for _, variant := range p[0].Variants {
			variants = append(variants, fmt.Sprintf("%s %q", variant.Version, variant.UnusedReason))
		}
		if got, want := strings.Join(variants, ", "), `1 "its weight is 0", 2 "its weight is 0", 4 ""`; got != want {
			t.Errorf("variants %s, want %s", got, want)
		}
	})
}

// TestRetainedVersionsReturnIndependently verifies that the return of one version does not
// affect the retained others.
func TestRetainedVersionsReturnIndependently(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		const first, second = "10.0.0.1?version=1", "10.0.0.1?version=2"
		env.fake.report("x", first, second)
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		for _, snapshot := range [][]string{{}, {first}, {first, second}, {}, {second}} {
			env.fake.report("x", snapshot...)
			advanceClock(time.Second)
			env.wantActive("x=10.0.0.1; x?version=2=10.0.0.1")
		}
		if p := env.discovery.Status().Subscribed[0].Providers; len(p) != 1 || p[0].Version != "1" || !p[0].Retained || len(p[0].Variants) != 1 || p[0].Variants[0].Retained {
			t.Errorf("providers %+v, want only version 1 retained", p)
		}
		advanceClock(10 * time.Minute)
		env.wantActive("x=10.0.0.1")
	})
}

func TestVersionsAtOneAddressSurviveRestart(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(env *testEnv) {
		env.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=2")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		env.restart(c)
		if clusters, _ := env.discovery.Resources(); len(clusters) != 2 || clusters[0].Name != "x" || clusters[1].Name != "x?version=2" {
			t.Errorf("Resources before Run has %d clusters, want 2", len(clusters))
		}
		env.run()
		defer env.end()
		env.wantActive("x=10.0.0.1; x?version=2=10.0.0.1")
	})
}

func TestFailedApplyRollsBackAllClusters(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=2")
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		env.mu.Lock()
		env.reject = func(layers.Change) error { return errors.New("no") }
		env.mu.Unlock()
		env.fake.report("x", "10.0.0.1?version=1", "10.0.0.1?version=3")
		advanceClock(time.Second / 2)
		if clusters, _ := env.discovery.Resources(); len(clusters) != 2 || clusters[1].Name != "x?version=2" {
			t.Errorf("Resources has %d clusters, want 2", len(clusters))
		}
		env.mu.Lock()
		env.reject = nil
		env.mu.Unlock()
		advanceClock(time.Minute)
		env.wantActive("x=10.0.0.1; x?version=3=10.0.0.1")
	})
}

func TestUnroutedVersionsAreLoggedOnce(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		var log bytes.Buffer
		env.end()
		env.log = slog.New(slog.NewTextHandler(&log, nil))
		env.discovery = env.newDiscovery(defaultConfig())
		env.run()
		defer env.end()
		var providers []string
		for i := range 34 {
			providers = append(providers, fmt.Sprintf("10.0.0.1?version=1.%02d", i))
		}
		env.fake.report("x", providers...)
		must(t, env.discovery.Subscribe(env.Context(), request("x")))
		const want = "calls for 1.32, 1.33 match no route"
		if got := env.discovery.Status().Subscribed[0].Sources[0].Error; !strings.Contains(got, want) {
			t.Errorf("error %q, want one with %q", got, want)
		}
		env.fake.report("x", append(providers, "10.0.0.2?version=1.00")...)
		advanceClock(time.Second)
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("the log has %d entries, want 1:\n%s", n, &log)
		}
		env.fake.report("x", providers[:32]...)
		advanceClock(time.Second)
		if got := env.discovery.Status().Subscribed[0].Sources[0].Error; got != "" {
			t.Errorf("error %q, want none when all versions have routes", got)
		}
	})
}
