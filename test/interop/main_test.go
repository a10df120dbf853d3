// Package interop lets other people's programs talk to each other, first
// directly and then through two Wefts in a row, and holds the results to be
// equal: consumers and providers of Apache Dubbo, SOFA and gRPC. README.md lists them, and
// what is proven.
//
//	TestMain     builds the peers (cached in .tools/interop), enters a network of its own   build_test.go, kit, ../netns
//	Test…        starts peers and Wefts, plays scenarios                                    peer_test.go, route_test.go
//	play         compares: direct with testdata, through with direct                        play_test.go
//	report       what was played, as a table                                                report_test.go
//
// What cannot be had (a JDK, Maven Central) is a skip that names it.
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

// root is the checkout.
const root = "../.."

var update = flag.Bool("update", false, "write what direct calls come to into testdata")

// results is what this run has played.
var results report

func TestMain(m *testing.M) {
	flag.Parse()
	if isListing() {
		os.Exit(m.Run())
	}
	if !netns.Inside() {
		if err := prepare(); err != nil {
			fail(err)
		}
		// Dubbo's server listens on every address, whatever it is told. Most of the time the
		// peers wait; they may do it together.
		status, err := netns.Again("-test.parallel=8")
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

// isListing says whether nothing will run.
func isListing() bool {
	list := flag.Lookup("test.list")
	return list != nil && list.Value.String() != ""
}
