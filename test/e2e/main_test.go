// Package e2e holds the binary to what its documentation promises: it is built
// once, run as a process on loopback ports, and spoken to over sockets. Nothing
// here looks inside.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/test/subject"
)

// root is the checkout.
const root = "../.."

// binaries is where the binaries of this run are built.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weft-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	status := 1
	if _, err := plainBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir) // what stays is in the temporary directory
	os.Exit(status)
}

// plainBinary is the path of weft as users build it; with "go test -race", it is
// the checked one.
var plainBinary = sync.OnceValues(func() (string, error) {
	if invariants.Enabled {
		return checkedBinary()
	}
	return build("weft")
})

// checkedBinary is the path of weft with the race detector, poisoned buffers and
// counts of what is outstanding: a race or a double release ends it.
var checkedBinary = sync.OnceValues(func() (string, error) { return build("weft-race", "-race") })

func build(name string, flags ...string) (string, error) {
	path := filepath.Join(binaries, name)
	return path, subject.Weft(root, path, flags...)
}
