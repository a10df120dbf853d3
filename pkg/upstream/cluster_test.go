package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

func TestServeRecordsAttempt(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), cluster("web", "a"))
	x := begin(t, c)
	wantList(t, "attempts", attempts(x), "a:200")
	if x.Record.Cluster != protocol.Named(c) {
		t.Errorf("Record.Cluster = %v, want the cluster", x.Record.Cluster)
	}
	wantCounts(t, s, 1, 1, 0)
	finish(x)
	wantCounts(t, s, 0, 1, 1)
}

func TestServeFaults(t *testing.T) {
	refusing := cluster("dead", "a")
	tests := []struct {
		name   string
		config *config.Cluster
		want   protocol.Reason
	}{
		{"unconfigured cluster", nil, protocol.NoCluster},
		{"cluster without hosts", cluster("web"), protocol.NoHealthyHost},
		{"hosts without weight", func() *config.Cluster {
			c := cluster("web", "a", "b")
			c.Hosts[0].Weight, c.Hosts[1].Weight = 0, 0
			return c
		}(), protocol.NoHealthyHost},
		{"host that refuses connections", refusing, protocol.ConnectFailure},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeConnector()
			f.refuses["a"] = tt.config == refusing
			s := newTestSet(t, f)
			c := s.Get("web")
			if tt.config != nil {
				apply(t, s, tt.config)
				c = s.Get(tt.config.Name)
			}
			x := wantFault(t, c, tt.want)
			if x.Response.Status != 0 {
				t.Errorf("status %d is set; want 0", x.Response.Status)
			}
			wantCounts(t, s, 0, 0, 0)
		})
	}
}

func TestServeWithoutConnector(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), cluster("web", "a"))
	x := newExchange()
	x.Meta.Protocol = string(config.Dubbo)
	err := x.Serve(context.Background(), (&ClusterPicker{Cluster: c}))
	if protocol.ReasonOf(err) != protocol.Internal || !strings.Contains(err.Error(), "dubbo") {
		t.Errorf("Serve = %v, want an internal error that names dubbo", err)
	}
	wantCounts(t, s, 0, 0, 0)
}

func TestUpstreamProtocolDefaultsToDownstream(t *testing.T) {
	http1, http2 := newFakeConnector(), newFakeConnector()
	s := newTestSet(t, http1, func(o *Options) { o.Connectors[config.HTTP2] = http2 })
	apply(t, s, cluster("web", "a"))
	for _, tt := range []struct {
		proto config.Protocol
		want  *fakeConnector
	}{{"", http1}, {config.Auto, http1}, {config.HTTP1, http1}, {config.HTTP2, http2}} {
		x := newExchange()
		if err := x.Serve(context.Background(), (&ClusterPicker{Cluster: s.Get("web"), Protocol: tt.proto})); err != nil {
			t.Fatal(err)
		}
		if got := x.Response.Body.(*fakeBody).conn.connector; got != tt.want {
			t.Errorf("protocol %q: served by the wrong connector", tt.proto)
		}
		finish(x)
	}
	if len(http1.conns) != 1 || len(http2.conns) != 1 {
		t.Errorf("%d and %d connections, want one of each protocol", len(http1.conns), len(http2.conns))
	}
}

func TestOnHostSelectedRunsBeforeEachAttempt(t *testing.T) {
	f := newFakeConnector()
	f.refuses["a"] = true
	s, c := newTestCluster(t, f, cluster("web", "a", "b"))
	for range 2 { // round robin starts at a random host
		var selected []string
		x := newExchange()
		picker := &ClusterPicker{Cluster: c, OnHostSelected: func(x *protocol.Exchange, h *Host) {
			if x.Record.Host() != protocol.Named(h) {
				t.Errorf("selected host %s is not the last attempt", h.Name())
			}
			selected = append(selected, h.Name())
		}}
		if err := x.Serve(context.Background(), picker); err != nil {
			t.Fatal(err)
		}
		var tried []string
		for _, a := range x.Record.Attempts {
			tried = append(tried, a.Host.Name())
		}
		wantList(t, "chosen", selected, tried...)
		finish(x)
	}
	wantCounts(t, s, 0, 1, 1)
}

// TestUnreachableHostIsSkipped verifies that an unreachable host costs one refused connect, and
// that later exchanges do not try it during its backoff.
func TestUnreachableHostIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.refuses["a"] = true
		s, c := newTestCluster(t, f, cluster("web", "a", "b", "c"))
		defer s.Close()
		start := time.Now()
		for range 300 {
			if host := serveOne(t, c); host == "a" {
				t.Fatal("the unreachable host responded")
			}
		}
		dials := f.dialed()
		slices.Sort(dials)
		wantList(t, "dials", dials, "a", "b", "c")
		if waited := time.Since(start); waited != 0 {
			t.Errorf("300 exchanges waited %v, want 0", waited)
		}
	})
}

func TestDownHostIsProbedAfterBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.refuses["a"] = true
		s, c := newTestCluster(t, f, cluster("web", "a", "b"))
		defer s.Close()
		// The backoff grows from 100 ms to 10 s and is shortened randomly by up to a quarter. This
		// makes about a dozen attempts within a minute.
		start := time.Now()
		for time.Since(start) < time.Minute {
			serveOne(t, c)
			advanceClock(10 * time.Millisecond)
		}
		attempts := 0
		for _, host := range f.dialed() {
			if host == "a" {
				attempts++
			}
		}
		if attempts < 10 || attempts > 16 {
			t.Errorf("an unreachable host was tried %d times in a minute, want 10 to 16", attempts)
		}
		f.set(f.refuses, "a", false)
		advanceClock(hosthealth.MaxBackoff)
		served := map[string]int{}
		for range 100 {
			served[serveOne(t, c)]++
		}
		if served["a"] < 49 || served["b"] < 49 {
			t.Errorf("after the host recovered, exchanges per host = %v, want half each", served)
		}
	})
}

// TestOneRecoveryProbeAtATime verifies that only one exchange at a time probes a host that hangs.
func TestOneRecoveryProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.hangs["a"] = true
		cfg := cluster("web", "a", "b")
		cfg.ConnectTimeout = 2 * time.Second
		s, c := newTestCluster(t, f, cfg)
		defer s.Close()
		for found := false; !found; { // round robin starts at a random host
			x := begin(t, c)
			found = len(x.Record.Attempts) == 2
			finish(x)
		}
		advanceClock(hosthealth.MaxBackoff)
		f.dialed()
		results := make(chan time.Duration, 20)
		for range 20 {
			go func() {
				start := time.Now()
				serveOne(t, c)
				results <- time.Since(start)
			}()
		}
		slow := 0
		for range 20 {
			if d := <-results; d > 0 {
				slow++
				if d != 2*time.Second {
					t.Errorf("the recovery probe took %v, want the connect timeout", d)
				}
			}
		}
		if slow != 1 {
			t.Errorf("%d of 20 exchanges waited for the host that hangs, want 1", slow)
		}
	})
}

// TestAllHostsDownAreStillTried verifies that hosts are tried during their backoff if all are down.
// Otherwise a short failure of all hosts would cause an outage until a backoff ends.
func TestAllHostsDownAreStillTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.refuses["a"], f.refuses["b"] = true, true
		s, c := newTestCluster(t, f, cluster("web", "a", "b"))
		defer s.Close()
		for range 20 {
			x := wantFault(t, c, protocol.ConnectFailure)
			if n := len(x.Record.Attempts); n != 2 {
				t.Fatalf("%d attempts, want each host once", n)
			}
		}
		f.set(f.refuses, "b", false)
		if host := serveOne(t, c); host != "b" {
			t.Errorf("served by %s, want b", host)
		}
		wantCounts(t, s, 0, 1, 1)
	})
}

func TestConnectsToUnhealthyHostsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		var hosts []string
		for i := range 100 {
			hosts = append(hosts, fmt.Sprint("h", i))
			f.refuses[hosts[i]] = true
		}
		_, c := newTestCluster(t, f, cluster("web", hosts...))
		wantFault(t, c, protocol.ConnectFailure) // marks all hosts down
		if n := len(f.dialed()); n != 100 {
			t.Errorf("the first exchange tried %d hosts, want all 100", n)
		}
		wantFault(t, c, protocol.ConnectFailure)
		if n := len(f.dialed()); n != maxUnhealthyPicks {
			t.Errorf("the next exchange tried %d hosts, want %d", n, maxUnhealthyPicks)
		}
	})
}

func TestRetryGoesToAnotherHost(t *testing.T) {
	f := newFakeConnector()
	_, c := newTestCluster(t, f, cluster("web", "a", "b", "c"))
	for range 50 {
		x := newExchange()
		for range 3 {
			if err := c.Serve(context.Background(), x); err != nil {
				t.Fatal(err)
			}
			x.ResetResponse()
		}
		got := attempts(x)
		slices.Sort(got)
		wantList(t, "three attempts", got, "a:200", "b:200", "c:200")
		// The fourth attempt has no untried host.
		if err := c.Serve(context.Background(), x); err != nil {
			t.Fatal(err)
		}
		finish(x)
	}
}

// TestRetryPrefersTriedHostOverDownHost verifies that a retry prefers a host that responded with an
// error to a host that is down.
func TestRetryPrefersTriedHostOverDownHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.refuses["b"] = true
		_, c := newTestCluster(t, f, cluster("web", "a", "b"))
		serveOne(t, c)
		serveOne(t, c)
		f.dialed()
		for range 20 {
			x := begin(t, c)
			x.ResetResponse()
			if err := c.Serve(context.Background(), x); err != nil {
				t.Fatal(err)
			}
			finish(x)
			wantList(t, "attempts", attempts(x), "a:200", "a:200")
		}
		wantList(t, "dials", f.dialed())
	})
}

func TestFailureAfterSendingIsNotTriedElsewhere(t *testing.T) {
	f := newFakeConnector()
	f.respond = func(*fakeConn, *protocol.Exchange) error {
		return protocol.Faultf(protocol.UpstreamTimeout, "slow")
	}
	s, c := newTestCluster(t, f, cluster("web", "a", "b"))
	x := wantFault(t, c, protocol.UpstreamTimeout)
	if n := len(x.Record.Attempts); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	wantCounts(t, s, 0, 0, 0)
}

func TestPlainConnectErrorBecomesConnectFailure(t *testing.T) {
	s := newTestSet(t, nil, func(o *Options) { o.Connectors[config.HTTP1] = brokenConnector{} })
	apply(t, s, cluster("web", "a"))
	x := wantFault(t, s.Get("web"), protocol.ConnectFailure)
	wantList(t, "attempts", attempts(x), "a:connect_failure")
}

type brokenConnector struct{}

func (brokenConnector) Multiplexed() bool { return false }

func (brokenConnector) Connect(context.Context, *Host, time.Time, func(bool)) (pool.Connection, error) {
	return nil, errors.New("broken")
}

func TestConnectTimes(t *testing.T) {
	tests := []struct {
		name     string
		connect  time.Duration // connect_timeout
		deadline time.Duration // of the exchange; 0: none
		want     protocol.Reason
		took     time.Duration
		health   string
		open     int64 // connects that continue, because they belong to the pool
	}{
		{"connect_timeout passes", 3 * time.Second, 0, protocol.ConnectTimeout, 3 * time.Second, HealthDown, 0},
		{"exchange deadline after connect_timeout", 3 * time.Second, 9 * time.Second, protocol.ConnectTimeout, 3 * time.Second, HealthDown, 0},
		{"exchange deadline before connect_timeout, after minConnectTime", 10 * time.Second, 2 * time.Second, protocol.UpstreamTimeout, 2 * time.Second, HealthDown, 1},
		{"exchange deadline before minConnectTime", 10 * time.Second, 50 * time.Millisecond, protocol.UpstreamTimeout, 50 * time.Millisecond, HealthUp, 1},
		{"no connect_timeout", 0, 4 * time.Second, protocol.UpstreamTimeout, 4 * time.Second, HealthDown, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeConnector()
				f.hangs["a"] = true
				cfg := cluster("web", "a")
				cfg.ConnectTimeout = tt.connect
				s, c := newTestCluster(t, f, cfg)
				defer s.Close()
				x := newExchange()
				start := time.Now()
				if tt.deadline > 0 {
					x.Deadline = start.Add(tt.deadline)
				}
				err := c.Serve(context.Background(), x)
				if got := protocol.ReasonOf(err); got != tt.want {
					t.Errorf("Serve = %v, want %v", err, tt.want)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("Serve took %v, want %v", took, tt.took)
				}
				if got := s.Describe()[0].Hosts[0].Health; got != tt.health {
					t.Errorf("health = %s, want %s", got, tt.health)
				}
				synctest.Wait()
				wantCounts(t, s, 0, tt.open, 0)
				if tt.connect > 0 {
					advanceClock(tt.connect)
					wantCounts(t, s, 0, 0, 0)
				}
			})
		})
	}
}

func TestDisconnectDuringConnectDoesNotMarkHostDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConnector()
		f.hangs["a"] = true
		s, c := newTestCluster(t, f, cluster("web", "a", "b"))
		defer s.Close()
		for range 2 { // one of the two exchanges tries a
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(5*time.Second, cancel)
			x := newExchange()
			switch err := c.Serve(ctx, x); protocol.ReasonOf(err) {
			case protocol.ReasonNone:
				finish(x)
			case protocol.ReasonDownstreamDisconnect:
			default:
				t.Errorf("Serve = %v; want nil or a disconnect", err)
			}
			cancel()
		}
		for _, h := range s.Describe()[0].Hosts {
			if h.Health != HealthUp {
				t.Errorf("health of host %s is %s, want up", h.Address, h.Health)
			}
		}
	})
}

func TestMaxRequests(t *testing.T) {
	cfg := cluster("web", "a")
	cfg.CircuitBreakers.MaxRequests = 2
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	first, second := begin(t, c), begin(t, c)
	wantFault(t, c, protocol.Overflow)
	finish(first)
	finish(begin(t, c))
	finish(second)
	wantCounts(t, s, 0, 2, 2)
	if n := s.Describe()[0].Overflows; n != 1 {
		t.Errorf("%d overflows counted, want 1", n)
	}
}

func TestMaxRetries(t *testing.T) {
	cfg := cluster("web", "a")
	cfg.CircuitBreakers.MaxRetries = 1
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	if !c.breakers[0].BeginRetry() || c.breakers[0].BeginRetry() {
		t.Error("want one retry to start, and no second")
	}
	if n := s.Describe()[0].Retries; n != 1 {
		t.Errorf("%d retries in flight, want 1", n)
	}
	c.breakers[0].EndRetry()
	if !c.breakers[0].BeginRetry() {
		t.Error("a retry was rejected after the first had ended")
	}
	c.breakers[0].EndRetry()
	unlimited := newTestSet(t, newFakeConnector()).Get("other")
	if !unlimited.breakers[0].BeginRetry() {
		t.Error("a retry was rejected without a limit")
	}
}

func TestForwardWithoutAddrs(t *testing.T) {
	refused := protocol.Faultf(protocol.ConnectFailure, "refused")
	broken := errors.New("pipe broke")
	tests := []struct {
		name     string
		attempts int
		refuse   int // number of hosts that refuse, in the order of the attempts
		relay    error
		want     error
		tried    int
	}{
		{"first host accepts", 3, 0, nil, nil, 1},
		{"second host accepts", 3, 1, nil, nil, 2},
		{"attempts exhausted", 2, 3, nil, refused, 2},
		{"hosts exhausted", 9, 9, nil, refused, 3},
		{"zero attempts means one", 0, 9, nil, refused, 1},
		{"no retry after a relay error", 3, 0, broken, broken, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, c := newTestCluster(t, newFakeConnector(), cluster("db", "a", "b", "c"))
			var tried []string
			err := c.ForwardWithoutAddrs(context.Background(), tt.attempts, func(_ context.Context, h *Host, deadline time.Time) (func() error, error) {
				if deadline.IsZero() {
					t.Error("connect has no deadline")
				}
				tried = append(tried, h.Name())
				if len(tried) <= tt.refuse {
					return nil, refused
				}
				return func() error {
					d := s.Describe()[0]
					if d.InFlight != 1 || d.Open != 1 || h.InFlight() != 1 {
						t.Errorf("during the relay: %d in flight, %d connections, %d at the host, want 1 each", d.InFlight, d.Open, h.InFlight())
					}
					return tt.relay
				}, nil
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("ForwardWithoutAddrs = %v, want %v", err, tt.want)
			}
			if slices.Sort(tried); len(tried) != tt.tried || len(slices.Compact(tried)) != tt.tried {
				t.Errorf("tried %v, want %d different hosts", tried, tt.tried)
			}
			wantCounts(t, s, 0, 0, 0)
		})
	}
}

// TestForwardedConnectionIsInFlightOnce verifies that a forwarded connection, which is active and
// pending during its connect, counts as one exchange in flight.
func TestForwardedConnectionIsInFlightOnce(t *testing.T) {
	s, c := newTestCluster(t, newFakeConnector(), cluster("db", "a"))
	err := c.ForwardWithoutAddrs(context.Background(), 1, func(context.Context, *Host, time.Time) (func() error, error) {
		if d := s.Describe()[0]; d.InFlight != 1 || d.Pending != 1 {
			t.Errorf("during the connect: %d in flight, %d pending, want 1 and 1", d.InFlight, d.Pending)
		}
		return func() error {
			if d := s.Describe()[0]; d.InFlight != 1 || d.Pending != 0 {
				t.Errorf("during the relay: %d in flight, %d pending, want 1 and 0", d.InFlight, d.Pending)
			}
			return nil
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantZeroCounts(t, c)
	if got := c.InFlight(); got != 0 {
		t.Errorf("%d exchanges are in flight at the end, want 0", got)
	}
}

func TestForwardDoesNotWaitForSlot(t *testing.T) {
	cfg := cluster("db", "a")
	cfg.CircuitBreakers.MaxConnections = 1
	s, c := newTestCluster(t, newFakeConnector(), cfg)
	x := begin(t, c)
	err := c.ForwardWithoutAddrs(context.Background(), 1, func(context.Context, *Host, time.Time) (func() error, error) {
		t.Error("connect was called")
		return nil, errors.New("unreachable")
	})
	if protocol.ReasonOf(err) != protocol.Overflow {
		t.Errorf("ForwardWithoutAddrs = %v, want an overflow", err)
	}
	finish(x)
	wantCounts(t, s, 0, 1, 1)
}

// TestForwardReportsToOutlierDetection verifies that outlier detection counts the connects of
// forwarded connections, which have no responses.
func TestForwardReportsToOutlierDetection(t *testing.T) {
	refused := protocol.Faultf(protocol.ConnectFailure, "refused")
	tests := []struct {
		name    string
		steps   string // one connect per character: + succeeds, - is refused, x is canceled by the client
		ejected bool
	}{
		{"three refused in a row", "---", true},
		{"a success resets the count", "--+--", false},
		{"a canceled connect does not count", "--x", false},
		{"a canceled connect does not reset the count", "--x-", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newStatusSet(t, newStatusConnector(), withOutliers(outlierConfig(func(o *config.OutlierDetection) {
				o.Consecutive5xx = config.Consecutive{Failures: 3, Enforce: 100}
			}), "a"))
			for _, step := range tt.steps {
				ctx, cancel := context.WithCancel(t.Context())
				err := c.ForwardWithoutAddrs(ctx, 1, func(context.Context, *Host, time.Time) (func() error, error) {
					if step == '+' {
						return func() error { return nil }, nil
					}
					if step == 'x' {
						cancel()
					}
					return nil, refused
				})
				if (err == nil) != (step == '+') {
					t.Errorf("ForwardWithoutAddrs = %v at step %c; want an error unless the step is +", err, step)
				}
				cancel()
			}
			if ejected := hostNamed(t, c, "a").health.Has(hosthealth.Ejected); ejected != tt.ejected {
				t.Errorf("ejected: %v, want %v", ejected, tt.ejected)
			}
		})
	}
}
