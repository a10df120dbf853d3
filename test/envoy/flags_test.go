// Package envoy compares Weft with Envoy: both run the same bootstrap file, clients send the same
// bytes to both, and the tests compare what the clients and the origins receive.
//
//	cases    the groups of cases: configurations in Envoy's syntax, and requests
//	client   sends the requests of a case
//	origin   records the requests that reach it
//	compare  compares the results, and names the differences that have a reason
//	wire     what clients and origins share
//
// TestEnvoy runs a selection of features. It is skipped without Envoy, which test/scripts/setup
// installs. "make interop-envoy" runs all features. The flags select features and print
// differences. They follow -args, because "go test" has its own -o:
//
//	go test ./test/envoy -run TestEnvoy -v -args -features '^cors$' -differences -o cors.json
package envoy

import (
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/weft-proxy/weft/test/subject"
)

// root is the root of the repository.
const root = "../.."

var (
	all         = flag.Bool("all", false, "run all features instead of a selection")
	features    = flag.String("features", "", "run the features whose names match this regular expression")
	caseID      = flag.String("case", "", "run only the case with this ID")
	differences = flag.Bool("differences", false, "print each difference without a name")
	output      = flag.String("o", "", "write the results to this file, in JSON; the path is relative to the root of the repository")
	update      = flag.Bool("update", false, "write docs/envoy.md and, after a run of all features, testdata/bars.json")
)

// envoyProgram returns the path of Envoy. It skips the test if there is none.
func envoyProgram(t *testing.T) string {
	t.Helper()
	installed, err := filepath.Abs(filepath.Join(root, ".tools", "envoy", "envoy", "_bin", "envoy"))
	if err != nil {
		t.Fatal(err)
	}
	path := cmp.Or(os.Getenv("WEFT_ENVOY"), installed)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no Envoy to compare with: %v; run test/scripts/setup, or set WEFT_ENVOY to the path of Envoy 1.40", err)
	}
	return path
}

// buildWeft returns the path of the Weft under test.
func buildWeft(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weft")
	if err := subject.Weft(root, path); err != nil {
		t.Fatal(err)
	}
	return path
}
