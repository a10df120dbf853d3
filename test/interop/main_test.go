// Package interop runs third-party consumers and providers of Apache Dubbo, SOFA and gRPC, first
// directly and then through two Wefts in a row, and verifies that the results are equal. README.md
// lists the programs and what the tests prove.
//
//	TestMain  builds the peers (cached in .tools/interop), enters a network namespace
//	          (build_test.go, kit, ../netns)
//	Test…     starts peers and Wefts, runs scenarios (peer_test.go, route_test.go)
//	compare   compares the results of both call paths with testdata (scenarios_test.go)
//	report    writes a table of the results (report_test.go)
//
// A test is skipped if a tool or a download is missing (a JDK, Maven Central). The skip names it.
package interop

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-proxy/weft/test/netns"
)

// root is the root of the repository.
const root = "../.."

var update = flag.Bool("update", false, "write the results of direct calls to testdata")

// results holds the outcomes of this run.
var results report

func TestMain(m *testing.M) {
	flag.Parse()
	if isListing() {
		os.Exit(m.Run())
	}
	if !netns.InNamespace() {
		if err := prepare(); err != nil {
			fail(err)
		}
		// Dubbo's server listens on every address, whatever its configuration. The peers wait most
		// of the time, so the tests can run in parallel.
		status, err := netns.RunInNamespace("-test.parallel=8")
		if err == nil {
			os.Exit(status)
		}
		fmt.Fprintf(os.Stderr, "interop: no network namespace (%v): the peers listen on this machine's addresses\n", err)
	} else if err := netns.LoopbackUp(); err != nil {
		fail(err)
	}
	status := m.Run()
	if testing.Verbose() {
		fmt.Print(&results, "\n", results.sums())
	}
	if err := results.write(cmp.Or(os.Getenv("WEFT_INTEROP_REPORT"), filepath.Join(root, "dist", "test", "interop.md"))); err != nil {
		fail(err)
	}
	os.Exit(status)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "interop:", err)
	os.Exit(1)
}

// isListing reports whether the run only lists tests.
func isListing() bool {
	list := flag.Lookup("test.list")
	return list != nil && list.Value.String() != ""
}
