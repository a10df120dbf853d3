package dubbo_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/dubbo"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/registry"
)

// TestEmptyProtection runs scripts of registry events, and compares the active hosts after each
// one:
//
//	report N …      a snapshot with providers at the hosts 10.0.0.N
//	session         a new session
//	advance TIME    advances the clock
//	down, up        the registry is unavailable, or available again
func TestEmptyProtection(t *testing.T) {
	tests := []struct {
		name   string
		script string // "step => active hosts; …"
	}{
		{"providers added and removed", "report 1 2 3 => 1 2 3; report 1 3 => 1 3; report 4 => 4"},
		{"empty snapshot", "report 1 2 => 1 2; report => 1 2; advance 9m => 1 2; advance 1m => "},
		{"removed one by one, then empty", "report 1 2 3 => 1 2 3; report 1 2 => 1 2; advance 10s => 1 2; report 1 => 1; advance 1m => 1; report => 1 2 3; advance 10m => "},
		{"last provider removed", "report 1 2 => 1 2; report 1 => 1; advance 3m => 1; report => 1; advance 10m => "},
		{"removed and added again, then empty", "report 1 2 => 1 2; report 1 => 1; report 1 2 => 1 2; report => 1 2; report 2 => 1 2; advance 10m => 2"},
		{"first snapshot empty", "report => ; report 1 => 1"},
		{"returning one by one", "report 1 2 3 => 1 2 3; report => 1 2 3; report 2 => 1 2 3; report 2 3 => 1 2 3; report 1 2 3 => 1 2 3; report 1 2 => 1 2"},
		{"some do not return", "report 1 2 3 => 1 2 3; report => 1 2 3; report 2 => 1 2 3; advance 10m => 2"},
		{"replaced by others", "report 1 2 => 1 2; report => 1 2; report 3 4 => 1 2 3 4; advance 10m => 3 4"},
		{"removed after all returned", "report 1 2 => 1 2; report => 1 2; report 1 2 3 => 1 2 3; report 1 2 => 1 2"},
		{"empty twice", "report 1 2 => 1 2; report => 1 2; advance 5m => 1 2; report 1 => 1 2; report => 1 2; advance 5m => 1; advance 5m => "},
		{"most missing in a new session", "report 1 2 3 => 1 2 3; session => 1 2 3; report 1 => 1 2 3; report 1 2 => 1 2 3; advance 10m => 1 2"},
		{"few missing in a new session", "report 1 2 3 => 1 2 3; session => 1 2 3; report 1 2 => 1 2"},
		{"most missing in the same session", "report 1 2 3 => 1 2 3; report 1 => 1"},
		{"unavailable registry", "report 1 2 => 1 2; down => 1 2; advance 24h => 1 2; up => 1 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inSynctest(t, defaultConfig(), func(env *testEnv) {
				first := true
				for line := range strings.SplitSeq(tt.script, ";") {
					step, want, _ := strings.Cut(line, "=>")
					env.step(strings.TrimSpace(step))
					if first {
						must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
						first = false
					}
					synctest.Wait()
					got := strings.ReplaceAll(strings.TrimPrefix(env.activeHosts(), "x="), "10.0.0.", "")
					if want = strings.ReplaceAll(strings.TrimSpace(want), " ", ","); got != want {
						t.Fatalf("after %q: active providers = %q, want %q", strings.TrimSpace(step), got, want)
					}
				}
			})
		})
	}
}

// step performs one step of a script.
func (env *testEnv) step(line string) {
	env.Helper()
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "report":
		hosts := []string{}
		for n := range strings.FieldsSeq(rest) {
			hosts = append(hosts, "10.0.0."+n)
		}
		env.fake.report("x", hosts...)
	case "session":
		env.fake.mu.Lock()
		env.fake.sessions++
		env.fake.mu.Unlock()
	case "advance":
		d, err := time.ParseDuration(rest)
		if err != nil {
			env.Fatal(err)
		}
		advanceClock(d)
	case "down", "up":
		env.fake.set(command == "down", nil)
	default:
		env.Fatalf("unknown step %q", line)
	}
}

func TestStatusShowsRetainedProviders(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		advanceClock(time.Minute)
		emptySince := time.Now()
		env.fake.report("x")
		synctest.Wait()
		source := env.discovery.Status().Subscribed[0].Sources[0]
		if !source.EmptySince.Equal(emptySince) || !source.Received {
			t.Errorf("the source is %+v, want EmptySince %v", source, emptySince)
		}
		if totals := env.discovery.Totals(); totals.EmptyProtected != 1 || totals.Providers != 1 {
			t.Errorf("the totals are %+v, want one service with empty protection, and one provider", totals)
		}
		if p := env.discovery.Status().Subscribed[0].Providers[0]; !p.Retained {
			t.Errorf("the provider is %+v, want it retained", p)
		}
		advanceClock(10 * time.Minute)
		if source = env.discovery.Status().Subscribed[0].Sources[0]; !source.EmptySince.IsZero() {
			t.Errorf("the source is %+v, want no EmptySince", source)
		}
	})
}

func TestAuthoritativeEmptySnapshot(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		for w := range env.fake.watchers {
			w.notify(registry.Snapshot{Authoritative: true})
		}
		synctest.Wait()
		env.wantActive("x=")
	})
}

func TestEmptyProtectionDisabled(t *testing.T) {
	c := defaultConfig()
	c.EmptyProtection = -1
	inSynctest(t, c, func(env *testEnv) {
		env.fake.report("x", "10.0.0.1")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.report("x")
		synctest.Wait()
		env.wantActive("x=")
	})
}

func TestEmptySnapshotReplacedDuringApply(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1", "10.0.0.2")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		release := make(chan struct{})
		env.reject = func(layers.Change) error { // blocks the next change
			<-release
			return nil
		}
		env.fake.report("y", "10.0.0.9")
		subscribed := make(chan error)
		go func() { subscribed <- env.discovery.Subscribe(env.Context(), request("y")) }()
		advanceClock(time.Second)
		env.fake.report("x")
		env.fake.report("x", "10.0.0.2")
		close(release)
		must(env.T, <-subscribed)
		synctest.Wait()
		env.wantActive("x=10.0.0.1,10.0.0.2; y=10.0.0.9")
	})
}

func TestProvidersWarmUp(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", fmt.Sprintf("10.0.0.1?timestamp=%d", time.Now().UnixMilli()), "10.0.0.2")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		weight := func() uint32 {
			env.mu.Lock()
			defer env.mu.Unlock()
			return env.clusters["x"].Hosts[0].Weight
		}
		if w := weight(); w != 1 {
			t.Errorf("weight at the start = %d, want 1", w)
		}
		advanceClock(5*time.Minute + time.Second)
		if w := weight(); w != 50 {
			t.Errorf("weight after half of the warmup = %d, want 50", w)
		}
		advanceClock(5 * time.Minute)
		if w := weight(); w != 100 || env.applies > 21 {
			t.Errorf("final weight = %d after %d changes, want 100 after about 20", w, env.applies)
		}
	})
}

// TestSnapshotDuringPlanning verifies that a snapshot that arrives during planning counts for the
// same session as the previous one, whichever registry triggered the change.
func TestSnapshotDuringPlanning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, defaultConfig())
		otherRegistry := newFakeRegistry()
		discovery, err := dubbo.New(dubbo.Options{
			Registries: map[string]registry.OpenFunc{"fake": env.fake.open, "other": otherRegistry.open},
			Config:     defaultConfig(), Apply: env.apply, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		env.discovery = discovery
		env.run()
		defer env.end()
		y := request("y")
		y.Registry.Type = "other"
		env.fake.report("x", "10.0.0.1")
		otherRegistry.report("y", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		must(t, env.discovery.Subscribe(t.Context(), request("x")))
		must(t, env.discovery.Subscribe(t.Context(), y))
		env.fake.mu.Lock()
		env.fake.onState = func() { otherRegistry.report("y", "10.0.0.1") }
		env.fake.mu.Unlock()
		env.fake.report("x", "10.0.0.2")
		advanceClock(time.Second)
		env.wantActive("x=10.0.0.2; y=10.0.0.1")
	})
}
