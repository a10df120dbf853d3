package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// world is a network of hosts that the test controls.
type world struct {
	mu      sync.Mutex
	refuse  map[string]bool // guarded by mu; connects fail at once
	hang    map[string]bool // guarded by mu; connects last until their deadline
	dials   []string        // guarded by mu
	conns   []*wire         // guarded by mu; every connection ever opened
	answers func(w *wire, x *protocol.Exchange) error
}

func newWorld() *world {
	return &world{refuse: map[string]bool{}, hang: map[string]bool{}}
}

func (*world) Multiplexed() bool { return false }

func (w *world) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (Connection, error) {
	w.mu.Lock()
	w.dials = append(w.dials, h.Name())
	refuse, hang := w.refuse[h.Name()], w.hang[h.Name()]
	w.mu.Unlock()
	switch {
	case refuse:
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	case hang:
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		<-ctx.Done()
		return nil, protocol.NewFault(protocol.ConnectTimeout, ctx.Err())
	}
	conn := &wire{world: w, host: h.Name(), released: released}
	conn.answer.wire = conn
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conn)
	return conn, nil
}

func (w *world) set(m map[string]bool, host string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m[host] = on
}

// dialed returns the hosts connected to since the last call.
func (w *world) dialed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	dials := w.dials
	w.dials = nil
	return dials
}

func (w *world) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.conns {
		if !c.closed.Load() {
			n++
		}
	}
	return n
}

// wire is a connection of the world.
type wire struct {
	world    *world
	host     string
	released func(bool)
	answer   answer
	served   atomic.Int64
	busy     atomic.Bool
	dead     atomic.Bool // the peer has closed it, and Usable can see that
	stale    atomic.Bool // the peer has closed it, and only sending shows it
	oneShot  atomic.Bool // not reusable after the next exchange
	closed   atomic.Bool
}

// answer is a response body; closing it gives the connection back.
type answer struct{ wire *wire }

func (a *answer) Read([]byte) (int, error) { return 0, io.EOF }
func (a *answer) Buffered() int            { return 0 }
func (a *answer) Close() error             { a.wire.release(!a.wire.oneShot.Load()); return nil }

func (w *wire) Serve(_ context.Context, x *protocol.Exchange) error {
	if w.busy.Swap(true) {
		panic("two exchanges on one connection")
	}
	if w.closed.Load() {
		panic("an exchange on a closed connection")
	}
	w.served.Add(1)
	if w.stale.Load() || w.dead.Load() {
		w.release(false)
		return protocol.Faultf(protocol.UpstreamClosed, "%s had gone away", w.host)
	}
	if w.world.answers != nil {
		if err := w.world.answers(w, x); err != nil {
			w.release(false)
			return err
		}
	}
	x.Response.Status = 200
	x.Response.Body = &w.answer
	return nil
}

func (w *wire) release(reusable bool) {
	if !w.busy.Swap(false) {
		panic("released twice")
	}
	w.released(reusable)
}

func (w *wire) Usable(time.Duration) bool { return !w.dead.Load() }

func (w *wire) Close() error {
	if w.closed.Swap(true) {
		return errors.New("closed twice")
	}
	return nil
}

func policies() map[config.Policy]balance.New {
	return map[config.Policy]balance.New{
		config.RoundRobin:         balance.RoundRobin,
		config.WeightedRoundRobin: balance.WeightedRoundRobin,
		config.Random:             balance.Random,
		config.LeastRequest:       balance.LeastRequest,
	}
}

func newTestSet(t testing.TB, w *world, more ...func(*Options)) *Set {
	t.Helper()
	o := Options{Connectors: map[config.Protocol]Connector{config.HTTP1: w}, Policies: policies()}
	for _, change := range more {
		change(&o)
	}
	s := NewSet(o)
	t.Cleanup(s.Close)
	return s
}

func cluster(name string, hosts ...string) *config.Cluster {
	c := &config.Cluster{
		Name:              name,
		Type:              config.ClusterStatic,
		Policy:            config.RoundRobin,
		ActiveRequestBias: 1,
		ConnectTimeout:    10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	for _, address := range hosts {
		c.Hosts = append(c.Hosts, config.Host{Address: address, Weight: 1})
	}
	return c
}

func apply(t testing.TB, s *Set, clusters ...*config.Cluster) {
	t.Helper()
	change, err := s.Prepare(clusters)
	if err != nil {
		t.Fatal(err)
	}
	change.Commit()
	change.Retire()
}

// one returns a set with the one cluster.
func one(t testing.TB, w *world, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, w)
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

func get() *protocol.Exchange {
	x := &protocol.Exchange{}
	x.Reset()
	x.Request.Method = "GET"
	x.Meta.Protocol = string(config.HTTP1)
	return x
}

// begin serves a GET and leaves it in flight; finish ends it.
func begin(t testing.TB, c *Cluster) *protocol.Exchange {
	t.Helper()
	x := get()
	if err := c.Serve(context.Background(), x); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	return x
}

func finish(x *protocol.Exchange) { x.ResetResponse() }

// do serves a GET to its end and returns the host that answered.
func do(t testing.TB, c *Cluster) string {
	t.Helper()
	x := begin(t, c)
	finish(x)
	return x.Record.Host().Name()
}

// fails serves a GET that must fail with the reason, and returns it.
func fails(t testing.TB, c *Cluster, want protocol.Reason) *protocol.Exchange {
	t.Helper()
	x := get()
	err := c.Serve(context.Background(), x)
	if got := protocol.ReasonOf(err); err == nil || got != want {
		t.Fatalf("Serve = %v (%v), want %v", err, got, want)
	}
	return x
}

// attempts renders the attempts of x: "a:200 b:connect_failure".
func attempts(x *protocol.Exchange) []string {
	var list []string
	for _, a := range x.Record.Attempts {
		outcome := a.Reason.String()
		if a.Reason == protocol.None {
			outcome = fmt.Sprint(a.Status)
		}
		list = append(list, a.Host.Name()+":"+outcome)
	}
	return list
}

func wantCounts(t testing.TB, s *Set, inFlight, connections int64, idle int) {
	t.Helper()
	for _, c := range s.Describe() {
		var hostInFlight, hostOpen int64
		hostIdle := 0
		for _, h := range c.Hosts {
			hostInFlight += h.InFlight
			hostOpen += h.Open
			hostIdle += h.Idle
		}
		if c.InFlight != inFlight || hostInFlight != inFlight {
			t.Errorf("in flight: cluster %d, hosts %d, want %d", c.InFlight, hostInFlight, inFlight)
		}
		if c.Open != connections || hostOpen != connections {
			t.Errorf("connections: cluster %d, hosts %d, want %d", c.Open, hostOpen, connections)
		}
		if hostIdle != idle {
			t.Errorf("idle connections: %d, want %d", hostIdle, idle)
		}
	}
}

func wantList(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s = %q, want %q", what, got, want)
	}
}

// pass lets fake time pass, and waits until everything that was due has
// happened.
//
//arch:clock called in bubbles of testing/synctest only
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
