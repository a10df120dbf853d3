package service

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"weak"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// newPickerCache returns a set of clusters and a picker cache for it.
func newPickerCache(t *testing.T) (*upstream.Set, *pickerCache) {
	t.Helper()
	set := upstream.NewSet(upstream.Options{Policies: map[config.LBPolicy]balance.NewFunc{config.Random: balance.Random}})
	t.Cleanup(set.Close)
	return set, &pickerCache{find: set.Find, newPicker: func(c *upstream.Cluster) *upstream.ClusterPicker { return &upstream.ClusterPicker{Cluster: c} }}
}

// configure replaces the clusters of the set with clusters of these names.
func configure(t *testing.T, set *upstream.Set, names ...string) {
	t.Helper()
	var clusters []*config.Cluster
	for _, name := range names {
		clusters = append(clusters, &config.Cluster{Name: name, LBPolicy: config.Random, Hosts: []config.Host{{Address: "127.0.0.1:1", Weight: 1}}})
	}
	change, err := set.Prepare(clusters)
	if err != nil {
		t.Fatal(err)
	}
	if err := change.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	change.Commit()
	change.DrainRemoved()
}

func cacheLen(c *pickerCache) (n int) {
	c.pickers.Range(func(any, any) bool { n++; return true })
	return n
}

func TestPickerIsCachedPerCluster(t *testing.T) {
	set, cache := newPickerCache(t)
	configure(t, set, "a", "b")
	if picker := cache.get("a"); picker == nil || picker.Cluster != set.Find("a") || picker != cache.get("a") || picker == cache.get("b") {
		t.Errorf("pickers of a: %v, then %v; of b: %v, want one picker of a, twice, and another one of b", picker, cache.get("a"), cache.get("b"))
	}
	configure(t, set, "b")
	if picker := cache.get("a"); picker != nil {
		t.Errorf("removed cluster: picker %v, want nil", picker)
	}
	if n := testing.AllocsPerRun(100, func() { cache.get("b") }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestRemovedClustersLeaveTheCache(t *testing.T) {
	set, cache := newPickerCache(t)
	var removed []weak.Pointer[upstream.Cluster]
	for i := range 500 {
		name := fmt.Sprint("c", i)
		configure(t, set, "stays", name)
		cache.get("stays")
		removed = append(removed, weak.Make(cache.get(name).Cluster))
		if n := cacheLen(cache); n > minCachedPickers {
			t.Fatalf("after %d clusters the cache has %d entries, %d clusters exist; want at most %d entries", i, n, 2, minCachedPickers)
		}
	}
	configure(t, set, "stays")
	runtime.GC()
	alive := 0
	for _, ref := range removed {
		if ref.Value() != nil {
			alive++
		}
	}
	if alive > minCachedPickers {
		t.Errorf("%d of %d removed clusters were not collected, want at most %d", alive, len(removed), minCachedPickers)
	}
}

func TestPickerCacheIsBounded(t *testing.T) {
	set, cache := newPickerCache(t)
	var names []string
	for i := range 2*maxCachedPickers + 10 {
		names = append(names, fmt.Sprint("c", i))
	}
	configure(t, set, names...)
	for range 2 {
		for _, name := range names {
			if picker := cache.get(name); picker == nil || picker.Cluster != set.Find(name) {
				t.Fatalf("picker of %s: %v, want one of that cluster", name, picker)
			}
			if n := cacheLen(cache); n > maxCachedPickers {
				t.Fatalf("the cache has %d entries, want at most %d", n, maxCachedPickers)
			}
		}
	}
}
