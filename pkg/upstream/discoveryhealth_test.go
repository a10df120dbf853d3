package upstream

import (
	"strconv"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// clusterWithHealth returns a cluster of ten hosts. Discovery reports the first `unhealthy` hosts
// as unhealthy, the next `draining` hosts as draining, and the others as healthy.
func clusterWithHealth(policy config.LBPolicy, unhealthy, draining int) *config.Cluster {
	return clusterOf(10, policy, func(i int, h *config.Host) {
		switch {
		case i < unhealthy:
			h.Health = config.HostUnhealthy
		case i < unhealthy+draining:
			h.Health = config.HostDraining
		}
	})
}

func TestReportedUnhealthyHostsGetNoRequests(t *testing.T) {
	for _, policy := range balancedPolicies() {
		t.Run(string(policy), func(t *testing.T) {
			s, c := newTestCluster(t, newFakeConnector(), clusterWithHealth(policy, 2, 2))
			picks := pickCounts(c, 2000)
			wantShare(t, picks, indexRange(0, 4), 0)
			wantShare(t, picks, indexRange(4, 10), 1)
			apply(t, s, clusterWithHealth(policy, 0, 1))
			picks = pickCounts(c, 5000)
			wantShare(t, picks, indexRange(0, 1), 0)
			if picks["1"] == 0 {
				t.Error("a host gets no requests after it is reported as healthy again")
			}
		})
	}
}

// TestReportedUnhealthyHostsCountForPanic verifies that in panic unhealthy hosts are used, and
// draining hosts are not.
func TestReportedUnhealthyHostsCountForPanic(t *testing.T) {
	for _, policy := range []config.LBPolicy{config.RoundRobin, config.LeastRequest, config.RingHash, config.Maglev} {
		t.Run(string(policy), func(t *testing.T) {
			_, c := newTestCluster(t, newFakeConnector(), clusterWithHealth(policy, 3, 3))
			if !c.describe().Panic {
				t.Fatal("6 of 10 hosts are reported as unhealthy, but the cluster is not in panic")
			}
			picks := pickCounts(c, 20_000)
			wantShare(t, picks, indexRange(3, 6), 0)
			for _, i := range append(indexRange(0, 3), indexRange(6, 10)...) {
				if picks[strconv.Itoa(i)] == 0 {
					t.Errorf("in panic, host %d gets no requests", i)
				}
			}
		})
	}
}

// TestReportedUnhealthyHostsCountForPriorities verifies that exchanges use the next priority when
// hosts of the first are reported as unhealthy.
func TestReportedUnhealthyHostsCountForPriorities(t *testing.T) {
	cfg := clusterWithHealth(config.RoundRobin, 5, 0)
	for i := range cfg.Hosts {
		cfg.Hosts[i].Priority = uint32(i / 5)
	}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	picks := pickCounts(c, 1000)
	wantShare(t, picks, indexRange(0, 5), 0)
	wantShare(t, picks, indexRange(5, 10), 1)
}

func TestDrainingHostFinishesItsExchanges(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), clusterWithHealth(config.RoundRobin, 0, 0))
	x := begin(t, c)
	host := x.Record.Attempts[0].Host.(*Host)
	apply(t, s, clusterWithHealth(config.RoundRobin, 0, 10))
	if x.Response.Body == nil || host.InFlight() != 1 {
		t.Errorf("the exchange is no longer in flight")
	}
	wantFault(t, c, protocol.NoHealthyHost)
	if d := host.describe(); d.Health != HealthDown || d.DownReasons != hosthealth.ReportedDraining {
		t.Errorf("host status = %s, %s; want down, reported draining", d.Health, d.DownReasons)
	}
	finish(x)
	apply(t, s, clusterWithHealth(config.RoundRobin, 0, 0))
	if got := serveOne(t, c); got == "" {
		t.Error("no host serves after all are reported as healthy")
	}
}

// TestResponsesDoNotClearReportedHealth verifies that passed checks and responses do not clear the
// health flags of discovery, and vice versa.
func TestResponsesDoNotClearReportedHealth(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), clusterWithHealth(config.RoundRobin, 1, 0))
	h := c.state.Load().hosts[0]
	c.markDown(0)
	c.markUp(0)
	h.recordAlive()
	if h.health.Up() {
		t.Error("a host that is reported as unhealthy is up after a passed check")
	}
	apply(t, s, clusterWithHealth(config.RoundRobin, 0, 1))
	if h.health.Up() || h.health.Has(hosthealth.ReportedUnhealthy) {
		t.Errorf("flags of a draining host = %v; want down without ReportedUnhealthy", h.health.Flags())
	}
	c.markDown(0)
	apply(t, s, clusterWithHealth(config.RoundRobin, 0, 0))
	if h.health.Up() {
		t.Error("a host that fails its checks is up after it is reported as healthy")
	}
	c.markUp(0)
	if !h.health.Up() {
		t.Error("the host is down without a health flag")
	}
}
