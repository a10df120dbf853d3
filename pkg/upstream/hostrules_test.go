package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// digitRules select the hosts whose addresses are in the attachment "to", separated by spaces.
// There are no rules for labels other than "version=1".
type digitRules struct{ hosts int }

func (d digitRules) Chain(labels map[string]string) config.HostChain {
	if len(labels) > 0 && labels["version"] != "1" {
		return digitRules{}
	}
	return d
}

func (d digitRules) Len() int { return d.hosts }

func (d digitRules) Select(call config.Call, set config.HostSet) {
	clear(set)
	to, _ := call.Attachment("to")
	for field := range strings.FieldsSeq(to) {
		if i, err := strconv.Atoi(field); err == nil && i < d.hosts {
			set.Add(i)
		}
	}
}

func (digitRules) Allows(set config.HostSet, h *config.Host) bool {
	i, _ := strconv.Atoi(h.Address)
	return i < 64*len(set) && set.Has(i)
}

// chosenHosts returns the hosts that serve requests with this "to", or an error text.
func chosenHosts(c *Cluster, to string, labels map[string]string) string {
	picker, s := &ClusterPicker{Cluster: c, Labels: subset.NewLabels(labels)}, c.state.Load()
	x := &protocol.Exchange{}
	x.Request.Header.Add("to", to)
	hosts := map[string]bool{}
	for range 100 {
		h, err := picker.pickHost(s, x, 0)
		if err != nil {
			return err.Error()
		}
		hosts[h.Name()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(hosts)), " ")
}

const noHostError = "no healthy host: cluster web: its routing rules exclude every host for the request"

func TestRulesSelectHosts(t *testing.T) {
	cfg := clusterOf(70, config.RoundRobin, nil)
	cfg.HostRules = digitRules{70}
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	for to, want := range map[string]string{"3": "3", "1 2 69": "1 2 69", "": noHostError} {
		for range 2 { // the first request creates the host set, the second finds it
			if got := chosenHosts(c, to, nil); got != want {
				t.Errorf("requests to %q use the hosts %q, want %q", to, got, want)
			}
		}
	}
	other := clusterOf(3, config.RoundRobin, nil)
	other.HostRules = digitRules{2}
	apply(t, s, other)
	for to, want := range map[string]string{"1 2": "1", "2": noHostError} {
		if got := chosenHosts(c, to, nil); got != want {
			t.Errorf("with other rules, requests to %q use the hosts %q, want %q", to, got, want)
		}
	}
	other = clusterOf(3, config.RoundRobin, nil)
	apply(t, s, other)
	if got := chosenHosts(c, "1", nil); got != "0 1 2" {
		t.Errorf("without rules, requests use the hosts %q, want 0 1 2", got)
	}
}

func TestRulesSelectHostsOfSubset(t *testing.T) {
	cfg := labeledCluster(config.Subsets{Selectors: [][]string{{"version"}}, Fallback: config.AnyEndpoint})
	cfg.HostRules = digitRules{7}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	for _, tt := range []struct{ version, to, want string }{
		{"1", "0 1 2 3", "0 1"},
		{"1", "2", noHostError},
		{"2", "2 3", noHostError}, // the rules have no chain for these labels
		{"", "0 2 6", "0 2 6"},
	} {
		var labels map[string]string
		if tt.version != "" {
			labels = map[string]string{"version": tt.version}
		}
		if got := chosenHosts(c, tt.to, labels); got != tt.want {
			t.Errorf("requests of version %q to %q use the hosts %q, want %q", tt.version, tt.to, got, tt.want)
		}
	}
}

func TestRuleHostSetsHaveTheirOwnHealth(t *testing.T) {
	cfg := clusterOf(9, config.RoundRobin, func(i int, h *config.Host) { h.Priority = uint32(i / 3) })
	cfg.HostRules = digitRules{9}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	for _, step := range []struct {
		down           []int
		want045, want8 string // hosts of requests to "0 4 5", and to "8"
	}{{nil, "0", "8"}, {[]int{0}, "4 5", "8"}, {[]int{4}, "5", "8"}} {
		c.markDown(step.down...)
		if got045, got8 := chosenHosts(c, "0 4 5", nil), chosenHosts(c, "8", nil); got045 != step.want045 || got8 != step.want8 {
			t.Errorf("with the hosts %v down, requests use %q and %q, want %q and %q", step.down, got045, got8, step.want045, step.want8)
		}
	}
}

// TestRuleHostSetsAreBounded verifies that the content of requests cannot create more host sets
// than maxRuleHostSets, and that all requests are served.
func TestRuleHostSetsAreBounded(t *testing.T) {
	const hosts = 12
	cfg := clusterOf(hosts, config.RoundRobin, nil)
	cfg.HostRules = digitRules{hosts}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	count := func() (hostSets, memberships int) {
		s := c.state.Load()
		for _, h := range s.hosts {
			for m := h.ruleMemberships.Load(); m != nil; m = m.next {
				memberships++
			}
		}
		if ruleSets := s.defaultSet.rules.ruleSets.Load(); ruleSets != nil {
			for _, n := range *ruleSets {
				for ; n != nil; n = n.next {
					hostSets++
				}
			}
		}
		return hostSets, memberships
	}
	maxSets := 0
	for mask := 1; mask < 1<<hosts; mask++ {
		var to []string
		for i := range hosts {
			if mask>>i&1 != 0 {
				to = append(to, strconv.Itoa(i))
			}
		}
		slices.Sort(to)
		x := &protocol.Exchange{}
		x.Request.Header.Add("to", strings.Join(to, " "))
		h, err := (&ClusterPicker{Cluster: c}).pickHost(c.state.Load(), x, 0)
		if err != nil || !slices.Contains(to, h.Name()) {
			t.Fatalf("request to %v: %v, %v; want one of these hosts", to, h, err)
		}
		hostSets, memberships := count()
		if maxSets = max(maxSets, hostSets); hostSets > maxRuleHostSets || memberships > hostSets*hosts {
			t.Fatalf("after %d requests there are %d host sets with %d hosts in total; want at most %d and %d", mask, hostSets, memberships, maxRuleHostSets, hostSets*hosts)
		}
	}
	if maxSets != maxRuleHostSets {
		t.Errorf("there were at most %d host sets, want %d", maxSets, maxRuleHostSets)
	}
}

func TestClusterWithRulesRejectsForwardedConnections(t *testing.T) {
	cfg := clusterOf(1, config.RoundRobin, nil)
	cfg.HostRules = digitRules{1}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	err := c.ForwardWithoutAddrs(context.Background(), 1, func(context.Context, *Host, time.Time) (func() error, error) {
		return nil, errors.New("connect was called")
	})
	if protocol.ReasonOf(err) != protocol.NoHealthyHost {
		t.Errorf("ForwardWithoutAddrs = %v, want no healthy host", err)
	}
	if lease, err := c.Lease(0, nil); protocol.ReasonOf(err) != protocol.NoHealthyHost {
		t.Errorf("Lease = %v, %v, want no healthy host", lease, err)
	}
}

func TestRulesDoNotAllocate(t *testing.T) {
	cfg := clusterOf(100, config.RoundRobin, nil)
	cfg.HostRules = digitRules{100}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	picker, s := &ClusterPicker{Cluster: c}, c.state.Load()
	x := &protocol.Exchange{}
	x.Request.Header.Add("to", "1 7 99")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := picker.pickHost(s, x, 0); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per pick, want 0", n)
	}
}

func TestRulesDuringHostChanges(t *testing.T) {
	cfg := clusterOf(8, config.RoundRobin, nil)
	cfg.HostRules = digitRules{8}
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			next := clusterOf(4+i%5, config.RoundRobin, nil)
			next.HostRules = digitRules{8}
			change, err := s.Prepare([]*config.Cluster{next})
			if err != nil {
				t.Error(err)
				return
			}
			change.Commit()
			change.DrainRemoved()
			c.markDown(i % 4)
		}
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		x := &protocol.Exchange{}
		x.Request.Header.Add("to", fmt.Sprintf("%d %d", i%4, i/4%4))
		if h, err := (&ClusterPicker{Cluster: c}).pickHost(c.state.Load(), x, 0); err != nil || h.Name() != strconv.Itoa(i%4) && h.Name() != strconv.Itoa(i/4%4) {
			t.Fatalf("request to %d and %d: %v, %v; want one of the two", i%4, i/4%4, h, err)
		}
	}
}

func BenchmarkPickHostWithRules(b *testing.B) {
	for _, rules := range []config.HostRules{nil, digitRules{10}} {
		b.Run(fmt.Sprint(rules != nil), func(b *testing.B) {
			cfg := clusterOf(10, config.Random, nil)
			cfg.HostRules = rules
			_, c := newTestCluster(b, newFakeConnector(), cfg)
			picker, s := &ClusterPicker{Cluster: c}, c.state.Load()
			x := &protocol.Exchange{}
			x.Request.Header.Add("to", "1 7")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := picker.pickHost(s, x, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
