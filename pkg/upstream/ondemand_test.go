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

// unsubscribedCluster returns a cluster with on-demand hosts that are not subscribed.
func unsubscribedCluster(name string) *config.Cluster {
	c := cluster(name)
	c.OnDemand = config.OnDemand{Wait: hostsWait, Unsubscribed: true}
	return c
}

// subscribedCluster returns a cluster with on-demand hosts that are subscribed.
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
		var wg sync.WaitGroup
		for range exchanges {
			wg.Go(func() {
				if host := serveOne(t, c); host != "a" {
					t.Errorf("host = %q, want a", host)
				}
			})
		}
		<-s.OnDemand().Requested()
		synctest.Wait()
		if got := s.OnDemand().TakeRequested(); !slices.Equal(got, []string{"web"}) {
			t.Errorf("TakeRequested = %v, want web once", got)
		}
		if d := s.Describe()[0]; d.Pending != exchanges || !d.Unsubscribed {
			t.Errorf("%d pending exchanges, unsubscribed = %v, want %d and true", d.Pending, d.Unsubscribed, exchanges)
		}
		apply(t, s, subscribedCluster("web", "a"))
		wg.Wait()
		serveOne(t, c)
		if got := s.OnDemand().TakeRequested(); len(got) != 0 {
			t.Errorf("TakeRequested = %v, want none: the cluster has hosts", got)
		}
		if d := s.Describe()[0]; d.Pending != 0 || d.Unsubscribed {
			t.Errorf("%d pending exchanges, unsubscribed = %v, want 0 and false", d.Pending, d.Unsubscribed)
		}
	})
}

func TestOnDemandTimeout(t *testing.T) {
	for _, tt := range []struct {
		name       string
		deadline   time.Duration // of the exchange; 0: none
		disconnect bool          // the client disconnects after a second
		remove     bool          // the cluster is removed
		want       protocol.Reason
		after      time.Duration
	}{
		{"on-demand timeout", 0, false, false, protocol.ReasonOnDemandTimeout, hostsWait},
		{"earlier deadline of the exchange", 2 * time.Second, false, false, protocol.UpstreamTimeout, 2 * time.Second},
		{"client disconnects", 0, true, false, protocol.ReasonDownstreamDisconnect, time.Second},
		{"cluster is removed", 0, false, true, protocol.NoCluster, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newTestCluster(t, newFakeConnector(), unsubscribedCluster("web"))
				defer s.Close()
				ctx := t.Context()
				if tt.disconnect {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Second)
					defer cancel()
				}
				x := newExchange()
				start := time.Now()
				if tt.deadline > 0 {
					x.Deadline = start.Add(tt.deadline)
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
				if took := time.Since(start); took != tt.after {
					t.Errorf("Serve took %v, want %v", took, tt.after)
				}
				if n := c.InFlight(); n != 0 {
					t.Errorf("%d exchanges are in flight, want 0", n)
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
		var wg sync.WaitGroup
		wg.Go(func() { wantFault(t, c, protocol.ReasonOnDemandTimeout) })
		synctest.Wait()
		wantFault(t, c, protocol.Overflow)
		wg.Wait()
	})
}

func TestForwardedConnectionsWaitForHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newTestCluster(t, newFakeConnector(), unsubscribedCluster("web"))
		defer s.Close()
		forward := func(ctx context.Context) error {
			return c.ForwardConn(ctx, ConnAddrs{}, 1, func(_ context.Context, h *Host, _ time.Time) (func() error, error) {
				if h.Name() != "a" {
					t.Errorf("host %s, want a", h.Name())
				}
				return func() error { return nil }, nil
			})
		}
		if err := forward(t.Context()); protocol.ReasonOf(err) != protocol.ReasonOnDemandTimeout {
			t.Errorf("ForwardConn = %v, want an on-demand timeout", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := forward(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		apply(t, s, subscribedCluster("web", "a"))
		wg.Wait()
	})
}

func TestLeaseRequestsHostsWithoutWaiting(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), unsubscribedCluster("web"))
	_, err := c.Lease(0, nil)
	if protocol.ReasonOf(err) != protocol.ReasonOnDemandTimeout {
		t.Errorf("Lease = %v, want an on-demand timeout", err)
	}
	if got := s.OnDemand().TakeRequested(); !slices.Equal(got, []string{"web"}) {
		t.Errorf("TakeRequested = %v, want web", got)
	}
	apply(t, s, subscribedCluster("web", "a"))
	lease, err := c.Lease(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease.Release()
}

func TestOnDemandInUse(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), subscribedCluster("web", "a"))
	d := s.OnDemand()
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"no exchange yet", func() {}, false},
		{"after an exchange", func() { serveOne(t, c) }, true},
		{"no exchange since the last call", func() {}, false},
		{"after RequestHosts", c.RequestHosts, true},
	} {
		step.do()
		if got := d.InUse("web"); got != step.want {
			t.Errorf("%s: InUse = %v, want %v", step.name, got, step.want)
		}
	}
	x := begin(t, c)
	for range 2 {
		if !d.InUse("web") {
			t.Error("InUse = false while an exchange is in flight")
		}
	}
	finish(x)
	if d.InUse("other") {
		t.Error("InUse = true for an unknown cluster")
	}
}

// TestUnsubscribedClusterReleasesHosts verifies that unsubscribing closes idle connections
// immediately, and the connection of an exchange in flight at its end.
func TestUnsubscribedClusterReleasesHosts(t *testing.T) {
	f := newFakeConnector()
	cfg := subscribedCluster("web", "a")
	cfg.OutlierDetection = &config.OutlierDetection{Interval: time.Hour}
	s, c := newTestCluster(t, f, cfg)
	x, y := begin(t, c), begin(t, c)
	finish(y)
	if n := f.numOpen(); n != 2 {
		t.Fatalf("%d connections are open, want 2", n)
	}
	unsubscribed := unsubscribedCluster("web")
	unsubscribed.OutlierDetection = cfg.OutlierDetection
	apply(t, s, unsubscribed)
	if n := f.numOpen(); n != 1 {
		t.Errorf("%d connections are open, want only that of the exchange in flight", n)
	}
	finish(x)
	if n := f.numOpen(); n != 0 {
		t.Errorf("%d connections are open, want 0", n)
	}
	if c.outlier != nil {
		t.Error("outlier detection runs without hosts")
	}
	apply(t, s, cfg)
	serveOne(t, c)
	if c.outlier == nil {
		t.Error("outlier detection does not run although the cluster has hosts")
	}
}

// TestOnDemandDoesNotAllocate verifies that the on-demand check of a subscribed cluster does not
// allocate.
func TestOnDemandDoesNotAllocate(t *testing.T) {
	_, c := newTestCluster(t, newFakeConnector(), subscribedCluster("web", "a"))
	var err error
	if n := testing.AllocsPerRun(100, func() {
		if c.mustAwaitHosts(c.state.Load()) {
			err = errors.New("the cluster has no hosts")
		}
	}); n != 0 || err != nil {
		t.Errorf("%v allocations and error %v, want none", n, err)
	}
}

// TestNoExchangeFailsDuringUnsubscribe verifies that an exchange that arrives while the cluster is
// unsubscribed uses the previous hosts or waits for the next ones.
func TestNoExchangeFailsDuringUnsubscribe(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), subscribedCluster("web", "a"))
	defer s.Close()
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := newExchange().Serve(t.Context(), (&ClusterPicker{Cluster: c})); err != nil {
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
	close(done)
	wg.Wait()
}
