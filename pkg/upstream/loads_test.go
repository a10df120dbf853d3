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

// atOnce is how long nothing has to be waited for.
func atOnce() {}

// tells holds that a report says what is wanted, and that it is told.
func tells(t *testing.T, l *LoadReporter, want ...ClusterLoad) {
	t.Helper()
	r := l.Collect(atOnce)
	if diff := cmp.Diff(want, r.Clusters, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ClusterLoad{}, "Interval")); diff != "" {
		t.Errorf("the report is not as wanted (-want +got):\n%s", diff)
	}
	r.Commit()
}

// answered has status be what hosts answer.
func (w *world) answered(status int) {
	w.answers = func(_ *wire, x *protocol.Exchange) error {
		x.Response.Status = status
		return nil
	}
}

func TestAReportIsWhatHappenedSinceTheLast(t *testing.T) {
	w := newWorld()
	cfg := cluster("web", "a")
	cfg.Hosts[0].Priority, cfg.Hosts[0].Locality = 1, config.Locality{Zone: "z"}
	s, c := one(t, w, cfg)
	is := func(issued, succeeded, failed, inFlight uint64) ClusterLoad {
		return ClusterLoad{Name: "web", Hosts: []HostLoad{{
			Address: "a", Priority: 1, Locality: config.Locality{Zone: "z"}, Issued: issued, Succeeded: succeeded, Failed: failed, InFlight: inFlight,
		}}}
	}
	do(t, c) // before anybody asked
	l := s.Loads()
	defer l.Close()
	tells(t, l)
	l.SetClusters(false, "web", "not there yet")
	tells(t, l, ClusterLoad{Name: "web"})
	do(t, c)
	x := begin(t, c)
	tells(t, l, is(2, 1, 0, 1))
	tells(t, l, is(0, 0, 0, 1))
	finish(x)
	tells(t, l, is(0, 1, 0, 0))
	w.answered(503)
	do(t, c)
	w.answered(404)
	do(t, c)
	tells(t, l, is(2, 1, 1, 0))
	w.set(w.refuse, "a", true)
	for _, conn := range w.conns {
		conn.dead.Store(true)
	}
	fails(t, c, protocol.ConnectFailure)
	l.SetClusters(false, "web") // it goes on
	tells(t, l, is(1, 0, 1, 0))

	l.SetClusters(false)
	w.set(w.refuse, "a", false)
	l.SetClusters(true)
	tells(t, l, ClusterLoad{Name: "web"})
}

func TestAReportThatIsNotToldIsInTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster("web", "a")
		s, c := one(t, newWorld(), cfg)
		l := s.Loads()
		l.SetClusters(true)
		do(t, c)
		<-time.After(time.Second)
		if r := l.Collect(atOnce); r.Clusters[0].Hosts[0].Issued != 1 || r.Clusters[0].Interval != time.Second {
			t.Errorf("the first report is %+v", r.Clusters)
		}
		do(t, c)
		<-time.After(time.Second)
		r := l.Collect(atOnce)
		if r.Clusters[0].Hosts[0].Issued != 2 || r.Clusters[0].Hosts[0].Succeeded != 2 || r.Clusters[0].Interval != 2*time.Second {
			t.Errorf("the second report is %+v", r.Clusters)
		}
		r.Commit()
		<-time.After(time.Second)
		if r := l.Collect(atOnce); len(r.Clusters[0].Hosts) != 0 || r.Clusters[0].Interval != time.Second {
			t.Errorf("the third report is %+v", r.Clusters)
		}
	})
}

// TestHostsThatHaveLeftAreNotRememberedWithoutEnd, while nobody takes reports.
func TestHostsThatHaveLeftAreNotRememberedWithoutEnd(t *testing.T) {
	s, _ := one(t, newWorld(), cluster("web", "a"))
	l := s.Loads()
	defer l.Close()
	l.SetClusters(true)
	for round := range 3 {
		var hosts []string
		for i := range mostLeft / 2 {
			hosts = append(hosts, fmt.Sprintf("%d.%d", round, i))
		}
		apply(t, s, cluster("web", hosts...))
	}
	apply(t, s, cluster("web", "a"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.left) != mostLeft {
		t.Errorf("%d removed hosts are remembered, want %d", len(l.left), mostLeft)
	}
}

func TestWhatHostsThatHaveLeftHadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := one(t, newWorld(), cluster("web", "a"))
		l := s.Loads()
		l.SetClusters(true)
		do(t, c)
		x := begin(t, c)
		apply(t, s, cluster("web", "b"))
		do(t, c)
		apply(t, s, cluster("web")) // "b" was never looked at
		apply(t, s, cluster("other", "a"))
		a, b := HostLoad{Address: "a", Issued: 2, Succeeded: 1, InFlight: 1}, HostLoad{Address: "b", Issued: 1, Succeeded: 1}
		r := l.Collect(atOnce)
		sort := cmpopts.SortSlices(func(a, b HostLoad) bool { return a.Address < b.Address })
		if diff := cmp.Diff([]ClusterLoad{{Name: "other"}, {Name: "web", Hosts: []HostLoad{a, b}}}, r.Clusters, sort, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ClusterLoad{}, "Interval")); diff != "" {
			t.Errorf("the report is not as wanted (-want +got):\n%s", diff)
		}
		r.Commit()
		finish(x)
		tells(t, l, ClusterLoad{Name: "other"}, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", Succeeded: 1}}})
		tells(t, l, ClusterLoad{Name: "other"}, ClusterLoad{Name: "web"})
		<-time.After(lingering + time.Second)
		tells(t, l, ClusterLoad{Name: "other"}, ClusterLoad{Name: "web"})
		tells(t, l, ClusterLoad{Name: "other"})
		if len(l.left) != 0 {
			t.Errorf("%d hosts are still kept", len(l.left))
		}
	})
}

func TestWhatIsDroppedOrRefusedIsReported(t *testing.T) {
	cfg := cluster("web", "a")
	cfg.Breakers.MaxRequests = 1
	s, c := one(t, newWorld(), cfg)
	l := s.Loads()
	l.SetClusters(false, "web")
	x := begin(t, c)
	fails(t, c, protocol.Overflow)
	tells(t, l, ClusterLoad{Name: "web", Refused: 1, Hosts: []HostLoad{{Address: "a", Issued: 1, InFlight: 1}}})
	finish(x)
	next := cluster("web", "a")
	next.Drops = []config.Drop{{Category: "throttle", Share: config.Millionths}}
	apply(t, s, next)
	fails(t, c, protocol.Dropped)
	fails(t, c, protocol.Dropped)
	tells(t, l, ClusterLoad{Name: "web", Dropped: map[string]uint64{"throttle": 2}, Hosts: []HostLoad{{Address: "a", Succeeded: 1}}})
	tells(t, l, ClusterLoad{Name: "web"})
}

func TestAConnectionIsARequestOfItsHost(t *testing.T) {
	s, c := one(t, newWorld(), cluster("web", "a"))
	l := s.Loads()
	l.SetClusters(true)
	err := c.ForwardConn(t.Context(), ConnAddrs{}, 1, func(context.Context, *Host, time.Time) (func() error, error) {
		tells(t, l, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", Issued: 1, InFlight: 1}}})
		return func() error {
			tells(t, l, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", InFlight: 1}}})
			return nil
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tells(t, l, ClusterLoad{Name: "web", Hosts: []HostLoad{{Address: "a", Succeeded: 1}}})
}

func TestTheEndOfAnAnswerMayShowThatItsHostHasFailed(t *testing.T) {
	for _, c := range []struct {
		name string
		end  metrics.Outcome
		want uint64
	}{
		{"gRPC, ok", metrics.Outcome{Protocol: string(config.HTTP2), Answer: 200}, 0},
		{"gRPC, unavailable", metrics.Outcome{Protocol: string(config.HTTP2), Answer: 200, Code: 14}, 1},
		{"gRPC, not found", metrics.Outcome{Protocol: string(config.HTTP2), Answer: 200, Code: 5}, 0},
		{"no gRPC", metrics.Outcome{Protocol: string(config.HTTP1), Answer: 200, Code: 14}, 0},
		{"bad by its head", metrics.Outcome{Protocol: string(config.HTTP2), Answer: 503, Code: 14}, 0},
		{"no answer", metrics.Outcome{Protocol: string(config.HTTP1), Reason: uint8(protocol.UpstreamReset)}, 0},
		{"cut short", metrics.Outcome{Protocol: string(config.HTTP1), Reason: uint8(protocol.UpstreamReset), Answer: 200}, 1},
		{"the caller left", metrics.Outcome{Protocol: string(config.HTTP1), Reason: uint8(protocol.ReasonDownstreamDisconnect), Answer: 200}, 0},
	} {
		_, cell := one(t, newWorld(), cluster("web", "a"))
		h := cell.state.Load().hosts[0]
		sum := metrics.Sum{Outcome: c.end}
		sum.Count(metrics.Request{})
		h.Add(sum)
		if got := h.bad.Load(); got != c.want {
			t.Errorf("%s: %d failures are counted, want %d", c.name, got, c.want)
		}
	}
}

// TestReportsAddUp holds that reports which are taken, and some of them lost, while
// requests are made and hosts come and go, come to what was asked.
func TestReportsAddUp(t *testing.T) {
	const workers, requests = 4, 500
	w := newWorld()
	w.answers = func(_ *wire, x *protocol.Exchange) error {
		if rand.N(4) == 0 {
			x.Response.Status = 500
		}
		return nil
	}
	s, c := one(t, w, cluster("web", "a", "b"))
	l := s.Loads()
	l.SetClusters(true)
	var want, got counts
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range workers {
		asking.Go(func() {
			for range requests {
				x := get()
				if err := c.Serve(context.Background(), x); err != nil {
					t.Errorf("Serve: %v", err)
					return
				}
				status := x.Response.Status
				finish(x)
				mu.Lock()
				want.issued++
				if status < serverFailed {
					want.succeeded++
				} else {
					want.failed++
				}
				mu.Unlock()
			}
		})
	}
	take := func(told bool) {
		r := l.Collect(atOnce)
		if !told {
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
	go func() { asking.Wait(); close(ended) }()
	for i := 0; ; i++ {
		select {
		case <-ended:
			take(true)
			if got != want {
				t.Errorf("reported are %+v, want %+v", got, want)
			}
			return
		default:
			take(i%3 != 0)
			apply(t, s, cluster("web", "a", fmt.Sprint("b", i%3)))
		}
	}
}
