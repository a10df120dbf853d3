package upstream

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// labeledCluster returns a cluster of hosts "0" to "6": versions 1, 2 and 3, each in the stages
// test and prod; the last host has no labels.
func labeledCluster(subsets config.Subsets) *config.Cluster {
	c := clusterOf(7, config.RoundRobin, func(i int, h *config.Host) {
		if i < 6 {
			h.Metadata = map[string]string{"version": strconv.Itoa(i/2 + 1), "stage": []string{"test", "prod"}[i%2]}
		}
	})
	c.Subsets = subsets
	return c
}

// reachedHosts returns the hosts of exchanges with these labels of the route and, if metadata is
// not empty, of a filter.
func reachedHosts(c *Cluster, route, metadata map[string]string) string {
	var m protocol.Metadata
	for name, value := range metadata {
		m.Set(protocol.BalancerNamespace, name, value)
	}
	m.Set("other", "version", "9")
	labels := subset.NewLabels(route)
	hosts := [7]bool{}
	for range 100 {
		h := c.state.Load().hostsFor(subset.Request{Route: labels, Metadata: &m}).pick(0, nil, 0)
		if h == nil {
			return "none"
		}
		i, _ := strconv.Atoi(h.Name())
		hosts[i] = true
	}
	var names strings.Builder
	for i, used := range hosts {
		if used {
			names.WriteString(strconv.Itoa(i))
		}
	}
	return names.String()
}

func TestSubsets(t *testing.T) {
	type labels = map[string]string
	selectors := [][]string{{"version"}, {"stage", "version"}, {"version"}}
	anyEndpoint := config.Subsets{Selectors: selectors, Fallback: config.AnyEndpoint}
	noFallback := config.Subsets{Selectors: selectors}
	defaultSubset := config.Subsets{Selectors: selectors, Fallback: config.DefaultSubset, Default: labels{"stage": "prod"}}
	tests := []struct {
		name     string
		subsets  config.Subsets
		route    labels
		metadata labels
		want     string
	}{
		{"one label", noFallback, labels{"version": "2"}, nil, "23"},
		{"two labels", noFallback, labels{"version": "2", "stage": "prod"}, nil, "3"},
		{"labels that no selector has", noFallback, labels{"stage": "prod"}, nil, "none"},
		{"value without hosts", noFallback, labels{"version": "9"}, nil, "none"},
		{"more labels than a selector", anyEndpoint, labels{"version": "2", "stage": "prod", "x": "y"}, nil, "0123456"},
		{"no labels, no fallback", noFallback, nil, nil, "none"},
		{"no labels, any endpoint", anyEndpoint, nil, nil, "0123456"},
		{"no labels, default subset", defaultSubset, nil, nil, "135"},
		{"value without hosts, default subset", defaultSubset, labels{"version": "9"}, nil, "135"},
		{"matching subset takes precedence over the default", defaultSubset, labels{"version": "1"}, nil, "01"},
		{"default subset without hosts", config.Subsets{Selectors: selectors, Fallback: config.DefaultSubset, Default: labels{"stage": "x"}}, nil, nil, "none"},
		{"default subset of all hosts", config.Subsets{Selectors: selectors, Fallback: config.DefaultSubset}, nil, nil, "0123456"},
		{"no selectors", config.Subsets{}, labels{"version": "2"}, nil, "0123456"},
		{"labels of a filter", noFallback, nil, labels{"version": "3"}, "45"},
		{"filter labels take precedence", noFallback, labels{"version": "1", "stage": "test"}, labels{"version": "3"}, "4"},
		{"filter and route labels", noFallback, labels{"version": "1"}, labels{"stage": "prod"}, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newTestCluster(t, newFakeConnector(), labeledCluster(tt.subsets))
			if got := reachedHosts(c, tt.route, tt.metadata); got != tt.want {
				t.Errorf("hosts %s, want %s", got, tt.want)
			}
		})
	}
}

func TestSubsetsFollowHostChanges(t *testing.T) {
	subsets := config.Subsets{Selectors: [][]string{{"version"}}}
	s, c := newTestCluster(t, newFakeConnector(), labeledCluster(subsets))
	next := labeledCluster(subsets)
	next.Hosts[0].Metadata = map[string]string{"version": "2"}
	apply(t, s, next)
	if got := reachedHosts(c, map[string]string{"version": "2"}, nil); got != "023" {
		t.Errorf("hosts of version 2 = %s, want 023", got)
	}
}

// TestSubsetsHaveTheirOwnHealth verifies that priorities and panic of a subset depend only on its
// own hosts.
func TestSubsetsHaveTheirOwnHealth(t *testing.T) {
	cfg := labeledCluster(config.Subsets{Selectors: [][]string{{"version"}}, Fallback: config.AnyEndpoint})
	for _, i := range []int{1, 3} {
		cfg.Hosts[i].Priority = 1
	}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	if got := reachedHosts(c, map[string]string{"version": "1"}, nil); got != "0" {
		t.Errorf("hosts = %s, want 0 by priority", got)
	}
	c.markDown(0)
	if got := reachedHosts(c, map[string]string{"version": "1"}, nil); got != "1" {
		t.Errorf("hosts = %s while 0 is down, want 1", got)
	}
	if got := reachedHosts(c, map[string]string{"version": "2"}, nil); got != "2" {
		t.Errorf("hosts of another version = %s, want 2", got)
	}
	c.markDown(1)
	if got := reachedHosts(c, map[string]string{"version": "1"}, nil); got != "01" {
		t.Errorf("hosts = %s while both are down, want both by panic", got)
	}
}

func TestLabelsSelectSubset(t *testing.T) {
	_, c := newTestCluster(t, newFakeConnector(), labeledCluster(config.Subsets{Selectors: [][]string{{"version", "stage"}}}))
	x := newExchange()
	picker := &ClusterPicker{Cluster: c, Labels: subset.NewLabels(map[string]string{"version": "3", "stage": "test"})}
	if err := x.Serve(t.Context(), picker); err != nil {
		t.Fatal(err)
	}
	wantList(t, "attempts", attempts(x), "4:200")
	finish(x)
	wantFault(t, c, protocol.NoHealthyHost)
}

func TestSlowStart(t *testing.T) {
	tests := []struct {
		name  string
		slow  config.SlowStart
		age   time.Duration
		share float64 // share of a new host next to an old one
	}{
		{"minimum weight of a new host", config.SlowStart{Duration: time.Minute, MinWeightPercent: 10}, 0, .1 / 1.1},
		{"half of the time", config.SlowStart{Duration: time.Minute, MinWeightPercent: 10}, 30 * time.Second, .5 / 1.5},
		{"aggression", config.SlowStart{Duration: time.Minute, Aggression: 2}, 15 * time.Second, .5 / 1.5},
		{"end of slow start", config.SlowStart{Duration: time.Minute}, time.Minute, .5},
		{"no slow start", config.SlowStart{}, 0, .5},
	}
	for _, policy := range []config.LBPolicy{config.RoundRobin, config.WeightedRoundRobin, config.Random} {
		for _, tt := range tests {
			t.Run(string(policy)+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeConnector()
					oneHost := clusterOf(1, policy, nil)
					oneHost.SlowStart = tt.slow
					s, c := newTestCluster(t, f, oneHost)
					time.Sleep(time.Hour)
					twoHosts := clusterOf(2, policy, nil)
					twoHosts.SlowStart = tt.slow
					apply(t, s, twoHosts)
					time.Sleep(tt.age)
					picks := pickCounts(c, 10_000)
					wantShare(t, picks, []int{1}, tt.share)
				})
			})
		}
	}
}

func TestSlowStartRestartsAfterRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clusterOf(2, config.Random, nil)
		cfg.SlowStart = config.SlowStart{Duration: time.Minute, MinWeightPercent: 10}
		_, c := newTestCluster(t, newFakeConnector(), cfg)
		time.Sleep(time.Hour)
		c.markDown(1)
		c.markUp(1)
		wantShare(t, pickCounts(c, 10_000), []int{1}, .1/1.1)
		time.Sleep(time.Minute)
		wantShare(t, pickCounts(c, 10_000), []int{1}, .5)
	})
}

func TestHashPoliciesIgnoreSlowStart(t *testing.T) {
	cfg := clusterOf(5, config.Maglev, nil)
	cfg.SlowStart = config.SlowStart{Duration: time.Hour, MinWeightPercent: 1}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	for hash := range uint64(500) {
		first := c.state.Load().defaultSet.pick(hash+1, nil, 0)
		for range 5 {
			if next := c.state.Load().defaultSet.pick(hash+1, nil, 0); next != first {
				t.Fatalf("hash %d goes to %s, then to %s", hash+1, first.Name(), next.Name())
			}
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	var m protocol.Metadata
	m.Set(protocol.BalancerNamespace, "version", "2")
	labels := subset.NewLabels(map[string]string{"stage": "prod", "version": "1"})
	cfg := labeledCluster(config.Subsets{Selectors: [][]string{{"version", "stage"}}})
	cfg.SlowStart = config.SlowStart{Duration: time.Hour, MinWeightPercent: 10}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	if n := testing.AllocsPerRun(100, func() { c.state.Load().hostsFor(subset.Request{Route: labels, Metadata: &m}).pick(0, nil, 0) }); n != 0 {
		t.Errorf("pick from a subset: %v allocations, want 0", n)
	}
	cfg = clusterOf(40, config.RingHash, func(i int, h *config.Host) { h.Priority = uint32(i % 2) })
	_, c = newTestCluster(t, newFakeConnector(), cfg)
	c.markDown(indexRange(0, 39)...)
	if n := testing.AllocsPerRun(100, func() { c.state.Load().defaultSet.pick(7, nil, 0) }); n != 0 {
		t.Errorf("pick with most hosts down: %v allocations, want 0", n)
	}
}

// mixedHosts returns a cluster of n hosts of different weights. Each has its own version label and
// one of two stages.
func mixedHosts(n int, policy config.LBPolicy) *config.Cluster {
	return clusterOf(n, policy, func(i int, h *config.Host) {
		h.Address = fmt.Sprintf("10.%d.%d.%d:8080", i>>16, i>>8&255, i&255)
		h.Weight = uint32(1 + i*37%128)
		h.Metadata = map[string]string{"version": strconv.Itoa(i), "stage": []string{"test", "prod"}[i%2]}
	})
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		for _, policy := range balancedPolicies() {
			b.Run(fmt.Sprintf("%s/%d", policy, n), func(b *testing.B) {
				s := newTestSet(b, newFakeConnector())
				apply(b, s, mixedHosts(n, policy))
				state := s.Get("web").state.Load()
				b.ReportAllocs()
				hash := uint64(0)
				for b.Loop() {
					hash += 0x9e3779b97f4a7c15
					state.defaultSet.pick(hash|1, nil, 0)
				}
			})
		}
	}
	b.Run("subset/8000", func(b *testing.B) {
		s := newTestSet(b, newFakeConnector())
		cfg := mixedHosts(8000, config.RoundRobin)
		cfg.Subsets = config.Subsets{Selectors: [][]string{{"version", "stage"}, {"stage"}}}
		apply(b, s, cfg)
		state := s.Get("web").state.Load()
		labels := subset.NewLabels(map[string]string{"version": "4001", "stage": "prod"})
		var m protocol.Metadata
		b.ReportAllocs()
		for b.Loop() {
			if state.hostsFor(subset.Request{Route: labels, Metadata: &m}).pick(0, nil, 0) == nil {
				b.Fatal("no host")
			}
		}
	})
}

// BenchmarkHostChange measures a change of one host in the list.
func BenchmarkHostChange(b *testing.B) {
	update := func(b *testing.B, change func(c *config.Cluster)) {
		s := newTestSet(b, newFakeConnector())
		lists := [2]*config.Cluster{mixedHosts(10_000, config.RoundRobin), mixedHosts(10_000, config.RoundRobin)}
		lists[1].Hosts[5000].Address = "10.9.9.9:8080"
		for _, c := range lists {
			change(c)
		}
		apply(b, s, lists[0])
		pickCounts(s.Get("web"), 1) // from now on each apply builds hash tables
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			apply(b, s, lists[i%2])
		}
	}
	for _, policy := range balancedPolicies() {
		b.Run(string(policy)+"/10000", func(b *testing.B) { update(b, func(c *config.Cluster) { c.LBPolicy = policy }) })
	}
	b.Run("subsets/10000", func(b *testing.B) {
		update(b, func(c *config.Cluster) {
			c.Subsets = config.Subsets{Selectors: [][]string{{"version", "stage"}, {"stage"}}, Fallback: config.AnyEndpoint}
		})
	})
}

// BenchmarkHealthChange measures a change of the health of one host among ten thousand.
func BenchmarkHealthChange(b *testing.B) {
	s := newTestSet(b, newFakeConnector())
	apply(b, s, mixedHosts(10_000, config.Maglev))
	c := s.Get("web")
	b.ReportAllocs()
	for b.Loop() {
		c.markDown(77)
		c.markUp(77)
	}
}
