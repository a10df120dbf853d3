package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

const hostsWait = 5 * time.Second

// unsubscribedCluster is a cluster whose hosts are on demand and not there.
func unsubscribedCluster(name string) *config.Cluster {
	c := cluster(name)
	c.OnDemand = config.OnDemand{Wait: hostsWait, Unsubscribed: true}
	return c
}

// subscribedCluster is the same with hosts.
func subscribedCluster(name string, hosts ...string) *config.Cluster {
	c := cluster(name, hosts...)
	c.OnDemand = config.OnDemand{Wait: hostsWait}
	return c
}

func TestExchangesWaitForOnDemandHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), unsubscribedCluster("web"))
		defer s.Close()
		const exchanges = 20
		var serving sync.WaitGroup
		for range exchanges {
			serving.Go(func() {
				if host := serveOne(t, c); host != "a" {
					t.Errorf("host = %q, want a", host)
				}
			})
		}
		<-s.OnDemand().Requested()
		synctest.Wait()
		if got := s.OnDemand().TakeRequested(); !slices.Equal(got, []string{"web"}) {
			t.Errorf("requested hosts of %v, want web once", got)
		}
		if d := s.Describe()[0]; d.Pending != exchanges || !d.Unsubscribed {
			t.Errorf("%d exchanges wait, asleep %v, want %d and true", d.Pending, d.Unsubscribed, exchanges)
		}
		apply(t, s, subscribedCluster("web", "a"))
		serving.Wait()
		serveOne(t, c)
		if got := s.OnDemand().TakeRequested(); len(got) != 0 {
			t.Errorf("requested hosts of %v although the hosts are known", got)
		}
		if d := s.Describe()[0]; d.Pending != 0 || d.Unsubscribed {
			t.Errorf("%d exchanges wait, asleep %v, want none and false", d.Pending, d.Unsubscribed)
		}
	})
}

func TestOnDemandTimeout(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deadline time.Duration // of the exchange; 0: none
		leaves   bool          // the connection ends after a second
		remove   bool          // the cluster is
		want     protocol.Reason
		after    time.Duration
	}{
		{"the configured time", 0, false, false, protocol.ReasonOnDemandTimeout, hostsWait},
		{"the deadline of the exchange, if that is sooner", 2 * time.Second, false, false, protocol.UpstreamTimeout, 2 * time.Second},
		{"a caller that leaves", 0, true, false, protocol.ReasonDownstreamDisconnect, time.Second},
		{"a cluster that is removed", 0, false, true, protocol.NoCluster, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newTestCluster(t, newFakeConnector(), unsubscribedCluster("web"))
				defer s.Close()
				ctx := t.Context()
				if tt.leaves {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Second)
					defer cancel()
				}
				x := get()
				begun := time.Now()
				if tt.deadline > 0 {
					x.Deadline = begun.Add(tt.deadline)
				}
				if tt.remove {
					go func() {
						synctest.Wait()
						apply(t, s)
					}()
				}
				err := x.Serve(ctx, (&ClusterPicker{Cluster: c}))
				if got := protocol.ReasonOf(err); got != tt.want {
					t.Errorf("Serve = %v, want %v", err, tt.want)
				}
				if took := time.Since(begun); took != tt.after {
					t.Errorf("it took %v, want %v", took, tt.after)
				}
				if n := c.InFlight(); n != 0 {
					t.Errorf("%d exchanges are in flight, want none", n)
				}
			})
		})
	}
}

func TestWaitForHostsIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := unsubscribedCluster("web")
		cfg.CircuitBreakers.MaxPendingRequests = 1
		s, c := newTestCluster(t, newFakeConnector(), cfg)
		defer s.Close()
		var first sync.WaitGroup
		first.Go(func() { wantFault(t, c, protocol.ReasonOnDemandTimeout) })
		synctest.Wait()
		wantFault(t, c, protocol.Overflow)
		first.Wait()
	})
}

func TestForwardedConnectionsWaitForHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), unsubscribedCluster("web"))
		defer s.Close()
		carry := func(ctx context.Context) error {
			return c.ForwardConn(ctx, ConnAddrs{}, 1, func(_ context.Context, h *Host, _ time.Time) (func() error, error) {
				if h.Name() != "a" {
					t.Errorf("host %s, want a", h.Name())
				}
				return func() error { return nil }, nil
			})
		}
		if err := carry(t.Context()); protocol.ReasonOf(err) != protocol.ReasonOnDemandTimeout {
			t.Errorf("CarryOn = %v, want not supplied", err)
		}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := carry(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		apply(t, s, subscribedCluster("web", "a"))
		serving.Wait()
	})
}

func TestLeaseRequestsHostsWithoutWaiting(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), unsubscribedCluster("web"))
	_, err := c.Lease(0, nil)
	if protocol.ReasonOf(err) != protocol.ReasonOnDemandTimeout {
		t.Errorf("Assign = %v, want not supplied", err)
	}
	if got := s.OnDemand().TakeRequested(); !slices.Equal(got, []string{"web"}) {
		t.Errorf("requested hosts of %v, want web", got)
	}
	apply(t, s, subscribedCluster("web", "a"))
	a, err := c.Lease(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Release()
}

func TestUsedWhileExchangesArriveOrAreInFlight(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), subscribedCluster("web", "a"))
	d := s.OnDemand()
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nobody has come", func() {}, false},
		{"one has come and gone", func() { serveOne(t, c) }, true},
		{"nobody since", func() {}, false},
		{"somebody wants to know about its hosts", c.RequestHosts, true},
	} {
		step.do()
		if got := d.InUse("web"); got != step.want {
			t.Errorf("%s: Used = %v, want %v", step.name, got, step.want)
		}
	}
	x := begin(t, c)
	for range 2 {
		if !d.InUse("web") {
			t.Error("Used = false while an exchange is in flight")
		}
	}
	finish(x)
	if d.InUse("other") {
		t.Error("Used = true for an unknown cluster")
	}
}

// TestUnsubscribedClusterReleasesHosts: connections that are idle end at once, the
// exchange that is on one ends as it should.
func TestUnsubscribedClusterReleasesHosts(t *testing.T) {
	w := newFakeConnector()
	cfg := subscribedCluster("web", "a")
	cfg.OutlierDetection = &config.OutlierDetection{Interval: time.Hour}
	s, c := newTestCluster(t, w, cfg)
	x, y := begin(t, c), begin(t, c)
	finish(y)
	if n := w.open(); n != 2 {
		t.Fatalf("%d connections are open, want 2", n)
	}
	sleeping := unsubscribedCluster("web")
	sleeping.OutlierDetection = cfg.OutlierDetection
	apply(t, s, sleeping)
	if n := w.open(); n != 1 {
		t.Errorf("%d connections are open, want that of the exchange in flight", n)
	}
	finish(x)
	if n := w.open(); n != 0 {
		t.Errorf("%d connections are open, want none", n)
	}
	if c.outlier != nil {
		t.Error("outlier detection runs although there are no hosts")
	}
	apply(t, s, cfg)
	serveOne(t, c)
	if c.outlier == nil {
		t.Error("outlier detection does not run although there are hosts again")
	}
}

// TestOnDemandDoesNotAllocate once they are there.
func TestOnDemandDoesNotAllocate(t *testing.T) {
	_, c := newTestCluster(t, newFakeConnector(), subscribedCluster("web", "a"))
	var failed error
	if n := testing.AllocsPerRun(100, func() {
		if c.mustWait(c.state.Load()) {
			failed = errors.New("the hosts are absent")
		}
	}); n != 0 || failed != nil {
		t.Errorf("%v allocations, error %v, want neither", n, failed)
	}
}

// TestNoExchangeFailsDuringUnsubscribe: who comes in that moment is served by
// the hosts that there were, or waits for those to come.
func TestNoExchangeFailsDuringUnsubscribe(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), subscribedCluster("web", "a"))
	defer s.Close()
	var serving sync.WaitGroup
	ended := make(chan struct{})
	for range 2 {
		serving.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if err := get().Serve(t.Context(), (&ClusterPicker{Cluster: c})); err != nil {
					t.Errorf("Serve = %v, want a response", err)
					return
				}
			}
		})
	}
	for range 5000 {
		apply(t, s, unsubscribedCluster("web"))
		apply(t, s, subscribedCluster("web", "a"))
	}
	close(ended)
	serving.Wait()
}
