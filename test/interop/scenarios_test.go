package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// pair is a consumer and a provider that run scenarios.
type pair struct {
	consumer, provider string // with their versions
	golden             *golden
}

func (p pair) String() string { return p.consumer + " to " + p.provider }

// golden holds the expected results of scenarios between two peers: a file of testdata, with one
// part for each scenario.
type golden struct {
	path string

	mu      sync.Mutex
	archive txtar.Archive // guarded by mu
}

// openGolden reads the file of a pair. With -update, it writes the file when the test ends.
func openGolden(t *testing.T, consumer, provider string) *golden {
	t.Helper()
	g := &golden{path: filepath.Join("testdata", consumer+"-to-"+provider+".txtar")}
	if *update {
		t.Cleanup(func() {
			if err := os.WriteFile(g.path, txtar.Format(&g.archive), 0o644); err != nil {
				t.Error(err)
			}
		})
		return g
	}
	archive, err := txtar.ParseFile(g.path)
	if err != nil {
		t.Fatal(err)
	}
	g.archive = *archive
	return g
}

// expectedText returns the expected text of a scenario. With -update, the first result is the
// expected text.
func (g *golden) expectedText(name, got string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	if *update {
		g.archive.Files = append(g.archive.Files, txtar.File{Name: name, Data: []byte(got)})
		return got
	}
	return ""
}

// target is how a consumer reaches a provider: directly or through sidecars.
type target struct {
	pair     pair
	port     int      // of the provider
	sidecars sidecars // the first port leads to the provider
}

// runScenario runs a scenario directly and through Wefts. label is the name of the scenario in
// testdata and in the report.
func (tgt target) runScenario(t *testing.T, consumer *peer, label, scenario, options string) {
	t.Helper()
	tgt.pair.compare(t, label, direct, consumer.runScenario(t, fmt.Sprintf("%s %d %s", scenario, tgt.port, options), waitTimeout))
	if tgt.sidecars.problem != "" {
		tgt.pair.skipSubtest(t, label, twoWefts, tgt.sidecars.problem)
		return
	}
	tgt.runThroughWefts(t, consumer, label, scenario, options)
}

// runThroughWefts runs a scenario through two Wefts. Tests call it directly if Weft changes the
// result; testdata then has the changed result.
func (tgt target) runThroughWefts(t *testing.T, consumer *peer, label, scenario, options string) {
	t.Helper()
	if tgt.sidecars.problem != "" {
		tgt.pair.skipSubtest(t, label, twoWefts, tgt.sidecars.problem)
		return
	}
	calls := consumer.runScenario(t, fmt.Sprintf("%s %d %s", scenario, tgt.sidecars.ports[0], options), waitTimeout)
	tgt.pair.compare(t, label, twoWefts, calls)
}

// Bounds on the duration of the call "too late" in the scenario "timeout". Its timeout is 400 ms,
// and the response comes after 1 s. Dubbo checks timeouts every 30 ms.
const (
	timeoutFloor   = 350 * time.Millisecond
	timeoutCeiling = 900 * time.Millisecond
)

// compare runs a subtest that compares the calls of a call path with testdata, which is the same
// for both paths.
func (p pair) compare(t *testing.T, scenario string, path callPath, calls []call) {
	t.Helper()
	t.Run(scenario+"/"+p.String()+"/"+string(path), func(t *testing.T) {
		defer results.add(t, scenario, p, path)
		var got strings.Builder
		for _, c := range calls {
			got.WriteString(c.text + "\n")
		}
		if diff := cmp.Diff(p.golden.expectedText(scenario, got.String()), got.String()); diff != "" {
			t.Errorf("differs from testdata (-want +got):\n%s", diff)
		}
		for _, c := range calls {
			if c.Name == "too late" && (c.Elapsed < timeoutFloor || c.Elapsed > timeoutCeiling) {
				t.Errorf("a call timed out after %v, want from %v to %v", c.Elapsed, timeoutFloor, timeoutCeiling)
			}
		}
	})
}

// skipSubtest runs a subtest that is skipped, for a scenario that Weft does not support.
func (p pair) skipSubtest(t *testing.T, scenario string, path callPath, problem string) {
	t.Helper()
	t.Run(scenario+"/"+p.String()+"/"+string(path), func(t *testing.T) {
		defer results.add(t, scenario, p, path)
		t.Skip("not supported by Weft yet: " + problem)
	})
}
