package dubbo_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

// configWithStateFile returns a configuration with a state file.
func configWithStateFile(t *testing.T) config.DubboRegistry {
	c := defaultConfig()
	c.StateFile = filepath.Join(t.TempDir(), "state.json")
	return c
}

// restart stops the Discovery and creates another one, which does not run yet.
func (env *testEnv) restart(c config.DubboRegistry) {
	env.end()
	env.fake.mu.Lock()
	env.fake.sessions = 1
	env.fake.mu.Unlock()
	env.mu.Lock()
	clear(env.clusters)
	env.routes, env.applies = nil, 0
	env.mu.Unlock()
	env.discovery = env.newDiscovery(c)
}

func TestRestartRestoresState(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(env *testEnv) {
		env.fake.report("y", "10.0.0.1", "10.0.0.2")
		must(env.T, env.discovery.Publish(env.Context(), request("g/x:1")))
		must(env.T, env.discovery.Subscribe(env.Context(), request("y")))
		must(env.T, env.discovery.Publish(env.Context(), request("gone")))
		must(env.T, env.discovery.Unpublish(env.Context(), request("gone")))
		previousURL := env.discovery.Status().Published[0].URL
		env.discovery.UnregisterAll(env.Context()) // the registrations stay in the state file
		env.restart(c)

		clusters, routes := env.discovery.Resources()
		if len(clusters) != 1 || len(clusters[0].Hosts) != 2 || len(routes.VirtualHosts[0].Routes) == 0 {
			t.Errorf("Resources before Run = %v, %v; want one cluster with two hosts, and routes", clusters, routes)
		}
		env.fake.set(true, nil)
		env.run()
		defer env.end()
		env.wantActive("y=10.0.0.1,10.0.0.2")
		advanceClock(time.Hour)
		source := env.discovery.Status().Subscribed[0].Sources[0]
		if !source.Restored || source.Age != "1h0m3s" {
			t.Errorf("while the registry is unavailable: source %+v, want it restored, with the age 1h0m3s", source)
		}
		if totals := env.discovery.Totals(); totals.OldestSnapshot != time.Hour+3*time.Second || totals.RestoredServices != 1 {
			t.Errorf("OldestSnapshot = %v, want 1h0m3s of one restored service", totals.OldestSnapshot)
		}
		env.fake.set(false, nil)
		advanceClock(time.Minute)
		env.wantActive("y=10.0.0.1,10.0.0.2")
		if got := strings.Join(env.fake.registered(), " "); got != "dubbo g/x:1#get" {
			t.Errorf("registered %q, want g/x:1", got)
		}
		if currentURL := env.discovery.Status().Published[0].URL; currentURL != previousURL {
			t.Errorf("URL %s, before the restart %s; want no change", currentURL, previousURL)
		}
		if source = env.discovery.Status().Subscribed[0].Sources[0]; source.Restored {
			t.Errorf("after a response of the registry: source %+v, want it not restored", source)
		}
	})
}

func TestEmptyProtectionAfterRestart(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(env *testEnv) {
		env.fake.report("y", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		must(env.T, env.discovery.Subscribe(env.Context(), request("y")))
		env.restart(c)
		env.fake.report("y")
		env.run()
		env.wantActive("y=10.0.0.1,10.0.0.2,10.0.0.3")
		env.restart(c)
		env.fake.report("y", "10.0.0.1")
		env.run()
		defer env.end()
		env.wantActive("y=10.0.0.1,10.0.0.2,10.0.0.3")
		advanceClock(11 * time.Minute)
		env.wantActive("y=10.0.0.1")
	})
}

// TestKillLosesOnlyRecentSnapshots verifies that requests are in the state file immediately, or
// within a second of the previous write, so that an unpublished service does not return with the
// next start.
func TestKillLosesOnlyRecentSnapshots(t *testing.T) {
	tests := []struct {
		name string
		run  func(env *testEnv)
		want string
	}{
		{"one request", func(env *testEnv) {
			must(env.T, env.discovery.Publish(env.Context(), request("x")))
			advanceClock(20 * time.Millisecond)
		}, "x"},
		{"requests more than a second apart", func(env *testEnv) {
			must(env.T, env.discovery.Publish(env.Context(), request("x")))
			must(env.T, env.discovery.Publish(env.Context(), request("y")))
			advanceClock(2 * time.Second)
			must(env.T, env.discovery.Unpublish(env.Context(), request("x")))
			advanceClock(20 * time.Millisecond)
		}, "y"},
		{"second request within a second is lost", func(env *testEnv) {
			must(env.T, env.discovery.Publish(env.Context(), request("x")))
			advanceClock(20 * time.Millisecond)
			must(env.T, env.discovery.Publish(env.Context(), request("y")))
			advanceClock(20 * time.Millisecond)
		}, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := configWithStateFile(t)
			inSynctest(t, c, func(env *testEnv) {
				tt.run(env)
				saved, err := os.ReadFile(c.StateFile)
				must(env.T, err)
				env.end()
				must(env.T, os.WriteFile(c.StateFile, saved, 0o600)) // the file at the time of the kill
				env.restart(c)
				if got := env.discovery.Status().Published; len(got) != 1 || got[0].Key != tt.want {
					t.Errorf("published: %+v, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestStateFileWritesAreBatched(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(env *testEnv) {
		var modTimes []time.Time
		for i := range 50 {
			must(env.T, env.discovery.Publish(env.Context(), request(fmt.Sprint("s", i))))
			advanceClock(100 * time.Millisecond)
			if info, err := os.Stat(c.StateFile); err == nil && (len(modTimes) == 0 || !modTimes[len(modTimes)-1].Equal(info.ModTime())) {
				modTimes = append(modTimes, info.ModTime())
			}
		}
		if n := len(modTimes); n == 0 || n > 5 {
			t.Errorf("%d writes in 5 s, want one per second", n)
		}
	})
}

func TestUnreadableStateFileIsMoved(t *testing.T) {
	c := configWithStateFile(t)
	must(t, os.WriteFile(c.StateFile, []byte(`{"weft_dubbo_services":1,"sha256":"0","content":{}}`), 0o600))
	inSynctest(t, c, func(env *testEnv) {
		if s := env.discovery.Status(); len(s.Published)+len(s.Subscribed) != 0 {
			t.Errorf("status %+v, want no services", s)
		}
		renamed, err := filepath.Glob(c.StateFile + ".unusable-*")
		if err != nil || len(renamed) != 1 {
			t.Errorf("files = %q, %v; want the invalid file renamed", renamed, err)
		}
		must(env.T, env.discovery.Publish(env.Context(), request("x")))
		advanceClock(time.Second)
		if _, err := os.Stat(c.StateFile); err != nil {
			t.Errorf("no state file after Publish: %v", err)
		}
	})
}

// TestRequestsAfterCloseAreRejected verifies that requests after the last write of the state file
// fail, because the next start would not know them.
func TestRequestsAfterCloseAreRejected(t *testing.T) {
	inSynctest(t, configWithStateFile(t), func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), request("x")))
		must(env.T, env.discovery.Subscribe(env.Context(), request("y")))
		env.end()
		for name, err := range map[string]error{
			"publishing":    env.discovery.Publish(env.Context(), request("z")),
			"unpublishing":  env.discovery.Unpublish(env.Context(), request("x")),
			"subscribing":   env.discovery.Subscribe(env.Context(), request("z")),
			"unsubscribing": env.discovery.Unsubscribe(env.Context(), request("y")),
		} {
			if err == nil || errors.Is(err, dubbo.ErrPending) || errors.Is(err, dubbo.ErrNotFound) {
				t.Errorf("%s: %v, want the error that the process is shutting down", name, err)
			}
		}
	})
}

func TestStaleTempFilesAreRemoved(t *testing.T) {
	c := configWithStateFile(t)
	stale, recent := c.StateFile+".new-1", c.StateFile+".new-2"
	for _, path := range []string{stale, recent} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	must(t, os.Chtimes(stale, time.Time{}, time.Now().Add(-time.Hour)))
	newTestEnv(t, c)
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v, want it removed", stale, err)
	}
	if _, err := os.Stat(recent); err != nil { // another process may be writing the recent file
		t.Error(err)
	}
}

func TestFailedStateWriteIsRetried(t *testing.T) {
	c := configWithStateFile(t)
	dir := filepath.Dir(c.StateFile)
	c.StateFile = filepath.Join(dir, "file", "state.json")
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)) // not a directory
	inSynctest(t, c, func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), request("x")))
		advanceClock(time.Second)
		if n := env.discovery.Totals().StateFileFailures; n != 1 {
			t.Errorf("%d attempts failed, want 1", n)
		}
		must(env.T, os.Remove(filepath.Join(dir, "file")))
		advanceClock(time.Minute)
		if _, err := os.Stat(c.StateFile); err != nil {
			t.Error(err)
		}
	})
}

func TestRepeatedRequestWritesNothing(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(env *testEnv) {
		env.fake.report("y", "10.0.0.1")
		repeat := func() {
			must(env.T, env.discovery.Publish(env.Context(), request("x")))
			must(env.T, env.discovery.Subscribe(env.Context(), request("y")))
			advanceClock(time.Minute)
		}
		repeat()
		before, err := os.Stat(c.StateFile)
		must(env.T, err)
		repeat()
		after, err := os.Stat(c.StateFile)
		must(env.T, err)
		if !os.SameFile(before, after) {
			t.Error("the unchanged state was written again")
		}
	})
}

func TestConfiguredCredentialsAreNotSaved(t *testing.T) {
	c := configWithStateFile(t)
	c.Registries = []config.RegistrySettings{{Type: "fake", Address: "h:1", Username: "u", Password: "secret"}}
	inSynctest(t, c, func(env *testEnv) {
		must(env.T, env.discovery.Publish(env.Context(), request("x")))
		if got := env.discovery.Status().Registries[0].Username; got != "u" {
			t.Errorf("user %q, want the configured user", got)
		}
		env.end()
		text, err := os.ReadFile(c.StateFile)
		must(env.T, err)
		if strings.Contains(string(text), "secret") {
			t.Errorf("the state file contains the password: %s", text)
		}
	})
}

// TestChangedCredentialsWithoutSnapshot verifies that a subscription that had no snapshot is not
// shown as restored after its credentials have changed.
func TestChangedCredentialsWithoutSnapshot(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.set(true, nil)
		req := request("x")
		must(env.T, env.discovery.Subscribe(env.Context(), req))
		req.Registry.Username, req.Registry.Password = "u", "p"
		must(env.T, env.discovery.Subscribe(env.Context(), req))
		if source := env.discovery.Status().Subscribed[0].Sources[0]; source.Received || source.Restored {
			t.Errorf("the source is %+v, want it neither received nor restored", source)
		}
	})
}

func TestChangedCredentialsKeepSnapshot(t *testing.T) {
	inSynctest(t, defaultConfig(), func(env *testEnv) {
		env.fake.report("x", "10.0.0.1")
		must(env.T, env.discovery.Subscribe(env.Context(), request("x")))
		env.fake.set(true, nil)
		req := request("x")
		req.Registry = dubbo.Registry{Type: "fake", Address: "h:1", Username: "u", Password: "p"}
		must(env.T, env.discovery.Subscribe(env.Context(), req))
		env.wantActive("x=10.0.0.1")
		env.fake.set(false, nil)
		synctest.Wait()
		env.wantActive("x=10.0.0.1")
		if env.fake.opened != 2 || len(env.fake.watchers) != 1 {
			t.Errorf("%d sessions, %d subscriptions; want 2 and 1", env.fake.opened, len(env.fake.watchers))
		}
	})
}
