package upstream

import (
	"context"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// aggregateOf returns a cluster that sends requests to others.
func aggregateOf(name string, members ...string) *config.Cluster {
	c := cluster(name)
	c.Type, c.LBPolicy, c.Aggregate = config.ClusterAggregate, config.LBAggregate, members
	return c
}

// withHealth returns a cluster in which the first hosts are unhealthy.
func withHealth(c *config.Cluster, unhealthy int) *config.Cluster {
	for i := range unhealthy {
		c.Hosts[i].Health = config.HostUnhealthy
	}
	return c
}

// countHosts serves n requests and returns how many each host received.
func countHosts(t *testing.T, c *Cluster, n int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for range n {
		counts[serveOne(t, c)]++
	}
	return counts
}

func TestAggregatePrefersFirstMember(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	all, first, second := aggregateOf("all", "missing", "first", "all", "second"), cluster("first", "a"), cluster("second", "b", "c")
	apply(t, s, all, first, second)
	c := s.Get("all")
	if got := countHosts(t, c, 10); got["a"] != 10 {
		t.Errorf("requests went to %v, want all to a", got)
	}
	apply(t, s, all, withHealth(cluster("first", "a"), 1), second)
	if got := countHosts(t, c, 10); got["b"] != 5 || got["c"] != 5 {
		t.Errorf("without a healthy host in the first cluster, requests went to %v, want 5 each to b and c", got)
	}
	apply(t, s, all, second)
	if got := countHosts(t, c, 10); got["b"] != 5 || got["c"] != 5 {
		t.Errorf("without the first cluster, requests went to %v, want 5 each to b and c", got)
	}
	apply(t, s, all, first, second)
	if got := countHosts(t, c, 10); got["a"] != 10 {
		t.Errorf("with the first cluster again, requests went to %v, want all to a", got)
	}
	apply(t, s, all)
	wantFault(t, c, protocol.NoHealthyHost)
}

// TestAggregateSharesLevels verifies that the levels of all members share the requests like those of
// one cluster: a level with half of its hosts healthy carries 70 %.
func TestAggregateSharesLevels(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	apply(t, s, aggregateOf("all", "first", "second"), withHealth(cluster("first", "a", "b"), 1), cluster("second", "c"))
	const n = 2000
	got := countHosts(t, s.Get("all"), n)
	if got["b"] < n*6/10 || got["b"] > n*8/10 || got["b"]+got["c"] != n {
		t.Errorf("of %d requests, b and c received %v, want about 70 %% and 30 %%", n, got)
	}
}

// TestAggregateUsesSettingsOfMember verifies that protocol and limits are those of the host's
// cluster, and that the record has the aggregate cluster.
func TestAggregateUsesSettingsOfMember(t *testing.T) {
	mux := newFakeMuxConnector()
	s := newTestSet(t, newFakeConnector(), func(o *Options) { o.Connectors[config.HTTP2] = mux })
	member := cluster("member", "a")
	member.Protocol = config.HTTP2
	member.CircuitBreakers.MaxRequests = 1
	apply(t, s, aggregateOf("all", "member"), member)
	c := s.Get("all")
	x := begin(t, c)
	if len(mux.list()) != 1 || x.Record.Cluster != protocol.Named(c) {
		t.Errorf("%d HTTP/2 connections, cluster %v, want 1 and the aggregate cluster", len(mux.list()), x.Record.Cluster)
	}
	wantFault(t, c, protocol.Overflow)
	finish(x)
}

// TestAggregateTriesOtherMember verifies that a request whose host refuses connections goes to a host
// of another member.
func TestAggregateTriesOtherMember(t *testing.T) {
	f := newFakeConnector()
	f.set(f.refuses, "a", true)
	s := newTestSet(t, f)
	apply(t, s, aggregateOf("all", "first", "second"), cluster("first", "a"), cluster("second", "b"))
	if got := serveOne(t, s.Get("all")); got != "b" {
		t.Errorf("the request went to %q, want b", got)
	}
}

// connectTo returns a connect function that records the host in name.
func connectTo(name *string) connectRelayFunc {
	return func(_ context.Context, h *Host, _ time.Time) (func() error, error) {
		*name = h.Name()
		return func() error { return nil }, nil
	}
}

func TestAggregateForwardsConnections(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	apply(t, s, aggregateOf("all", "first", "second"), withHealth(cluster("first", "a"), 1), cluster("second", "b"))
	var got string
	err := s.Get("all").ForwardWithoutAddrs(context.Background(), 1, connectTo(&got))
	if err != nil || got != "b" {
		t.Errorf("ForwardConn: %v, host %q, want b", err, got)
	}
	apply(t, s, aggregateOf("all", "first", "second"))
	if err := s.Get("all").ForwardWithoutAddrs(context.Background(), 1, connectTo(&got)); protocol.ReasonOf(err) != protocol.NoHealthyHost {
		t.Errorf("ForwardConn without hosts: %v, want NoHealthyHost", err)
	}
}

func TestAggregateHashes(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	hashed := cluster("hashed", "a", "b")
	hashed.LBPolicy = config.Maglev
	apply(t, s, aggregateOf("all", "plain", "hashed"), cluster("plain", "c"), hashed)
	if !s.Get("all").Hashes() || s.Get("plain").Hashes() {
		t.Error("Hashes must be true for the aggregate cluster only")
	}
}

func TestAggregateDoesNotAllocate(t *testing.T) {
	s := newTestSet(t, newFakeConnector())
	apply(t, s, aggregateOf("all", "first", "second"), cluster("first", "a"), cluster("second", "b"))
	x := newExchange()
	wantNoAllocs(t, "aggregate", s.Get("all"), x)
}
