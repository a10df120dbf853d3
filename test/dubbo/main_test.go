// Package dubbo proves that Dubbo services are found through Weft, with real parts alone:
// Apache Dubbo 2.7 and 3.3 in Java as consumers and providers, ZooKeeper, and Weft as a
// process. One half has no registry client and says to its sidecar what it provides and
// calls; the other half uses ZooKeeper itself.
//
//	TestMain   builds Weft and the peers (test/interop/kit), enters a network of its own
//	process    a program that speaks for itself                 process_test.go
//	sidecar    Weft with the API of Dubbo services              sidecar_test.go
//	Test…      who finds whom, and what is lost when parts are  way_test.go, plain_test.go, loss_test.go
//
// What cannot be had (a JDK, Maven Central, ZooKeeper) is a skip that names it. The program
// in scale measures many services.
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
	// root is the checkout.
	root = "../.."
	// host is the address of everybody. Dubbo registers no provider at 127.0.0.1.
	host = "10.77.0.1"
)

// Keys of what the process that builds tells the one that tests.
const (
	weftKey    = "WEFT_DUBBO_WEFT"    // the program
	javaKey    = "WEFT_DUBBO_JAVA"    // the folder of the peers
	problemKey = "WEFT_DUBBO_PROBLEM" // why nothing can be tested
)

func TestMain(m *testing.M) {
	flag.Parse()
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		os.Exit(m.Run())
	}
	if netns.Inside() {
		if err := errors.Join(netns.LoopbackUp(), addHost(host)); err != nil {
			fail(err)
		}
		os.Exit(m.Run())
	}
	if err := prepare(); err != nil {
		fail(err)
	}
	status, err := netns.Again()
	if err == nil {
		os.Exit(status)
	}
	tell(problemKey, fmt.Sprintf("no network namespace: %v", err))
	os.Exit(m.Run())
}

// addHost gives the loopback interface one more address.
func addHost(address string) error {
	out, err := exec.Command("ip", "address", "add", address+"/32", "dev", "lo").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip address add %s: %w: %s", address, err, out)
	}
	return nil
}

// prepare builds what the tests run.
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
	tell(weftKey, weft)
	tell("DUBBO_IP_TO_REGISTRY", host) // for Dubbo
	if _, err := exec.LookPath("ip"); err != nil {
		tell(problemKey, "no ip(8) (Debian: iproute2)")
	}
	dir, err := kit.Java().Get(filepath.Join(root, "test", "interop"), tools)
	var missing *kit.MissingError
	if errors.As(err, &missing) {
		tell(problemKey, missing.What)
		return nil
	}
	tell(javaKey, dir)
	return err
}

// tell sets a variable of the environment.
func tell(key, value string) {
	if err := os.Setenv(key, value); err != nil {
		fail(err)
	}
}

// begin skips the test where it cannot be done.
func begin(t *testing.T) {
	t.Helper()
	if problem := os.Getenv(problemKey); problem != "" {
		t.Skip(problem)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "test/dubbo:", err)
	os.Exit(1)
}
