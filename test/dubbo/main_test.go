// Package dubbo tests the discovery of Dubbo services through Weft with real programs only: Apache
// Dubbo 2.7 and 3.3 in Java as consumers and providers, ZooKeeper, and Weft as a process. Some
// applications have no registry client and tell their sidecar what they provide and call; the
// others use ZooKeeper directly.
//
//	TestMain   builds Weft and the peers (test/interop/kit), enters a network namespace
//	process    reads commands and writes reports          process_test.go
//	sidecar    Weft with the API of Dubbo services        sidecar_test.go
//	Test…      discovery, and calls during failures       sidecar_to_sidecar_test.go,
//	                                                      interface_discovery_test.go, loss_test.go
//
// A missing prerequisite (a JDK, Maven Central, ZooKeeper) skips the tests with a message. The
// program in scale measures many services.
package dubbo

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weft-proxy/weft/test/interop/kit"
	"github.com/weft-proxy/weft/test/netns"
	"github.com/weft-proxy/weft/test/subject"
)

const (
	// root is the root directory of the checkout.
	root = "../.."
	// host is the address of all processes. Dubbo does not register a provider at 127.0.0.1.
	host = "10.77.0.1"
)

// Environment variables that the process that builds the programs sets for the process that tests.
const (
	weftEnv    = "WEFT_DUBBO_WEFT"    // path of the program
	javaEnv    = "WEFT_DUBBO_JAVA"    // directory of the Java peers
	problemEnv = "WEFT_DUBBO_PROBLEM" // why the tests cannot run
)

func TestMain(m *testing.M) {
	flag.Parse()
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		os.Exit(m.Run())
	}
	if netns.InNamespace() {
		if err := errors.Join(netns.LoopbackUp(), addHost(host)); err != nil {
			fail(err)
		}
		os.Exit(m.Run())
	}
	if err := prepare(); err != nil {
		fail(err)
	}
	status, err := netns.RunInNamespace()
	if err == nil {
		os.Exit(status)
	}
	setEnv(problemEnv, fmt.Sprintf("no network namespace: %v", err))
	os.Exit(m.Run())
}

// addHost adds an address to the loopback interface.
func addHost(address string) error {
	out, err := exec.Command("ip", "address", "add", address+"/32", "dev", "lo").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip address add %s: %w: %s", address, err, out)
	}
	return nil
}

// prepare builds the programs that the tests run.
func prepare() error {
	tools, err := filepath.Abs(filepath.Join(root, ".tools", "interop"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return err
	}
	weft := filepath.Join(tools, "weft-dubbo")
	if err := subject.Weft(root, weft); err != nil {
		return err
	}
	setEnv(weftEnv, weft)
	setEnv("DUBBO_IP_TO_REGISTRY", host) // read by Dubbo
	if _, err := exec.LookPath("ip"); err != nil {
		setEnv(problemEnv, "no ip(8) (Debian: iproute2)")
	}
	dir, err := kit.Java().Get(filepath.Join(root, "test", "interop"), tools)
	var missing *kit.MissingError
	if errors.As(err, &missing) {
		setEnv(problemEnv, missing.Reason)
		return nil
	}
	setEnv(javaEnv, dir)
	return err
}

// setEnv sets an environment variable.
func setEnv(key, value string) {
	if err := os.Setenv(key, value); err != nil {
		fail(err)
	}
}

// skipUnlessReady skips the test if it cannot run.
func skipUnlessReady(t *testing.T) {
	t.Helper()
	if problem := os.Getenv(problemEnv); problem != "" {
		t.Skip(problem)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "test/dubbo:", err)
	os.Exit(1)
}
