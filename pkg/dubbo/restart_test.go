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
func (r *testEnv) restart(c config.DubboRegistry) {
	r.end()
	r.fake.mu.Lock()
	r.fake.sessions = 1
	r.fake.mu.Unlock()
	r.mu.Lock()
	clear(r.clusters)
	r.routes, r.applies = nil, 0
	r.mu.Unlock()
	r.discovery = r.newDiscovery(c)
}

func TestRestartRestoresState(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(r *testEnv) {
		r.fake.report("y", "10.0.0.1", "10.0.0.2")
		must(r.T, r.discovery.Publish(r.Context(), request("g/x:1")))
		must(r.T, r.discovery.Subscribe(r.Context(), request("y")))
		must(r.T, r.discovery.Publish(r.Context(), request("gone")))
		must(r.T, r.discovery.Unpublish(r.Context(), request("gone")))
		before := r.discovery.Status().Published[0].URL
		r.discovery.UnregisterAll(r.Context()) // not permanent
		r.restart(c)

		clusters, routes := r.discovery.Resources()
		if len(clusters) != 1 || len(clusters[0].Hosts) != 2 || len(routes.VirtualHosts[0].Routes) == 0 {
			t.Errorf("before Run, there are the clusters %v and the routes %v", clusters, routes)
		}
		r.fake.set(true, nil)
		r.run()
		defer r.end()
		r.desired("y=10.0.0.1,10.0.0.2")
		advanceClock(time.Hour)
		source := r.discovery.Status().Subscribed[0].Sources[0]
		if !source.Restored || source.Age != "1h0m3s" {
			t.Errorf("while the registry is away the source is %+v, want it restored, an hour and three seconds old", source)
		}
		if totals := r.discovery.Totals(); totals.OldestSnapshot != time.Hour+3*time.Second || totals.Restored != 1 {
			t.Errorf("the oldest list is %v old", totals.OldestSnapshot)
		}
		r.fake.set(false, nil)
		advanceClock(time.Minute)
		r.desired("y=10.0.0.1,10.0.0.2")
		if got := strings.Join(r.fake.registered(), " "); got != "dubbo g/x:1#get" {
			t.Errorf("registered again: %q, want g/x:1", got)
		}
		if after := r.discovery.Status().Published[0].URL; after != before {
			t.Errorf("the URL is %s, was %s", after, before)
		}
		if source = r.discovery.Status().Subscribed[0].Sources[0]; source.Restored {
			t.Errorf("the registry has responded, but the source is %+v", source)
		}
	})
}

func TestEmptyProtectionAfterRestart(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(r *testEnv) {
		r.fake.report("y", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		must(r.T, r.discovery.Subscribe(r.Context(), request("y")))
		r.restart(c)
		r.fake.report("y")
		r.run()
		r.desired("y=10.0.0.1,10.0.0.2,10.0.0.3")
		r.restart(c)
		r.fake.report("y", "10.0.0.1")
		r.run()
		defer r.end()
		r.desired("y=10.0.0.1,10.0.0.2,10.0.0.3")
		advanceClock(11 * time.Minute)
		r.desired("y=10.0.0.1")
	})
}

// TestKillLosesOnlyRecentSnapshots verifies that requests are in the state file immediately, or within a second
// of the previous write, so that an unpublished service does not return with the next start.
func TestKillLosesOnlyRecentSnapshots(t *testing.T) {
	tests := []struct {
		name string
		ask  func(r *testEnv)
		want string
	}{
		{"nothing, of one call", func(r *testEnv) {
			must(r.T, r.discovery.Publish(r.Context(), request("x")))
			advanceClock(20 * time.Millisecond)
		}, "x"},
		{"nothing, of calls that are a second apart", func(r *testEnv) {
			must(r.T, r.discovery.Publish(r.Context(), request("x")))
			must(r.T, r.discovery.Publish(r.Context(), request("y")))
			advanceClock(2 * time.Second)
			must(r.T, r.discovery.Unpublish(r.Context(), request("x")))
			advanceClock(20 * time.Millisecond)
		}, "y"},
		{"what was asked for in the last second, of many", func(r *testEnv) {
			must(r.T, r.discovery.Publish(r.Context(), request("x")))
			advanceClock(20 * time.Millisecond)
			must(r.T, r.discovery.Publish(r.Context(), request("y")))
			advanceClock(20 * time.Millisecond)
		}, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := configWithStateFile(t)
			inSynctest(t, c, func(r *testEnv) {
				tt.ask(r)
				saved, err := os.ReadFile(c.StateFile)
				must(r.T, err)
				r.end()
				must(r.T, os.WriteFile(c.StateFile, saved, 0o600)) // the file at the time of the kill
				r.restart(c)
				if got := r.discovery.Status().Published; len(got) != 1 || got[0].Key != tt.want {
					t.Errorf("published: %+v, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestStateFileWritesAreBatched(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(r *testEnv) {
		var written []time.Time
		for i := range 50 {
			must(r.T, r.discovery.Publish(r.Context(), request(fmt.Sprint("s", i))))
			advanceClock(100 * time.Millisecond)
			if info, err := os.Stat(c.StateFile); err == nil && (len(written) == 0 || !written[len(written)-1].Equal(info.ModTime())) {
				written = append(written, info.ModTime())
			}
		}
		if n := len(written); n == 0 || n > 5 {
			t.Errorf("it was written %d times in 5 s, want once a second", n)
		}
	})
}

func TestUnreadableStateFileIsMoved(t *testing.T) {
	c := configWithStateFile(t)
	must(t, os.WriteFile(c.StateFile, []byte(`{"weft_dubbo_services":1,"sha256":"0","content":{}}`), 0o600))
	inSynctest(t, c, func(r *testEnv) {
		if s := r.discovery.Status(); len(s.Published)+len(s.Subscribed) != 0 {
			t.Errorf("it was read: %+v", s)
		}
		aside, err := filepath.Glob(c.StateFile + ".unusable-*")
		if err != nil || len(aside) != 1 {
			t.Errorf("files = %q, %v; want the invalid file renamed", aside, err)
		}
		must(r.T, r.discovery.Publish(r.Context(), request("x")))
		advanceClock(time.Second)
		if _, err := os.Stat(c.StateFile); err != nil {
			t.Errorf("what is published is not kept: %v", err)
		}
	})
}

// TestRequestsAfterCloseAreRejected verifies that requests after the last write of the state file fail,
// because the next start would not know them.
func TestRequestsAfterCloseAreRejected(t *testing.T) {
	inSynctest(t, configWithStateFile(t), func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), request("x")))
		must(r.T, r.discovery.Subscribe(r.Context(), request("y")))
		r.end()
		for name, err := range map[string]error{
			"publishing":     r.discovery.Publish(r.Context(), request("z")),
			"unpublishing":   r.discovery.Unpublish(r.Context(), request("x")),
			"subscribing":    r.discovery.Subscribe(r.Context(), request("z")),
			"unsubscribing ": r.discovery.Unsubscribe(r.Context(), request("y")),
		} {
			if err == nil || errors.Is(err, dubbo.ErrPending) || errors.Is(err, dubbo.ErrNotFound) {
				t.Errorf("%s: %v, want the error that the process is shutting down", name, err)
			}
		}
	})
}

func TestStaleTempFilesAreRemoved(t *testing.T) {
	c := configWithStateFile(t)
	old, fresh := c.StateFile+".new-1", c.StateFile+".new-2"
	for _, path := range []string{old, fresh} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	must(t, os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)))
	newRig(t, c)
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v, want it removed", old, err)
	}
	if _, err := os.Stat(fresh); err != nil { // another process may be writing it
		t.Error(err)
	}
}

func TestFailedStateWriteIsRetried(t *testing.T) {
	c := configWithStateFile(t)
	dir := filepath.Dir(c.StateFile)
	c.StateFile = filepath.Join(dir, "file", "state.json")
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)) // not a directory
	inSynctest(t, c, func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), request("x")))
		advanceClock(time.Second)
		if n := r.discovery.Totals().StateFileFailures; n != 1 {
			t.Errorf("%d attempts failed, want 1", n)
		}
		must(r.T, os.Remove(filepath.Join(dir, "file")))
		advanceClock(time.Minute)
		if _, err := os.Stat(c.StateFile); err != nil {
			t.Error(err)
		}
	})
}

func TestRepeatedRequestWritesNothing(t *testing.T) {
	c := configWithStateFile(t)
	inSynctest(t, c, func(r *testEnv) {
		r.fake.report("y", "10.0.0.1")
		say := func() {
			must(r.T, r.discovery.Publish(r.Context(), request("x")))
			must(r.T, r.discovery.Subscribe(r.Context(), request("y")))
			advanceClock(time.Minute)
		}
		say()
		before, err := os.Stat(c.StateFile)
		must(r.T, err)
		say()
		after, err := os.Stat(c.StateFile)
		must(r.T, err)
		if !os.SameFile(before, after) {
			t.Error("the file was written again, and has nothing new")
		}
	})
}

func TestConfiguredCredentialsAreNotSaved(t *testing.T) {
	c := configWithStateFile(t)
	c.Registries = []config.RegistrySettings{{Type: "fake", Address: "h:1", Username: "u", Password: "secret"}}
	inSynctest(t, c, func(r *testEnv) {
		must(r.T, r.discovery.Publish(r.Context(), request("x")))
		if got := r.discovery.Status().Registries[0].Username; got != "u" {
			t.Errorf("the user is %q, want that of the configuration", got)
		}
		r.end()
		text, err := os.ReadFile(c.StateFile)
		must(r.T, err)
		if strings.Contains(string(text), "secret") {
			t.Errorf("the state file has the password: %s", text)
		}
	})
}

func TestChangedCredentialsKeepSnapshot(t *testing.T) {
	inSynctest(t, defaultConfig(), func(r *testEnv) {
		r.fake.report("x", "10.0.0.1")
		must(r.T, r.discovery.Subscribe(r.Context(), request("x")))
		r.fake.set(true, nil)
		q := request("x")
		q.Registry = dubbo.Registry{Type: "fake", Address: "h:1", Username: "u", Password: "p"}
		must(r.T, r.discovery.Subscribe(r.Context(), q))
		r.desired("x=10.0.0.1")
		r.fake.set(false, nil)
		synctest.Wait()
		r.desired("x=10.0.0.1")
		if r.fake.opened != 2 || len(r.fake.watchers) != 1 {
			t.Errorf("%d sessions, %d are watched; want two and one", r.fake.opened, len(r.fake.watchers))
		}
	})
}
