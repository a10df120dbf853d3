package inspect

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/pages.txtar and the table of endpoints in docs/observability.md")

const observabilityDoc = "../../docs/observability.md"

// TestObservabilityDocHasEndpoints verifies that the table of endpoints in docs/observability.md
// matches the code. Package proxy checks the other tables of the page.
func TestObservabilityDocHasEndpoints(t *testing.T) {
	page, err := os.ReadFile(observabilityDoc)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin endpoints -->\n", "<!-- end endpoints -->"
	before, rest, hasBegin := strings.Cut(string(page), begin)
	_, after, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s has no %q and %q", observabilityDoc, begin, end)
	}
	want := before + begin + endpointTable() + end + after
	if *update {
		if err := os.WriteFile(observabilityDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("docs/observability.md differs from the code; write it with: go test ./pkg/inspect -run Observability -update\n- code + page:\n%s", diff)
	}
}

func endpointTable() string {
	var b strings.Builder
	b.WriteString("| | Path | Response |\n|---|---|---|\n")
	for _, e := range Endpoints(Sources{}) {
		fmt.Fprintf(&b, "| %s | `%s` | %s |\n", e.Method, e.Path, e.Doc)
	}
	return b.String()
}

// TestObservabilityDocPagesExist verifies that the admin port serves the paths in
// docs/observability.md.
func TestObservabilityDocPagesExist(t *testing.T) {
	page, err := os.ReadFile(observabilityDoc)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{"/": true}
	for _, e := range Endpoints(Sources{}) {
		pages[e.Route()] = true
	}
	for _, match := range regexp.MustCompile(`http://127\.0\.0\.1:34901(/[a-z_/]*)`).FindAllStringSubmatch(string(page), -1) {
		if !pages[strings.TrimSuffix(match[1], "profile")] {
			t.Errorf("the admin port has no page %s", match[1])
		}
	}
}
