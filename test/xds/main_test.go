// Package xds holds Weft to what control planes ask of it: go-control-plane's server and
// cache in this process, and what a real istiod sent, against Weft as a process, in both
// forms of the protocol.
//
//	TestUpdates…   what changes is in force, nothing fails meanwhile   updates_test.go
//	TestFlood      200 updates a second                                flood_test.go
//	TestRestart    a control plane that is away, and back              restart_test.go
//	TestRefusal    what is wrong is refused by name                    refusal_test.go
//	TestCost       an update costs what it changes                     cost_test.go
//	TestIstiod     a sidecar of Istio's                                istiod_test.go
//	TestHarness    go-control-plane's own harness                      harness_test.go
package xds

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
)

// root is the checkout.
const root = "../.."

// binaries is where this run builds programs.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weft-xds-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	status := m.Run()
	_ = os.RemoveAll(dir) // what stays is in the temporary directory
	os.Exit(status)
}

// weftBinary is the path of weft as users build it; with "go test -race", of the checked
// one.
var weftBinary = sync.OnceValues(func() (string, error) {
	if err := dependOnSources(); err != nil {
		return "", err
	}
	if invariants.Enabled {
		return build("weft", root, "./cmd/weft", "-race")
	}
	return build("weft", root, "./cmd/weft")
})

// build builds a package of the module in dir.
func build(name, dir, pkg string, flags ...string) (string, error) {
	path := filepath.Join(binaries, name)
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, pkg)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// dependOnSources looks at Weft's sources, so that the cache of test results knows that
// these tests are about them.
func dependOnSources() error {
	for _, dir := range []string{"cmd", "pkg", "internal", "go.mod", "go.sum"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // an editor's
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var lastHost atomic.Uint32

// newHost returns an address of the loopback device that is one test's: all of its ports
// are free, whatever runs beside it.
func newHost() string {
	return fmt.Sprintf("127.31.%d.%d", os.Getpid()%256, 1+lastHost.Add(1)%254)
}
