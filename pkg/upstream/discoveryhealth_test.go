package upstream

import (
	"strconv"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// reported returns ten hosts, of which so many are said to be unfit and, after them, leaving.
func reported(policy config.LBPolicy, unfit, leaving int) *config.Cluster {
	return clusterOf(10, policy, func(i int, h *config.Host) {
		switch {
		case i < unfit:
			h.Health = config.HostUnhealthy
		case i < unfit+leaving:
			h.Health = config.HostDraining
		}
	})
}

func TestReportedUnhealthyHostsGetNoRequests(t *testing.T) {
	for _, policy := range balancedPolicies() {
		t.Run(string(policy), func(t *testing.T) {
			s, c := newTestCluster(t, newFakeConnector(), reported(policy, 2, 2))
			taken := served(c, 2000)
			wantShare(t, taken, indexRange(0, 4), 0)
			wantShare(t, taken, indexRange(4, 10), 1)
			apply(t, s, reported(policy, 0, 1))
			taken = served(c, 5000)
			wantShare(t, taken, indexRange(0, 1), 0)
			if taken["1"] == 0 {
				t.Error("a host gets no requests after it is reported healthy again")
			}
		})
	}
}

// In panic health is not believed, but a host that leaves gets nothing all the same.
func TestReportedUnhealthyHostsCountForPanic(t *testing.T) {
	for _, policy := range []config.LBPolicy{config.RoundRobin, config.LeastRequest, config.RingHash, config.Maglev} {
		t.Run(string(policy), func(t *testing.T) {
			_, c := newTestCluster(t, newFakeConnector(), reported(policy, 3, 3))
			if !c.describe().Panic {
				t.Fatal("6 of 10 hosts are reported unhealthy, but the cluster is not in panic")
			}
			taken := served(c, 20_000)
			wantShare(t, taken, indexRange(3, 6), 0)
			for _, i := range append(indexRange(0, 3), indexRange(6, 10)...) {
				if taken[strconv.Itoa(i)] == 0 {
					t.Errorf("in panic host %d gets nothing", i)
				}
			}
		})
	}
}

// Exchanges go to the next priority as hosts of the first are said to be down.
func TestReportedUnhealthyHostsCountForPriorities(t *testing.T) {
	cfg := reported(config.RoundRobin, 5, 0)
	for i := range cfg.Hosts {
		cfg.Hosts[i].Priority = uint32(i / 5)
	}
	_, c := newTestCluster(t, newFakeConnector(), cfg)
	taken := served(c, 1000)
	wantShare(t, taken, indexRange(0, 5), 0)
	wantShare(t, taken, indexRange(5, 10), 1)
}

func TestDrainingHostFinishesItsExchanges(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), reported(config.RoundRobin, 0, 0))
	x := begin(t, c)
	host := x.Record.Attempts[0].Host.(*Host)
	apply(t, s, reported(config.RoundRobin, 0, 10))
	if x.Response.Body == nil || host.InFlight() != 1 {
		t.Errorf("the exchange is not under way any more")
	}
	wantFault(t, c, protocol.NoHealthyHost)
	if d := host.describe(); d.Health != HealthDown || d.DownReasons != hosthealth.ReportedDraining {
		t.Errorf("the host is described as %s, %s", d.Health, d.DownReasons)
	}
	finish(x)
	apply(t, s, reported(config.RoundRobin, 0, 0))
	if got := serveOne(t, c); got == "" {
		t.Error("no host serves after all are reported healthy")
	}
}

// What is found out about a host here, and what is said of it, end apart.
func TestResponsesDoNotClearReportedHealth(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), reported(config.RoundRobin, 1, 0))
	h := c.state.Load().hosts[0]
	c.markDown(0)
	c.markUp(0)
	h.recordAlive()
	if h.health.Up() {
		t.Error("a host that is reported unhealthy is up after it passed its checks")
	}
	apply(t, s, reported(config.RoundRobin, 0, 1))
	if h.health.Up() || h.health.Has(hosthealth.ReportedUnhealthy) {
		t.Errorf("a host that leaves is %v", h.health.Flags())
	}
	c.markDown(0)
	apply(t, s, reported(config.RoundRobin, 0, 0))
	if h.health.Up() {
		t.Error("a host that fails its checks is up after it is reported healthy")
	}
	c.markUp(0)
	if !h.health.Up() {
		t.Error("nothing is wrong with the host any more, and it is not up")
	}
}
