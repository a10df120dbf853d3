// Package xds holds Weft to what control planes ask of it: go-control-plane's server and
// cache in this process, and what a real istiod sent, against Weft as a process, in both
// forms of the protocol.
//
//	TestUpdates…   what changes is in force, nothing fails meanwhile   updates_test.go
//	TestFlood      200 updates a second                                flood_test.go
//	TestRestart    a control plane that is away, and back              restart_test.go
//	TestRefusal    what is wrong is refused by name                    refusal_test.go
//	TestCost       an update costs what it changes                     cost_test.go
//	TestLoad…      reports of load come to what was asked              load_test.go
//	TestTools…     what tools are told by gRPC                         load_test.go
//	TestIstiod     a sidecar of Istio's                                istiod_test.go
//	TestHarness    go-control-plane's own harness                      harness_test.go
package xds

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/test/subject"
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
	path := filepath.Join(binaries, "weft")
	return path, subject.Weft(root, path, subject.Checked()...)
})

var lastHost atomic.Uint32

// newHost returns an address of the loopback device that is one test's: all of its ports
// are free, whatever runs beside it.
func newHost() string {
	return fmt.Sprintf("127.31.%d.%d", os.Getpid()%256, 1+lastHost.Add(1)%254)
}
