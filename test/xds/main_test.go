// Package xds tests Weft with control planes: go-control-plane's server and cache in this process,
// and captured responses of a real istiod. Weft runs as a process, with the state-of-the-world and
// the delta protocol.
//
//	TestUpdates                     updates become active, no request fails      updates_test.go
//	TestFlood                       200 updates per second                       flood_test.go
//	TestControlPlaneRestart         the control plane restarts                   restart_test.go
//	TestRejectedListenerIsNACKed    a NACK names the invalid field               nack_test.go
//	TestCost                        the CPU cost of an update                    cost_test.go
//	TestLoadReportsMatchRequests    load reports equal the requests              load_test.go
//	TestClientStatusOverUnixSocket  client status over gRPC                      load_test.go
//	TestIstiod                      an Istio sidecar                             istiod_test.go
//	TestIstioRequestMetrics         Istio's metrics of requests                  istio_stats_test.go
//	TestIstioConnectionMetrics      Istio's metrics of TCP connections           istio_stats_test.go
//	TestOnDemand                    resources on demand                          on_demand_test.go
//	TestOnDemandConcurrentCalls     the same for Dubbo calls and TCP             on_demand_calls_test.go
//	TestSecretsRotateUnderLoad      certificates from SDS change                 secrets_test.go
//	TestECDSAndRTDS                 filter configurations and runtime layers     runtime_test.go
//	TestCacheSurvivesRestart        the xDS cache                                cache_test.go
//	TestEnvoyBootstrap              static resources of a bootstrap              static_test.go
//	TestHarness                     go-control-plane's test harness              harness_test.go
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

// root is the root directory of the checkout.
const root = "../.."

// binariesDir is the directory of the programs that this run builds.
var binariesDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weft-xds-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binariesDir = dir
	status := m.Run()
	_ = os.RemoveAll(dir) // the system cleans up what remains
	os.Exit(status)
}

// weftBinary builds weft as users do and returns its path. If the tests run with "go test -race",
// it builds weft with the race detector and invariant checks.
var weftBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binariesDir, "weft")
	return path, subject.Weft(root, path, subject.RaceFlags()...)
})

var lastHost atomic.Uint32

// newHost returns a loopback address for one test, on which all ports are free.
func newHost() string {
	return fmt.Sprintf("127.31.%d.%d", os.Getpid()%256, 1+lastHost.Add(1)%254)
}
