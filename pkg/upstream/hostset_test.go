package upstream

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// clusterOf returns a cluster of n hosts "0", "1" and so on. change, if not nil, may change each of
// them.
func clusterOf(n int, policy config.LBPolicy, change func(i int, h *config.Host)) *config.Cluster {
	c := cluster("web")
	c.LBPolicy = policy
	for i := range n {
		h := config.Host{Address: strconv.Itoa(i), Weight: 1}
		if change != nil {
			change(i, &h)
		}
		c.Hosts = append(c.Hosts, h)
	}
	return c
}

// pickCounts returns how often each host is picked for exchanges without a hash.
func pickCounts(c *Cluster, n int) map[string]int {
	s := c.state.Load()
	picks := make(map[string]int)
	for range n {
		if h := s.defaultSet.pick(0, nil, 0); h != nil {
			picks[h.Name()]++
		} else {
			picks[""]++
		}
	}
	return picks
}

// markDown sets FailedCheck for the hosts at these indexes.
func (c *Cluster) markDown(indexes ...int) {
	for _, i := range indexes {
		h := c.state.Load().hosts[i]
		if h.health.Set(hosthealth.FailedCheck) {
			h.healthChanged(HostDown)
		}
	}
}

// markUp clears FailedCheck for the hosts at these indexes.
func (c *Cluster) markUp(indexes ...int) {
	for _, i := range indexes {
		h := c.state.Load().hosts[i]
		if h.health.Clear(hosthealth.FailedCheck) {
			h.healthChanged(HostUp)
		}
	}
}

// indexRange lists the numbers from a to b-1.
func indexRange(a, b int) []int {
	var list []int
	for i := a; i < b; i++ {
		list = append(list, i)
	}
	return list
}

// wantShare checks that the hosts at these indexes have this share of the picks, within five
// standard deviations.
func wantShare(t *testing.T, picks map[string]int, indexes []int, want float64) {
	t.Helper()
	total, got := 0, 0
	for _, n := range picks {
		total += n
	}
	for _, i := range indexes {
		got += picks[strconv.Itoa(i)]
	}
	if tolerance := 5 * math.Sqrt(float64(total)*want*(1-want)); math.Abs(float64(got)-want*float64(total)) > tolerance {
		t.Errorf("hosts %v: %d of %d picks, want %.0f ± %.0f", indexes, got, total, want*float64(total), tolerance)
	}
}

func balancedPolicies() []config.LBPolicy {
	return []config.LBPolicy{
		config.RoundRobin, config.WeightedRoundRobin, config.Random, config.LeastRequest, config.LeastConnection,
		config.PeakEWMA, config.RingHash, config.Maglev, config.RequestRoundRobin,
	}
}

func TestUnhealthyHostsGetNoRequests(t *testing.T) {
	for _, policy := range balancedPolicies() {
		t.Run(string(policy), func(t *testing.T) {
			_, c := newTestCluster(t, newFakeConnector(), clusterOf(10, policy, nil))
			c.markDown(0, 3, 4, 9)
			picks := pickCounts(c, 5000)
			wantShare(t, picks, []int{0, 3, 4, 9}, 0)
			wantShare(t, picks, []int{1, 2, 5, 6, 7, 8}, 1)
		})
	}
}

// TestDownHostsDoNotSkewShares verifies that the first host after a run of down hosts gets no more
// requests than others, and that least-load policies do not pick hosts that are down, which have no
// load.
func TestDownHostsDoNotSkewShares(t *testing.T) {
	const hosts, picks = 100, 20_000
	for _, policy := range balancedPolicies() {
		if policy == config.RequestRoundRobin {
			continue // later hosts are backups
		}
		for _, down := range []int{10, 50} {
			t.Run(fmt.Sprint(policy, " ", down), func(t *testing.T) {
				_, c := newTestCluster(t, newFakeConnector(), clusterOf(hosts, policy, func(i int, h *config.Host) { h.Weight = 10 }))
				c.markDown(indexRange(0, down)...)
				for _, h := range c.state.Load().hosts[down:] {
					h.load.Begin()
					h.load.Connect()
					h.load.Observe(1, time.Millisecond)
				}
				counts := pickCounts(c, picks)
				mean := float64(picks) / float64(hosts-down)
				if first := float64(counts[strconv.Itoa(down)]); first > 1.7*mean || first < 0.5*mean {
					t.Errorf("the first host that is up got %.0f exchanges, the mean is %.0f; want between 0.5 and 1.7 times the mean", first, mean)
				}
				wantShare(t, counts, indexRange(0, down), 0)
			})
		}
	}
}

// TestPanicUsesHostsThatAreDown verifies that a cluster in panic, with more than half of its hosts
// down, uses all hosts except unreachable ones.
func TestPanicUsesHostsThatAreDown(t *testing.T) {
	for _, policy := range []config.LBPolicy{config.RoundRobin, config.LeastRequest, config.RingHash, config.Maglev} {
		t.Run(string(policy), func(t *testing.T) {
			_, c := newTestCluster(t, newFakeConnector(), clusterOf(10, policy, nil))
			c.markDown(indexRange(0, 5)...)
			wantShare(t, pickCounts(c, 2000), indexRange(0, 5), 0)
			c.markDown(5)
			picks := pickCounts(c, 20_000)
			for i := range 10 {
				if picks[strconv.Itoa(i)] == 0 {
					t.Errorf("in panic, host %d gets no requests", i)
				}
			}
			c.state.Load().hosts[2].recordConnectFailure(protocol.Faultf(protocol.ConnectFailure, "refused"))
			wantShare(t, pickCounts(c, 2000), []int{2}, 0)
			c.markUp(5)
			wantShare(t, pickCounts(c, 2000), indexRange(0, 5), 0)
		})
	}
}

func TestPanicThreshold(t *testing.T) {
	tests := []struct {
		name      string
		threshold float64
		down      int
		want      bool // hosts that are down get requests
	}{
		{"unset: 5 of 10 healthy", 0, 5, false},
		{"unset: 4 of 10 healthy", 0, 6, true},
		{"20 %: 2 of 10 healthy", 20, 8, false},
		{"20 %: 1 of 10 healthy", 20, 9, true},
		{"never: none healthy", -1, 10, false},
		{"never: 1 of 10 healthy", -1, 9, false},
		{"100 %: 7 of 10 healthy", 100, 3, true},
		{"100 %: 8 of 10 healthy, enough capacity", 100, 2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := clusterOf(10, config.Random, nil)
			cfg.Failover.PanicThreshold = tt.threshold
			_, c := newTestCluster(t, newFakeConnector(), cfg)
			c.markDown(indexRange(0, tt.down)...)
			picks := pickCounts(c, 2000)
			used := 0
			for i := range tt.down {
				used += picks[strconv.Itoa(i)]
			}
			if (used > 0) != tt.want {
				t.Errorf("hosts that are down got %d of 2000 picks, want some: %v", used, tt.want)
			}
			if tt.down == 10 && !tt.want && picks[""] != 2000 {
				t.Errorf("picks = %v with all hosts down and no panic, want none", picks)
			}
		})
	}
}

// TestPrioritiesSpillOver verifies the numbers of the table in Envoy's documentation of priority
// levels.
func TestPrioritiesSpillOver(t *testing.T) {
	tests := []struct {
		up     [3]int // healthy hosts of 100, by priority; -1: no third priority
		shares [3]float64
	}{
		{[3]int{100, 100, -1}, [3]float64{1, 0}},
		{[3]int{72, 72, -1}, [3]float64{1, 0}},
		{[3]int{71, 71, -1}, [3]float64{.994, .006}},
		{[3]int{50, 50, -1}, [3]float64{.7, .3}},
		{[3]int{25, 100, -1}, [3]float64{.35, .65}},
		{[3]int{25, 25, -1}, [3]float64{.5, .5}}, // 35 % each, scaled to 100 %; both in panic
		{[3]int{0, 100, -1}, [3]float64{0, 1}},
		{[3]int{0, 0, -1}, [3]float64{.5, .5}},
		{[3]int{100, 100, 100}, [3]float64{1, 0, 0}},
		{[3]int{0, 100, 100}, [3]float64{0, 1, 0}},
		{[3]int{20, 20, 100}, [3]float64{.28, .28, .44}},
		{[3]int{0, 0, 100}, [3]float64{0, 0, 1}},
		{[3]int{60, 0, 10}, [3]float64{.857, 0, .143}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.up), func(t *testing.T) {
			levels := 3
			if tt.up[2] < 0 {
				levels = 2
			}
			_, c := newTestCluster(t, newFakeConnector(), clusterOf(100*levels, config.Random, func(i int, h *config.Host) { h.Priority = uint32(i / 100) }))
			for l := range levels {
				c.markDown(indexRange(100*l+tt.up[l], 100*l+100)...)
			}
			picks := pickCounts(c, 20_000)
			for l := range levels {
				got := 0
				for i := range 100 {
					got += picks[strconv.Itoa(100*l+i)]
				}
				if math.Abs(float64(got)-20_000*tt.shares[l]) > 5*math.Sqrt(20_000*tt.shares[l]*(1-tt.shares[l]))+20 {
					t.Errorf("priority %d gets %d of 20000 picks, want %.1f %%", l, got, 100*tt.shares[l])
				}
			}
		})
	}
}

func TestOverprovisioningFactor(t *testing.T) {
	cfg := clusterOf(20, config.Random, func(i int, h *config.Host) { h.Priority = uint32(i / 10) })
	cfg.Failover.Overprovisioning = 1
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	c.markDown(0, 1)
	picks := pickCounts(c, 10_000)
	wantShare(t, picks, indexRange(2, 10), .8)
	wantShare(t, picks, indexRange(10, 20), .2)
}

// TestPriorityWithoutShareIsProbed verifies that recovery probes find the hosts of a priority that
// gets no requests because its hosts refuse connections.
func TestPriorityWithoutShareIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.refuses["0"] = true
		_, c := newTestCluster(t, f, clusterOf(2, config.RoundRobin, func(i int, h *config.Host) { h.Priority = uint32(i) }))
		for range 5 {
			if got := serveOne(t, c); got != "1" {
				t.Fatalf("served by %s, want the second priority", got)
			}
		}
		if dials := f.dialed(); len(dials) != 2 {
			t.Errorf("dialed hosts = %v, want each host once", dials)
		}
		f.set(f.refuses, "0", false)
		time.Sleep(hosthealth.MaxBackoff)
		for range 3 {
			if got := serveOne(t, c); got != "0" {
				t.Errorf("served by %s, want the first priority after its recovery", got)
			}
		}
	})
}

func TestLocalitiesShareByWeight(t *testing.T) {
	locality := func(zone string) config.Locality { return config.Locality{Region: "r", Zone: zone} }
	newCluster := func(t *testing.T, policy config.LBPolicy) *Cluster {
		cfg := clusterOf(40, policy, func(i int, h *config.Host) { h.Locality = locality([]string{"a", "a", "b", "c"}[i/10]) })
		cfg.LocalityWeights = []config.LocalityWeight{
			{Locality: locality("a"), Weight: 1},
			{Locality: locality("b"), Weight: 3},
			{Locality: locality("c"), Weight: 0},
			{Locality: locality("c"), Priority: 1, Weight: 100},
			{Locality: locality("d"), Weight: 100},
		}
		_, c := newTestCluster(t, newFakeConnector(), cfg)
		return c
	}
	for _, policy := range balancedPolicies() {
		t.Run(string(policy), func(t *testing.T) {
			c := newCluster(t, policy)
			picks := pickCounts(c, 10_000)
			wantShare(t, picks, indexRange(0, 20), .25)
			wantShare(t, picks, indexRange(20, 30), .75)
			wantShare(t, picks, indexRange(30, 40), 0)

			c.markDown(indexRange(20, 22)...) // 8 of 10: enough for its full share
			wantShare(t, pickCounts(c, 10_000), indexRange(20, 30), .75)

			c.markDown(indexRange(22, 25)...) // 5 of 10: 0.7 of its share
			picks = pickCounts(c, 10_000)
			wantShare(t, picks, indexRange(0, 20), 1/(1+3*.7))
			wantShare(t, picks, indexRange(25, 30), 3*.7/(1+3*.7))

			c.markDown(indexRange(25, 30)...)
			wantShare(t, pickCounts(c, 10_000), indexRange(0, 20), 1)
		})
	}
}

// TestHostsOfLocalitiesWithoutWeight verifies that hosts of a locality without a weight get no
// requests, even if there are no other hosts.
func TestHostsOfLocalitiesWithoutWeight(t *testing.T) {
	zone := func(name string) config.Locality { return config.Locality{Zone: name} }
	tests := []struct {
		name    string
		weights []config.LocalityWeight
		want    map[string]int
	}{
		{"locality is not listed", []config.LocalityWeight{{Locality: zone("x"), Weight: 1}}, map[string]int{"": 10}},
		{"listed with another priority", []config.LocalityWeight{{Locality: zone("a"), Priority: 1, Weight: 1}}, map[string]int{"": 10}},
		{"weight 0", []config.LocalityWeight{{Locality: zone("a"), Weight: 0}}, map[string]int{"": 10}},
		{"only the second priority is listed", []config.LocalityWeight{{Locality: zone("b"), Priority: 1, Weight: 1}}, map[string]int{"1": 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := clusterOf(2, config.RoundRobin, func(i int, h *config.Host) {
				h.Locality, h.Priority = zone([]string{"a", "b"}[i]), uint32(i)
			})
			cfg.LocalityWeights = tt.weights
			_, c := newTestCluster(t, newFakeConnector(), cfg)
			if got := pickCounts(c, 10); !maps.Equal(got, tt.want) {
				t.Errorf("picks = %v, want %v", got, tt.want)
			}
		})
	}
}

// TestHashSelectsLevelAndLocality verifies that the hash also selects the priority and the
// locality.
func TestHashSelectsLevelAndLocality(t *testing.T) {
	for _, policy := range []config.LBPolicy{config.RingHash, config.Maglev} {
		cfg := clusterOf(40, policy, func(i int, h *config.Host) {
			h.Priority = uint32(i / 20)
			h.Locality.Zone = []string{"a", "b"}[i/10%2]
		})
		for i := range uint32(2) {
			for _, zone := range []string{"a", "b"} {
				cfg.LocalityWeights = append(cfg.LocalityWeights, config.LocalityWeight{Locality: config.Locality{Zone: zone}, Priority: i, Weight: 1})
			}
		}
		_, c := newTestCluster(t, newFakeConnector(), cfg)
		c.markDown(indexRange(0, 15)...) // both priorities have a share, and one zone of the first has a larger one
		used := map[string]bool{}
		for hash := range uint64(2000) {
			first := c.state.Load().defaultSet.pick(hash+1, nil, 0)
			used[first.Name()] = true
			for range 3 {
				if next := c.state.Load().defaultSet.pick(hash+1, nil, 0); next != first {
					t.Fatalf("%s: hash %d goes to %s, then to %s", policy, hash+1, first.Name(), next.Name())
				}
			}
		}
		if len(used) < 20 {
			t.Errorf("%s: 2000 hashes use only %d hosts, want at least 20", policy, len(used))
		}
	}
}

// TestHashesMoveWhileTheirHostIsDown verifies that only the hashes of a host move while it is down,
// and that all of them return when it is up.
func TestHashesMoveWhileTheirHostIsDown(t *testing.T) {
	for _, policy := range []config.LBPolicy{config.RingHash, config.Maglev} {
		_, c := newTestCluster(t, newFakeConnector(), clusterOf(50, policy, nil))
		hostNames := func() []string {
			list := make([]string, 5000)
			for i := range list {
				list[i] = c.state.Load().defaultSet.pick(uint64(i)+1, nil, 0).Name()
			}
			return list
		}
		before := hostNames()
		c.markDown(7)
		for i, name := range hostNames() {
			if name != before[i] && before[i] != "7" || name == "7" {
				t.Fatalf("%s: with host 7 down, hash %d moved from %s to %s", policy, i+1, before[i], name)
			}
		}
		c.markUp(7)
		if !slices.Equal(hostNames(), before) {
			t.Errorf("%s: not all hashes returned to host 7", policy)
		}
	}
}

func TestPeakEWMAAvoidsSlowHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.respond = func(conn *fakeConn, x *protocol.Exchange) error {
			x.Record.UpstreamStart = time.Now()
			if conn.host == "0" {
				time.Sleep(time.Second)
			}
			x.Record.UpstreamFirstByte = time.Now()
			return nil
		}
		cfg := clusterOf(2, config.PeakEWMA, nil)
		_, c := newTestCluster(t, f, cfg)
		slow := 0
		for range 100 {
			if serveOne(t, c) == "0" {
				slow++
			}
		}
		if slow > 2 {
			t.Errorf("the host that responds after a second got %d of 100 requests, want at most 2", slow)
		}
	})
}

// TestHealthCountsDuringReplacement verifies that the counts include all health changes that occur
// while the state of the cluster is replaced.
func TestHealthCountsDuringReplacement(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), clusterOf(20, config.RoundRobin, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		random := rand.New(rand.NewPCG(1, 1))
		for range 3000 {
			i := random.IntN(20)
			if random.IntN(2) == 0 {
				c.markDown(i)
			} else {
				c.markUp(i)
			}
		}
	}()
	for n := range 200 {
		apply(t, s, clusterOf(20, config.RoundRobin, func(i int, h *config.Host) { h.Priority = uint32(i % (1 + n%3)) }))
		for range 20 {
			if c.state.Load().defaultSet.pick(0, nil, 0) == nil {
				t.Fatal("pick returned no host")
			}
		}
	}
	<-done
	up := 0
	for _, h := range c.state.Load().hosts {
		if h.health.Up() {
			up++
		}
	}
	counted := 0
	for _, level := range c.state.Load().defaultSet.counts {
		for _, locality := range level.Localities {
			counted += locality.Healthy
		}
	}
	if counted != up {
		t.Errorf("%d hosts are counted as healthy, want %d", counted, up)
	}
}

func TestPanicIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	s := newTestSet(t, newFakeConnector(), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	cfg := clusterOf(4, config.RoundRobin, func(i int, h *config.Host) {
		h.Priority = uint32(i / 3)
		h.Locality = config.Locality{Region: "r", Zone: strconv.Itoa(i)}
	})
	apply(t, s, cfg)
	c := s.Get("web")
	c.markDown(0, 1, 2)
	if status := c.describe(); status.Panic || log.Len() > 0 {
		t.Errorf("with a healthy second priority: panic = %v; log %s; want no panic and an empty log", status.Panic, &log)
	}
	c.markDown(3)
	c.markUp(0)
	c.markUp(1)
	c.markUp(2)
	if got := strings.Count(log.String(), "\n"); got != 2 {
		t.Fatalf("%d log lines, want the start and the end of panic:\n%s", got, &log)
	}
	begin, end, _ := strings.Cut(log.String(), "\n")
	if !strings.Contains(begin, "level=WARN") || !strings.Contains(begin, "cluster=web") || !strings.Contains(end, "no longer in panic") {
		t.Errorf("log of the start and the end of panic, want a warning and \"no longer in panic\":\n%s", &log)
	}
}

// TestPanicOfNewHostsIsLogged verifies that a panic is logged when a change of the hosts begins or
// ends it, and only then.
func TestPanicOfNewHostsIsLogged(t *testing.T) {
	var log bytes.Buffer
	s := newTestSet(t, newFakeConnector(), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	steps := []struct {
		name      string
		unhealthy int    // of ten hosts
		want      string // part of the log line; "": no line
	}{
		{"new cluster in panic", 6, "health is ignored"},
		{"still in panic", 7, ""},
		{"end of panic", 1, "no longer in panic"},
		{"still no panic", 2, ""},
		{"begin of panic", 8, "health is ignored"},
	}
	for _, step := range steps {
		log.Reset()
		apply(t, s, clusterWithHealth(config.RoundRobin, step.unhealthy, 0))
		if got := log.String(); (got == "") != (step.want == "") || !strings.Contains(got, step.want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: log %q, want one line with %q, or none if that is empty", step.name, got, step.want)
		}
	}
	log.Reset()
	apply(t, s)
	if log.Len() > 0 {
		t.Errorf("removed cluster: log %q, want none", &log)
	}
	apply(t, s, clusterWithHealth(config.RoundRobin, 8, 0))
	if !strings.Contains(log.String(), "health is ignored") {
		t.Errorf("cluster that was removed and added again: log %q, want the start of panic", &log)
	}
}

func TestDescribeHostLocality(t *testing.T) {
	cfg := labeledCluster(config.Subsets{Selectors: [][]string{{"version"}}})
	cfg.Hosts[3].Priority, cfg.Hosts[3].Locality = 2, config.Locality{Region: "r", Zone: "z", SubZone: "s"}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	status := c.describe()
	if h := status.Hosts[3]; h.Priority != 2 || h.Locality != "r/z/s" || status.Hosts[0].Locality != "" {
		t.Errorf("hosts = %+v and %+v; want locality \"\" and priority 2 with locality r/z/s", status.Hosts[0], h)
	}
	if status.Subsets != 3 {
		t.Errorf("%d subsets, want 3", status.Subsets)
	}
}

// TestHashTablesAreBuiltOnFirstUse verifies that a cluster builds hash tables at its first
// exchange, and from then on when its hosts change.
func TestHashTablesAreBuiltOnFirstUse(t *testing.T) {
	for _, policy := range balancedPolicies() {
		usesHash := policy == config.RingHash || policy == config.Maglev
		s, c := newTestCluster(t, newFakeConnector(), clusterOf(3, policy, nil))
		built := func() bool { return c.state.Load().defaultSet.hasBalancers() }
		if built() == usesHash {
			t.Errorf("%s: balancers built before the first exchange: %v, want %v", policy, built(), !usesHash)
		}
		serveOne(t, c)
		if !built() {
			t.Errorf("%s: no balancer after an exchange", policy)
		}
		apply(t, s, clusterOf(4, policy, nil))
		if !built() {
			t.Errorf("%s: no balancer for the next exchange after the hosts changed", policy)
		}
	}
}

// TestPolicyChangeDefersHashTables verifies that a cluster whose policy changes to one with hash
// tables builds them at the next exchange, unless it had hash tables before.
func TestPolicyChangeDefersHashTables(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), clusterOf(3, config.RoundRobin, nil))
	built := func() bool { return c.state.Load().defaultSet.hasBalancers() }
	apply(t, s, clusterOf(3, config.RingHash, nil))
	if built() {
		t.Error("hash tables were built before the first exchange after the change from round robin")
	}
	serveOne(t, c)
	apply(t, s, clusterOf(3, config.Maglev, nil))
	if !built() {
		t.Error("no hash tables after the change from ring hash, whose tables were built")
	}
}
