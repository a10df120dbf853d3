// Package e2e tests the weft binary against its documentation. The tests build the binary once, run
// it as a process on loopback ports, and talk to it over sockets.
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

// root is the root of the repository.
const root = "../.."

// binariesDir is the directory of the programs that this run builds.
var binariesDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weft-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binariesDir = dir
	status := 1
	if _, err := plainBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir) // the system cleans up its temporary directory
	os.Exit(status)
}

// plainBinary returns the path of weft as users build it. With "go test -race" it returns
// checkedBinary.
var plainBinary = sync.OnceValues(func() (string, error) {
	if invariants.Enabled {
		return checkedBinary()
	}
	return build("weft")
})

// checkedBinary returns the path of a weft with the race detector, poisoned buffers and leak
// counts. A race or a double release ends the process.
var checkedBinary = sync.OnceValues(func() (string, error) { return build("weft-race", "-race") })

func build(name string, flags ...string) (string, error) {
	path := filepath.Join(binariesDir, name)
	return path, subject.Weft(root, path, flags...)
}
