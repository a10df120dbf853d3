package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// panicInjector is a Connector that also wraps the other dependencies of a cluster. The test
// selects a point at which one of them panics once.
type panicInjector struct {
	*fakeMuxConnector
	serial bool
	point  atomic.Pointer[string]
	hits   atomic.Int64
}

// panicAt panics if point is selected.
func (f *panicInjector) panicAt(point string) {
	if selected := f.point.Load(); selected != nil && *selected == point && f.point.CompareAndSwap(selected, nil) {
		f.hits.Add(1)
		panic("at " + point)
	}
}

func (f *panicInjector) Multiplexed() bool { return !f.serial }

func (f *panicInjector) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (pool.Connection, error) {
	f.panicAt("Connect")
	c, err := f.fakeMuxConnector.Connect(ctx, h, deadline, released)
	if err != nil {
		return nil, err
	}
	return &panickyConn{Connection: c, injector: f}, nil
}

// panickyConn is a Connection and StreamLimitReporter that can panic.
type panickyConn struct {
	pool.Connection
	injector *panicInjector
}

func (c *panickyConn) Usable(idle time.Duration) bool {
	c.injector.panicAt("Usable")
	return c.Connection.Usable(idle)
}

func (c *panickyConn) MaxConcurrentStreams() int64 {
	c.injector.panicAt("MaxConcurrentStreams")
	return 100
}

func (c *panickyConn) Close() error {
	defer c.injector.panicAt("Close")
	return c.Connection.Close()
}

// panickyBalancer is a Balancer that can panic.
type panickyBalancer struct {
	balance.Balancer
	injector *panicInjector
}

func (b panickyBalancer) Pick(k balance.Key) int {
	b.injector.panicAt("Pick")
	return b.Balancer.Pick(k)
}

// panickyMeter is a Meter and a ClusterRecorder that can panic.
type panickyMeter struct{ injector *panicInjector }

func (m panickyMeter) Cluster(string, Gauges) ClusterRecorder {
	m.injector.panicAt("Meter.Cluster")
	return m
}

func (m panickyMeter) Host(string, string) Recorder {
	m.injector.panicAt("Meter.Host")
	return m
}

func (panickyMeter) Add(metrics.Batch) {}
func (panickyMeter) Close()            {}

func (m panickyMeter) Count(e Event) {
	if e == ConnectionOpened {
		m.injector.panicAt("Count")
	}
}

func (m panickyMeter) LimitReached(config.Priority, Event) { m.injector.panicAt("LimitReached") }

// panickyDownstream is a Downstream that can panic.
type panickyDownstream struct {
	fakeDownstream
	injector *panicInjector
}

func (d *panickyDownstream) OnDisconnect(onDisconnect func()) (stop func()) {
	d.injector.panicAt("OnDisconnect")
	return d.fakeDownstream.OnDisconnect(onDisconnect)
}

func (d *panickyDownstream) Detach() { d.injector.panicAt("Detach") }

func (d *panickyDownstream) Canceled() bool {
	d.injector.panicAt("Canceled")
	return false
}

// cluster returns a cluster with this pool mode and the parts of f, and its set.
func (f *panicInjector) cluster(t *testing.T, mode config.PoolMode) (*Set, *Cluster) {
	t.Helper()
	return f.clusterWithLimits(t, mode, config.CircuitBreakers{MaxConnections: 1, MaxPendingRequests: 10, MaxRequests: 10}, "a")
}

// clusterWithLimits is cluster with other limits and hosts.
func (f *panicInjector) clusterWithLimits(t *testing.T, mode config.PoolMode, limits config.CircuitBreakers, hosts ...string) (*Set, *Cluster) {
	t.Helper()
	cfg := clusterWithMode(mode, hosts...)
	cfg.CircuitBreakers = limits
	cfg.IdleTimeout = time.Minute
	s := newTestSet(t, &f.fakeConnector, func(o *Options) {
		o.Connectors[config.HTTP1] = f
		o.Meter = panickyMeter{f}
		next := o.Policies[config.RoundRobin]
		o.Policies = map[config.LBPolicy]balance.NewFunc{config.RoundRobin: func(hosts []balance.Host, options balance.Options) balance.Balancer {
			return panickyBalancer{next(hosts, options), f}
		}}
	})
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// serve sends an exchange and finishes it.
func (f *panicInjector) serve(c *Cluster, downstream *fakeDownstreamConn) error {
	x := newExchange()
	x.Meta.Conn = &downstream.meta
	x.Downstream = &panickyDownstream{injector: f}
	picker := &ClusterPicker{Cluster: c, OnHostSelected: func(*protocol.Exchange, *Host) { f.panicAt("OnHostSelected") }}
	err := x.Serve(downstream, picker)
	finish(x)
	return err
}

// TestPanicsLeaveNoCounts verifies that after a panic of any dependency of a cluster, the
// exchange fails, all counts return to 0, and the next exchanges are served.
func TestPanicsLeaveNoCounts(t *testing.T) {
	common := []string{"Pick", "OnHostSelected", "Meter.Cluster", "Meter.Host", "Detach", "Canceled", "OnDisconnect", "Connect", "Count"}
	for mode, points := range map[config.PoolMode][]string{
		config.PingPong:  append([]string{"Usable"}, common...),
		config.Multiplex: append([]string{"Usable", "MaxConcurrentStreams"}, common...),
		config.Bind:      append([]string{"MaxConcurrentStreams"}, common...),
	} {
		for _, warm := range []bool{false, true} {
			for _, point := range points {
				name := string(mode) + ", " + point
				if warm {
					name += ", with an idle connection"
				}
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := &panicInjector{fakeMuxConnector: newFakeMuxConnector()}
						s, c := f.cluster(t, mode)
						defer s.Close()
						downstream := newFakeDownstreamConn()
						defer downstream.end()
						if warm {
							if err := f.serve(c, downstream); err != nil {
								t.Fatal(err)
							}
						}
						f.point.Store(&point)
						err := f.serve(c, downstream)
						f.point.Store(nil)
						var panicErr *protocol.PanicError
						if panicked := f.hits.Load() > 0; panicked != errors.As(err, &panicErr) {
							t.Errorf("Serve = %v; panicked: %v; want a PanicError only after a panic", err, panicked)
						} else if !panicked && called(point, mode, warm) {
							t.Errorf("%s was not called", point)
						}
						synctest.Wait()
						b := c.Breaker(config.DefaultPriority)
						if c.InFlight() != 0 || b.Counts().Waiting != 0 {
							t.Errorf("%d exchanges are counted, %d connects wait for slots, want 0", c.InFlight(), b.Counts().Waiting)
						}
						h := c.state.Load().hosts[0]
						if n := h.load.InFlight(); n != 0 {
							t.Errorf("the host has %d exchanges in flight, want 0", n)
						}
						if open := b.Counts().Connections; open != int64(f.fakeMuxConnector.numOpen()) {
							t.Errorf("%d slots taken, %d connections open, want the same number", open, f.fakeMuxConnector.numOpen())
						}
						advanceClock(hosthealth.MaxBackoff)
						for range 3 {
							if err := f.serve(c, downstream); err != nil {
								t.Errorf("next exchange: %v; want no error", err)
							}
						}
					})
				})
			}
		}
	}
}

// TestPanicsOfForwardedConnectionsAndLeases verifies that a panic of a balancer, a connect, a relay
// or a recorder leaves no counts of forwarded connections and leases.
func TestPanicsOfForwardedConnectionsAndLeases(t *testing.T) {
	for _, point := range []string{"Pick", "connect", "relay", "Count"} {
		for _, subject := range []string{"forwarded connection", "lease"} {
			t.Run(subject+", "+point, func(t *testing.T) {
				f := &panicInjector{fakeMuxConnector: newFakeMuxConnector()}
				s, c := f.cluster(t, config.PingPong)
				defer s.Close()
				forwardOrLease := func() (err error) {
					defer protocol.RecoverPanic(&err)
					if subject == "lease" {
						lease, err := c.Lease(0, nil)
						if err == nil {
							lease.Release()
						}
						return err
					}
					return c.ForwardWithoutAddrs(t.Context(), 1, func(context.Context, *Host, time.Time) (func() error, error) {
						f.panicAt("connect")
						return func() error { f.panicAt("relay"); return nil }, nil
					})
				}
				if err := forwardOrLease(); err != nil { // opens the recorder
					t.Fatal(err)
				}
				f.point.Store(&point)
				if err := forwardOrLease(); (err != nil) != (f.hits.Load() > 0) {
					t.Errorf("error = %v, but %d panics; want an error only after a panic", err, f.hits.Load())
				}
				f.point.Store(nil)
				wantZeroCounts(t, c)
				h := c.state.Load().hosts[0]
				if h.load.InFlight() != 0 || h.load.Connections() != 0 || h.dialing.Load() != 0 || h.relayDials.Active() != 0 {
					t.Errorf("the host has %d exchanges, %d connections, %d attempts and %d dials, want 0", h.load.InFlight(), h.load.Connections(), h.dialing.Load(), h.relayDials.Active())
				}
				if err := forwardOrLease(); err != nil {
					t.Errorf("after the panic: %v; want no error", err)
				}
			})
		}
	}
}

// called reports whether an exchange reaches point, depending on whether there is an idle
// connection.
func called(point string, mode config.PoolMode, warm bool) bool {
	switch point {
	case "Pick", "OnHostSelected":
		return true
	case "Usable":
		return warm || mode == config.PingPong // Usable is also called for a new connection
	case "MaxConcurrentStreams":
		return warm || mode != config.PingPong
	}
	return !warm
}
