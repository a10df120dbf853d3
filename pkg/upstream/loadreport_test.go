package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// noWait is an awaitResults function that does not wait.
func noWait() {}

// wantReport checks the content of the next report and commits it.
func wantReport(t *testing.T, l *LoadReporter, want ...ClusterLoad) {
	t.Helper()
	r := l.Collect(noWait)
	if diff := cmp.Diff(want, r.Clusters, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ClusterLoad{}, "Interval")); diff != "" {
		t.Errorf("unexpected report (-want +got):\n%s", diff)
	}
	r.Commit()
}

// respondWith sets the status of the responses of all hosts.
func (f *fakeConnector) respondWith(status int) {
	f.respond = func(_ *fakeConn, x *protocol.Exchange) error {
		x.Response.Status = status
		return nil
	}
}

func TestLoadReportIsDifference(t *testing.T) {
	f := newFakeConnector()
	cfg := cluster("web", "a")
	cfg.Hosts[0].Priority, cfg.Hosts[0].Locality = 1, config.Locality{Zone: "z"}
	s, c := newTestCluster(t, f, cfg)
	load := func(issued, succeeded, failed, inFlight uint64) ClusterLoad {
		return ClusterLoad{Name: "web", Hosts: []HostLoad{{
			Address: "a", Priority: 1, Locality: config.Locality{Zone: "z"}, Issued: issued, Succeeded: succeeded, Failed: failed, InFlight: inFlight,
		}}}
	}
	serveOne(t, c) // before the reporter exists
	l := s.NewLoadReporter()
	defer l.Close()
	wantReport(t, l)
	l.SetClusters(false, "web", "not configured")
	wantReport(t, l, ClusterLoad{Name: "web"})
	serveOne(t, c)
	x := begin(t, c)
	wantReport(t, l, load(2, 1, 0, 1))
	wantReport(t, l, load(0, 0, 0, 1))
	finish(x)
	wantReport(t, l, load(0, 1, 0, 0))
	f.respondWith(503)
	serveOne(t, c)
	f.respondWith(404)
	serveOne(t, c)
	wantReport(t, l, load(2, 1, 1, 0))
	f.set(f.refuses, "a", true)
	for _, conn := range f.conns {
		conn.dead.Store(true)
	}
	wantFault(t, c, protocol.ConnectFailure)
	l.SetClusters(false, "web") // the cluster is still followed
	wantReport(t, l, load(1, 0, 1, 0))

	l.SetClusters(false)
	f.set(f.refuses, "a", false)
	l.SetClusters(true)
	wantReport(t, l, ClusterLoad{Name: "web"})
}

func TestUncommittedLoadReportIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster("web", "a")
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		l := s.NewLoadReporter()
		l.SetClusters(true)
		serveOne(t, c)
		<-time.After(time.Second)
		if r := l.Collect(noWait); r.Clusters[0].Hosts[0].Issued != 1 || r.Clusters[0].Interval != time.Second {
			t.Errorf("first report = %+v, want 1 attempt in 1s", r.Clusters)
		}
		serveOne(t, c)
		<-time.After(time.Second)
		r := l.Collect(noWait)
		if r.Clusters[0].Hosts[0].Issued != 2 || r.Clusters[0].Hosts[0].Succeeded != 2 || r.Clusters[0].Interval != 2*time.Second {
			t.Errorf("second report = %+v, want 2 attempts in 2s", r.Clusters)
		}
		r.Commit()
		<-time.After(time.Second)
		if r := l.Collect(noWait); len(r.Clusters[0].Hosts) != 0 || r.Clusters[0].Interval != time.Second {
			t.Errorf("third report = %+v, want no hosts in 1s", r.Clusters)
		}
	})
}

// TestRemovedHostsAreForgotten verifies that the number of removed hosts is bounded while no
// reports are collected.
func TestRemovedHostsAreForgotten(t *testing.T) {
	s, _ := newTestCluster(t, newFakeConnector(), cluster("web", "a"))
	l := s.NewLoadReporter()
	defer l.Close()
	l.SetClusters(true)
	for round := range 3 {
		var hosts []string
		for i := range maxRemovedHosts / 2 {
			hosts = append(hosts, fmt.Sprintf("%d.%d", round, i))
		}
		apply(t, s, cluster("web", hosts...))
	}
	apply(t, s, cluster("web", "a"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.removed) != maxRemovedHosts {
		t.Errorf("%d removed hosts are kept, want %d", len(l.removed), maxRemovedHosts)
	}
}

func TestRemovedHostsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), cluster("web", "a"))
		l := s.NewLoadReporter()
		l.SetClusters(true)
		serveOne(t, c)
		x := begin(t, c)
		apply(t, s, cluster("web", "b"))
		serveOne(t, c)
		apply(t, s, cluster("web")) // no report has read "b"
		apply(t, s, cluster("other", "a"))
		a, b := HostLoad{Address: "a", Issued: 2, Succeeded: 1, InFlight: 1}, HostLoad{Address: "b", Issued: 1, Succeeded: 1}
		r := l.Collect(noWait)
		sort := cmpopts.SortSlices(func(a, b HostLoad) bool { return a.Address < b.Address })
		if diff := cmp.Diff([]ClusterLoad{{Name: "other"}, {Name: "web", Hosts: []HostLoad{a, b}}}, r.Clusters, sort, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ClusterLoad{}, "Interval")); diff != "" {
			t.Errorf("unexpected report (-want +got):\n%s", diff)
		}
		r.Commit()
		finish(x)
		wantReport(t, l, ClusterLoad{Name: "other"}, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", Succeeded: 1}}})
		wantReport(t, l, ClusterLoad{Name: "other"}, ClusterLoad{Name: "web"})
		<-time.After(removedRetention + time.Second)
		wantReport(t, l, ClusterLoad{Name: "other"}, ClusterLoad{Name: "web"})
		wantReport(t, l, ClusterLoad{Name: "other"})
		if len(l.removed) != 0 {
			t.Errorf("%d removed hosts are kept, want 0", len(l.removed))
		}
	})
}

func TestDroppedAndRejectedAreReported(t *testing.T) {
	cfg := cluster("web", "a")
	cfg.CircuitBreakers.MaxRequests = 1
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	l := s.NewLoadReporter()
	l.SetClusters(false, "web")
	x := begin(t, c)
	wantFault(t, c, protocol.Overflow)
	wantReport(t, l, ClusterLoad{Name: "web", Rejected: 1, Hosts: []HostLoad{{Address: "a", Issued: 1, InFlight: 1}}})
	finish(x)
	next := cluster("web", "a")
	next.DropOverloads = []config.DropOverload{{Category: "throttle", PerMillion: config.Millionths}}
	apply(t, s, next)
	wantFault(t, c, protocol.Dropped)
	wantFault(t, c, protocol.Dropped)
	wantReport(t, l, ClusterLoad{Name: "web", Dropped: map[string]uint64{"throttle": 2}, Hosts: []HostLoad{{Address: "a", Succeeded: 1}}})
	wantReport(t, l, ClusterLoad{Name: "web"})
}

func TestForwardedConnectionIsReported(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), cluster("web", "a"))
	l := s.NewLoadReporter()
	l.SetClusters(true)
	err := c.ForwardConn(t.Context(), ConnAddrs{}, 1, func(context.Context, *Host, time.Time) (func() error, error) {
		wantReport(t, l, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", Issued: 1, InFlight: 1}}})
		return func() error {
			wantReport(t, l, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", InFlight: 1}}})
			return nil
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantReport(t, l, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", Succeeded: 1}}})
}

func TestResponseEndCountsAsFailure(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  metrics.Outcome
		want uint64
	}{
		{"gRPC, ok", metrics.Outcome{Protocol: string(config.HTTP2), UpstreamStatus: 200}, 0},
		{"gRPC, unavailable", metrics.Outcome{Protocol: string(config.HTTP2), UpstreamStatus: 200, Code: 14}, 1},
		{"gRPC, not found", metrics.Outcome{Protocol: string(config.HTTP2), UpstreamStatus: 200, Code: 5}, 0},
		{"code of a request that is not gRPC", metrics.Outcome{Protocol: string(config.HTTP1), UpstreamStatus: 200, Code: 14}, 0},
		{"5xx head", metrics.Outcome{Protocol: string(config.HTTP2), UpstreamStatus: 503, Code: 14}, 0},
		{"no response", metrics.Outcome{Protocol: string(config.HTTP1), Reason: uint8(protocol.UpstreamReset)}, 0},
		{"interrupted response", metrics.Outcome{Protocol: string(config.HTTP1), Reason: uint8(protocol.UpstreamReset), UpstreamStatus: 200}, 1},
		{"client disconnected", metrics.Outcome{Protocol: string(config.HTTP1), Reason: uint8(protocol.ReasonDownstreamDisconnect), UpstreamStatus: 200}, 0},
	} {
		_, c := newTestCluster(t, newFakeConnector(), cluster("web", "a"))
		h := c.state.Load().hosts[0]
		batch := metrics.Batch{Outcome: tt.end}
		batch.AddRequest(metrics.Request{})
		h.Add(batch)
		if got := h.badResponses.Load(); got != tt.want {
			t.Errorf("%s: %d failures, want %d", tt.name, got, tt.want)
		}
	}
}

// TestReportsAddUp verifies that the reports, some of which are not committed, add up to the
// requests sent while hosts are added and removed.
func TestReportsAddUp(t *testing.T) {
	const workers, requests = 4, 500
	f := newFakeConnector()
	f.respond = func(_ *fakeConn, x *protocol.Exchange) error {
		if rand.N(4) == 0 {
			x.Response.Status = 500
		}
		return nil
	}
	s, c := newTestCluster(t, f, cluster("web", "a", "b"))
	l := s.NewLoadReporter()
	l.SetClusters(true)
	var want, got counts
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range requests {
				x := newExchange()
				if err := c.Serve(context.Background(), x); err != nil {
					t.Errorf("Serve: %v", err)
					return
				}
				status := x.Response.Status
				finish(x)
				mu.Lock()
				want.issued++
				if status < minServerErrorStatus {
					want.succeeded++
				} else {
					want.failed++
				}
				mu.Unlock()
			}
		})
	}
	collect := func(commit bool) {
		r := l.Collect(noWait)
		if !commit {
			return
		}
		for i := range r.Clusters {
			for _, h := range r.Clusters[i].Hosts {
				got.issued, got.succeeded, got.failed = got.issued+h.Issued, got.succeeded+h.Succeeded, got.failed+h.Failed
			}
		}
		r.Commit()
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for i := 0; ; i++ {
		select {
		case <-ended:
			collect(true)
			if got != want {
				t.Errorf("reported in total = %+v, want %+v", got, want)
			}
			return
		default:
			collect(i%3 != 0)
			apply(t, s, cluster("web", "a", fmt.Sprint("b", i%3)))
		}
	}
}
