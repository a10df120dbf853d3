package envoy

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/compare"
	"github.com/weft-proxy/weft/test/ports"
)

// workers is the number of groups that run at the same time. They wait most of the time.
const workers = 8

// maxListeners is the number of groups that one pair of processes serves. Each group takes a port of
// each process, and the range of ports is small.
const maxListeners = 150

// selection matches the features that run without -all: many cases in a few seconds.
const selection = `^(match\.(prefix|path|headers|query)|h2\.match|vhost|cors|csrf|local_reply|strip_port)$`

func TestEnvoy(t *testing.T) {
	groups := selectGroups(t)
	free := ports.Envoy()
	paths := findPrograms(t)
	var results []*compare.Result
	var rejections []compare.Rejection
	for batch := range slices.Chunk(groups, maxListeners) {
		added, rejected := paths.compareGroups(t, batch, free)
		results, rejections = append(results, added...), append(rejections, rejected...)
	}
	for _, variant := range cases.PlaneVariants() {
		if *caseID == "" && pattern(t).MatchString(variant.Feature()) {
			added, more := paths.runPlane(t, variant, free)
			groups, results = append(groups, added...), append(results, more...)
		}
	}
	if len(groups) == 0 {
		t.Fatal("no feature matches")
	}
	report := compare.NewReport(groups, results, rejections)
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if *differences {
		if err := report.WriteDifferences(&table); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("\n%s", &table)
	if *output != "" {
		text, err := json.MarshalIndent(report, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		path := *output
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if *caseID == "" {
		checkBars(t, report)
	}
	if *caseID == "" && *all && *features == "" {
		checkAreas(t, report)
	}
}

// pattern returns the regular expression that selects features.
func pattern(t *testing.T) *regexp.Regexp {
	t.Helper()
	text := cmp.Or(*features, selection)
	if *all {
		text = cmp.Or(*features, ".")
	}
	match, err := regexp.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return match
}

// selectGroups returns the groups that the flags select.
func selectGroups(t *testing.T) []*cases.Group {
	t.Helper()
	match := pattern(t)
	var selected []*cases.Group
	for _, g := range cases.All() {
		if *caseID != "" {
			g.Cases = slices.DeleteFunc(g.Cases, func(c *cases.Case) bool { return c.ID != *caseID })
		} else if !match.MatchString(g.Feature) {
			continue
		}
		if len(g.Cases) > 0 {
			selected = append(selected, g)
		}
	}
	return selected
}

// compareGroups runs groups in both proxies.
func (paths programs) compareGroups(t *testing.T, groups []*cases.Group, free *ports.Range) (results []*compare.Result, rejections []compare.Rejection) {
	t.Helper()
	envoy, weftProxy := paths.newProxies(t, free)
	begin := time.Now()
	rejections, accepted := checkGroups(t, groups, envoy, weftProxy)
	t.Logf("checked %d groups in %.1f s", len(groups), time.Since(begin).Seconds())
	if len(accepted) > 0 {
		results = runGroups(t, accepted, envoy, weftProxy, free)
	}
	return results, rejections
}

// checkGroups returns the groups that a proxy rejects, and those that both accept.
func checkGroups(t *testing.T, groups []*cases.Group, envoy, weftProxy *proxy) (rejections []compare.Rejection, accepted []*cases.Group) {
	t.Helper()
	var pair sync.WaitGroup
	var byEnvoy, byWeft map[string]string
	pair.Go(func() { byEnvoy = envoy.check(t, groups) })
	pair.Go(func() { byWeft = weftProxy.check(t, groups) })
	pair.Wait()
	for _, g := range groups {
		if byEnvoy[g.Name] == "" && byWeft[g.Name] == "" {
			accepted = append(accepted, g)
			continue
		}
		rejections = append(rejections, compare.Rejection{
			Group: g.Name, Feature: g.Feature, Cases: len(g.Cases), Envoy: byEnvoy[g.Name], Weft: byWeft[g.Name],
		})
	}
	return rejections, accepted
}

// caseViews holds the views of a case.
type caseViews struct {
	group       *cases.Group
	c           *cases.Case
	envoy, weft compare.View
}

// runGroups starts the proxies, runs the groups, and compares the results.
func runGroups(t *testing.T, groups []*cases.Group, envoy, weftProxy *proxy, free *ports.Range) []*compare.Result {
	t.Helper()
	envoy.start(t, groups, free)
	weftProxy.start(t, groups, free)
	begin := time.Now()
	var together, alone []*caseViews
	var views []*caseViews
	for _, g := range groups {
		list := &together
		if slices.ContainsFunc(g.Cases, func(c *cases.Case) bool { return c.Alone }) {
			list = &alone
		}
		for _, c := range g.Cases {
			v := &caseViews{group: g, c: c}
			*list = append(*list, v)
			views = append(views, v)
		}
	}
	runAll(together, workers, envoy, weftProxy)
	runAll(alone, 1, envoy, weftProxy)
	t.Logf("ran %d cases in %.1f s", len(views), time.Since(begin).Seconds())
	envoyLog, weftLog := envoy.stop(t), weftProxy.stop(t)
	var results []*compare.Result
	for _, v := range views {
		v.envoy.AddLog(v.c, envoyLog[v.c.ID], envoy.normalizer)
		v.weft.AddLog(v.c, weftLog[v.c.ID], weftProxy.normalizer)
		results = append(results, compare.NewResult(v.group.Feature, v.c, v.envoy, v.weft))
	}
	return results
}

// runAll runs cases. Those of a group run in their order, and up to limit groups run at the same
// time. The two proxies run each case at the same time.
func runAll(views []*caseViews, limit int, envoy, weftProxy *proxy) {
	queue := make(chan []*caseViews)
	var pool sync.WaitGroup
	for range limit {
		pool.Go(func() {
			for group := range queue {
				for _, v := range group {
					var pair sync.WaitGroup
					pair.Go(func() { v.envoy = envoy.run(v.group, v.c) })
					pair.Go(func() { v.weft = weftProxy.run(v.group, v.c) })
					pair.Wait()
				}
			}
		})
	}
	for group := range chunkBy(views, func(v *caseViews) *cases.Group { return v.group }) {
		queue <- group
	}
	close(queue)
	pool.Wait()
}

// chunkBy yields the runs of elements with the same key.
func chunkBy[E any, K comparable](list []E, key func(E) K) func(yield func([]E) bool) {
	return func(yield func([]E) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && key(list[n]) == key(list[0]) {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}
