package memory_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/memory"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
)

func TestContractWithinProcess(t *testing.T) {
	s := memory.NewServer()
	registrytest.Run(t, registrytest.Fixture{
		Open:          s.Open,
		Options:       func(t *testing.T) registry.Options { return registry.Options{Address: t.Name()} },
		Authoritative: true,
	})
}

// TestContractOfDirectory opens each session on its own Server, as separate processes do.
func TestContractOfDirectory(t *testing.T) {
	registrytest.Run(t, registrytest.Fixture{
		Open: func(o registry.Options) (registry.Registry, error) { return memory.NewServer().Open(o) },
		Options: func(t *testing.T) registry.Options {
			return registry.Options{Address: "file:" + filepath.Join(t.TempDir(), "services"), Log: slog.New(slog.DiscardHandler)}
		},
		Authoritative: true,
	})
}

func TestInvalidAddresses(t *testing.T) {
	for _, address := range []string{"file:", "file:relative"} {
		if _, err := memory.NewServer().Open(registry.Options{Address: address}); err == nil || !strings.Contains(err.Error(), "slash") {
			t.Errorf("%q: got %v, want an error about the missing leading slash", address, err)
		}
	}
}

// sharedDir is a shared directory, and the snapshots that a subscription to it delivers.
type sharedDir struct {
	path      string
	snapshots chan registry.Snapshot
}

func newSharedDir(t *testing.T) *sharedDir {
	d := &sharedDir{path: filepath.Join(t.TempDir(), "services"), snapshots: make(chan registry.Snapshot, 16)}
	stop := d.open(t).Subscribe(registry.Service{Interface: "x"}, func(snap registry.Snapshot) { d.snapshots <- snap })
	t.Cleanup(stop)
	d.next(t, "")
	return d
}

func (d *sharedDir) open(t *testing.T) registry.Registry {
	t.Helper()
	r, err := memory.NewServer().Open(registry.Options{Address: "file:" + d.path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// next waits for the next snapshot, and compares its providers.
func (d *sharedDir) next(t *testing.T, want string) registry.Snapshot {
	t.Helper()
	select {
	case snap := <-d.snapshots:
		var hosts []string
		for _, u := range snap.Providers {
			hosts = append(hosts, u.Host)
		}
		if got := strings.Join(hosts, " "); got != want {
			t.Fatalf("providers = %q, want %q", got, want)
		}
		return snap
	case <-time.After(10 * time.Second):
		t.Fatalf("no snapshot, want the providers %q", want)
	}
	panic("not reached")
}

// writeUnlockedFile creates the urls file of a killed process, without a lock.
func (d *sharedDir) writeUnlockedFile(t *testing.T, id, host string) {
	t.Helper()
	u, err := registry.Parse("dubbo://" + host + ":1/x")
	if err != nil {
		t.Fatal(err)
	}
	text := "weft dubbo 1\n" + u.Encoded() + "\n"
	if err := os.WriteFile(filepath.Join(d.path, id+".urls"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKilledProcessProvidesNothing(t *testing.T) {
	d := newSharedDir(t)
	d.writeUnlockedFile(t, "1-dead", "10.0.0.1")
	if snap := d.next(t, ""); snap.Authoritative {
		t.Error("the snapshot is authoritative although the provider did not unregister")
	}
	u, err := registry.Parse("dubbo://10.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	r := d.open(t)
	if err := r.Register(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if snap := d.next(t, "10.0.0.1"); !snap.Authoritative {
		t.Error("the snapshot is not authoritative although the provider is registered again")
	}
	if err := r.Unregister(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	d.next(t, "")
}

func TestRemovedDirectoryIsRecreated(t *testing.T) {
	d := newSharedDir(t)
	u, err := registry.Parse("dubbo://10.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.open(t).Register(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	d.next(t, "10.0.0.1")
	if err := os.RemoveAll(d.path); err != nil {
		t.Fatal(err)
	}
	// The other session may read the directory before it is rewritten. It then reports a snapshot
	// without the provider, which must not be authoritative.
	deadline := time.After(10 * time.Second)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := os.Stat(d.path); err == nil {
			if files, err := filepath.Glob(filepath.Join(d.path, "*.urls")); err == nil && len(files) == 2 {
				break
			}
		}
		select {
		case snap := <-d.snapshots:
			if len(snap.Providers) == 0 && snap.Authoritative {
				t.Fatal("the snapshot of a lost directory is authoritative")
			}
		case <-deadline:
			t.Fatal("the directory was not written again")
		case <-ticker.C:
		}
	}
}

func TestInvalidFileIsSkipped(t *testing.T) {
	d := newSharedDir(t)
	if err := os.WriteFile(filepath.Join(d.path, "2-x.urls"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := registry.Parse("dubbo://10.0.0.2:1/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.open(t).Register(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	d.next(t, "10.0.0.2")
}
