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
)

// faulty is everything that a cluster calls, and panics where it is told to, once.
type faulty struct {
	*trunks
	single bool
	at     atomic.Pointer[string]
	hits   atomic.Int64
}

// pass panics if point is where it is to panic.
func (f *faulty) pass(point string) {
	if at := f.at.Load(); at != nil && *at == point && f.at.CompareAndSwap(at, nil) {
		f.hits.Add(1)
		panic("at " + point)
	}
}

func (f *faulty) Multiplexed() bool { return !f.single }

func (f *faulty) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (Connection, error) {
	f.pass("Connect")
	c, err := f.trunks.Connect(ctx, h, deadline, released)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Connection: c, f: f}, nil
}

// faultyConn is a Connection and Limited.
type faultyConn struct {
	Connection
	f *faulty
}

func (c *faultyConn) Usable(idle time.Duration) bool {
	c.f.pass("Usable")
	return c.Connection.Usable(idle)
}

func (c *faultyConn) MaxConcurrentStreams() int64 {
	c.f.pass("Limit")
	return 100
}

func (c *faultyConn) Close() error {
	defer c.f.pass("Close")
	return c.Connection.Close()
}

// faultyBalancer is a Balancer.
type faultyBalancer struct {
	balance.Balancer
	f *faulty
}

func (b faultyBalancer) Pick(k balance.Key) int {
	b.f.pass("Pick")
	return b.Balancer.Pick(k)
}

// faultyMeter is Meter, and its accounts.
type faultyMeter struct{ f *faulty }

func (m faultyMeter) Cluster(string, Gauges) ClusterRecorder {
	m.f.pass("Meter.Cluster")
	return m
}

func (m faultyMeter) Host(string, string) Recorder {
	m.f.pass("Meter.Host")
	return m
}

func (faultyMeter) Add(metrics.Sum) {}
func (faultyMeter) Close()          {}

func (m faultyMeter) Count(e Event) {
	if e == ConnectionOpened {
		m.f.pass("Count")
	}
}

func (m faultyMeter) LimitReached(config.Priority, Event) { m.f.pass("Reached") }

// faultyCaller is a Caller.
type faultyCaller struct {
	caller
	f *faulty
}

func (c *faultyCaller) OnDisconnect(gone func()) (stop func()) {
	c.f.pass("Watch")
	return c.caller.OnDisconnect(gone)
}

func (c *faultyCaller) Detach() { c.f.pass("Detach") }

func (c *faultyCaller) Canceled() bool {
	c.f.pass("Canceled")
	return false
}

// cluster returns a cluster of a mode, all of whose parts are f's.
func (f *faulty) cluster(t *testing.T, mode config.PoolMode) (*Set, *Cluster) {
	t.Helper()
	return f.limited(t, mode, config.Breakers{MaxConnections: 1, MaxPendingRequests: 10, MaxRequests: 10}, "a")
}

// limited is cluster with other limits and hosts.
func (f *faulty) limited(t *testing.T, mode config.PoolMode, limits config.Breakers, hosts ...string) (*Set, *Cluster) {
	t.Helper()
	cfg := moded(mode, hosts...)
	cfg.Breakers = limits
	cfg.IdleTimeout = time.Minute
	s := newTestSet(t, &f.world, func(o *Options) {
		o.Connectors[config.HTTP1] = f
		o.Meter = faultyMeter{f}
		next := o.Policies[config.RoundRobin]
		o.Policies = map[config.Policy]balance.New{config.RoundRobin: func(peers []balance.Peer, options balance.Options) balance.Balancer {
			return faultyBalancer{next(peers, options), f}
		}}
	})
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// serve sends an exchange and ends it.
func (f *faulty) serve(c *Cluster, down *downstream) error {
	x := get()
	x.Meta.Conn = &down.meta
	x.Caller = &faultyCaller{f: f}
	via := &ClusterPicker{Cluster: c, OnHostSelected: func(*protocol.Exchange, *Host) { f.pass("Chosen") }}
	err := via.Serve(down, x)
	finish(x)
	return err
}

// TestPanicsLeaveNoCountBehind: wherever a part that a cluster calls panics, the exchange
// fails, everything that it was counted on is given back, and the next one is served.
func TestPanicsLeaveNoCountBehind(t *testing.T) {
	fresh := []string{"Pick", "Chosen", "Meter.Cluster", "Meter.Host", "Detach", "Canceled", "Watch", "Connect", "Count"}
	for mode, points := range map[config.PoolMode][]string{
		config.PingPong:  append([]string{"Usable"}, fresh...),
		config.Multiplex: append([]string{"Usable", "Limit"}, fresh...),
		config.Bind:      append([]string{"Limit"}, fresh...),
	} {
		for _, warm := range []bool{false, true} {
			for _, point := range points {
				name := string(mode) + ", " + point
				if warm {
					name += ", with an idle connection"
				}
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := &faulty{trunks: newTrunks()}
						s, c := f.cluster(t, mode)
						defer s.Close()
						down := newDownstream()
						defer down.end()
						if warm {
							if err := f.serve(c, down); err != nil {
								t.Fatal(err)
							}
						}
						f.at.Store(&point)
						err := f.serve(c, down)
						f.at.Store(nil)
						var p *protocol.PanicError
						if hit := f.hits.Load() > 0; hit != errors.As(err, &p) {
							t.Errorf("Serve = %v; a panic: %v", err, hit)
						} else if !hit && called(point, mode, warm) {
							t.Errorf("nothing has called %s", point)
						}
						synctest.Wait()
						b := c.Breaker(config.DefaultPriority)
						if c.InFlight() != 0 || b.slots.waiting.Load() != 0 {
							t.Errorf("%d exchanges are counted, %d wait for slots", c.InFlight(), b.slots.waiting.Load())
						}
						h := c.state.Load().hosts[0]
						if n := h.load.InFlight(); n != 0 {
							t.Errorf("the host has %d exchanges in flight", n)
						}
						if open := b.slots.open.Load(); open != int64(f.trunks.open()) {
							t.Errorf("%d slots are taken, %d connections are open", open, f.trunks.open())
						}
						pass(maxBackoff)
						for range 3 {
							if err := f.serve(c, down); err != nil {
								t.Errorf("the next exchange: %v", err)
							}
						}
					})
				})
			}
		}
	}
}

// TestPanicsOfCarriedBytesAndSessionsLeaveNoCountBehind: of a balancer and of what carries bytes.
func TestPanicsOfCarriedBytesAndSessionsLeaveNoCountBehind(t *testing.T) {
	for _, point := range []string{"Pick", "connect", "carry", "Count"} {
		for _, kind := range []string{"bytes", "session"} {
			t.Run(kind+", "+point, func(t *testing.T) {
				f := &faulty{trunks: newTrunks()}
				s, c := f.cluster(t, config.PingPong)
				defer s.Close()
				use := func() (err error) {
					defer protocol.RecoverPanic(&err)
					if kind == "session" {
						a, err := c.Lease(0, nil)
						if err == nil {
							a.Release()
						}
						return err
					}
					return c.Carry(t.Context(), 1, func(context.Context, *Host, time.Time) (func() error, error) {
						f.pass("connect")
						return func() error { f.pass("carry"); return nil }, nil
					})
				}
				if err := use(); err != nil { // which opens the account
					t.Fatal(err)
				}
				f.at.Store(&point)
				if err := use(); (err != nil) != (f.hits.Load() > 0) {
					t.Errorf("use = %v", err)
				}
				f.at.Store(nil)
				wantNothing(t, c)
				h := c.state.Load().hosts[0]
				if h.load.InFlight() != 0 || h.load.Connections() != 0 || h.dialing.Load() != 0 || h.carriers.active != 0 {
					t.Errorf("the host has %d exchanges, %d connections, %d attempts and %d dials", h.load.InFlight(), h.load.Connections(), h.dialing.Load(), h.carriers.active)
				}
				if err := use(); err != nil {
					t.Errorf("the next one: %v", err)
				}
			})
		}
	}
}

// called reports whether an exchange calls the part at point, with an idle connection or
// without.
func called(point string, mode config.PoolMode, warm bool) bool {
	switch point {
	case "Pick", "Chosen":
		return true
	case "Usable":
		return warm || mode == config.PingPong // a new connection is asked, too
	case "Limit":
		return warm || mode != config.PingPong
	}
	return !warm
}
