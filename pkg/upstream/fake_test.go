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
	"github.com/weft-proxy/weft/pkg/upstream/pool"
)

// fakeConnector is a network of hosts that the test controls.
type fakeConnector struct {
	mu      sync.Mutex
	refuses map[string]bool // guarded by mu; connects fail immediately
	hangs   map[string]bool // guarded by mu; connects last until their deadline
	dials   []string        // guarded by mu
	conns   []*fakeConn     // guarded by mu; every connection ever opened
	respond func(w *fakeConn, x *protocol.Exchange) error
}

func newFakeConnector() *fakeConnector {
	return &fakeConnector{refuses: map[string]bool{}, hangs: map[string]bool{}}
}

func (*fakeConnector) Multiplexed() bool { return false }

func (w *fakeConnector) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (pool.Connection, error) {
	w.mu.Lock()
	w.dials = append(w.dials, h.Name())
	refuse, hang := w.refuses[h.Name()], w.hangs[h.Name()]
	w.mu.Unlock()
	switch {
	case refuse:
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	case hang:
		if !deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
		<-ctx.Done()
		return nil, protocol.NewFault(protocol.ConnectTimeout, ctx.Err())
	}
	conn := &fakeConn{connector: w, host: h.Name(), released: released}
	conn.body.conn = conn
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conn)
	return conn, nil
}

func (w *fakeConnector) set(m map[string]bool, host string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m[host] = on
}

// dialed returns the hosts dialed since its last call.
func (w *fakeConnector) dialed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	dials := w.dials
	w.dials = nil
	return dials
}

func (w *fakeConnector) open() int {
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

// Serve sends x into the cluster in the downstream protocol.
func (c *Cluster) Serve(ctx context.Context, x *protocol.Exchange) error {
	return x.Serve(ctx, (&ClusterPicker{Cluster: c}))
}

// fakeConn is a connection of a fakeConnector.
type fakeConn struct {
	connector *fakeConnector
	host      string
	released  func(bool)
	body      fakeBody
	served    atomic.Int64
	busy      atomic.Bool
	dead      atomic.Bool // the host has closed it, and Usable reports that
	stale     atomic.Bool // the host has closed it, and only Start fails
	oneShot   atomic.Bool // not reusable after the next exchange
	closed    atomic.Bool
}

// fakeBody is a response body. Closing it releases the connection.
type fakeBody struct{ conn *fakeConn }

func (a *fakeBody) Read([]byte) (int, error) { return 0, io.EOF }
func (a *fakeBody) Buffered() int            { return 0 }
func (a *fakeBody) Close() error             { a.conn.release(!a.conn.oneShot.Load()); return nil }

func (w *fakeConn) Start(_ context.Context, x *protocol.Exchange) error {
	if w.busy.Swap(true) {
		panic("two exchanges on one connection")
	}
	if w.closed.Load() {
		panic("an exchange on a closed connection")
	}
	w.served.Add(1)
	if w.stale.Load() || w.dead.Load() {
		w.release(false)
		return protocol.Faultf(protocol.UpstreamClosed, "%s had gone away: %w", w.host, protocol.ErrNotReceived)
	}
	x.Response.Status = 200
	if w.connector.respond != nil {
		if err := w.connector.respond(w, x); err != nil {
			w.release(false)
			return err
		}
	}
	x.Response.Body = &w.body
	return nil
}

func (w *fakeConn) release(reusable bool) {
	if !w.busy.Swap(false) {
		panic("released twice")
	}
	w.released(reusable)
}

func (w *fakeConn) Usable(time.Duration) bool { return !w.dead.Load() }

func (w *fakeConn) Close() error {
	if w.closed.Swap(true) {
		return errors.New("closed twice")
	}
	return nil
}

func policies() map[config.LBPolicy]balance.New {
	return map[config.LBPolicy]balance.New{
		config.RoundRobin:         balance.RoundRobin,
		config.WeightedRoundRobin: balance.WeightedRoundRobin,
		config.Random:             balance.Random,
		config.LeastRequest:       balance.LeastRequest,
		config.LeastConnection:    balance.LeastConnection,
		config.PeakEWMA:           balance.PeakEWMA,
		config.RingHash:           balance.RingHash,
		config.Maglev:             balance.Maglev,
		config.RequestRoundRobin:  balance.RequestRoundRobin,
	}
}

func newTestSet(t testing.TB, w *fakeConnector, more ...func(*Options)) *Set {
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
		LBPolicy:          config.RoundRobin,
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

// newTestCluster returns a set with one cluster, and the cluster.
func newTestCluster(t testing.TB, w *fakeConnector, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, w)
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// wantNoAllocs fails the test if the cluster allocates when it serves x on warm connections.
func wantNoAllocs(t *testing.T, what string, c *Cluster, x *protocol.Exchange) {
	t.Helper()
	via := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
	serve := func() {
		x.Record.Attempts = x.Record.Attempts[:0]
		if err := x.Serve(context.Background(), via); err != nil {
			t.Fatal(err)
		}
		x.ResetResponse()
	}
	for range 100 {
		serve()
	}
	if n := testing.AllocsPerRun(200, serve); n != 0 {
		t.Errorf("%s: %v allocations per exchange, want 0", what, n)
	}
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

// serveOne serves a GET to its end and returns the name of the host that responded.
func serveOne(t testing.TB, c *Cluster) string {
	t.Helper()
	x := begin(t, c)
	finish(x)
	return x.Record.Host().Name()
}

// wantFault serves a GET that must fail with the reason, and returns the exchange.
func wantFault(t testing.TB, c *Cluster, want protocol.Reason) *protocol.Exchange {
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
		if a.Reason == protocol.ReasonNone {
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

// advanceClock advances fake time by d and waits until all other goroutines are blocked.
//
//arch:clock called in bubbles of testing/synctest only
func advanceClock(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fakeMuxConnector is a network of hosts whose connections carry many exchanges.
type fakeMuxConnector struct {
	fakeConnector
	connectGates map[string]chan struct{} // guarded by mu; connects wait until it is closed
	opened       []*fakeMuxConn           // guarded by mu; every connection ever opened
	respond      func(k *fakeMuxConn, x *protocol.Exchange) error
	maxStreams   int64 // concurrent exchanges that a host allows on a connection; 0: no reported limit

	connecting, maxConnecting int // guarded by mu; current and maximum number of concurrent connects
}

// limitedMuxConn is a connection whose host limits the number of concurrent exchanges.
type limitedMuxConn struct {
	*fakeMuxConn
	maxStreams int64
}

func (k limitedMuxConn) MaxConcurrentStreams() int64 { return k.maxStreams }

// RTT returns one millisecond for each exchange that the host allows.
func (k limitedMuxConn) RTT() time.Duration { return time.Duration(k.maxStreams) * time.Millisecond }

func newFakeMuxConnector() *fakeMuxConnector {
	return &fakeMuxConnector{
		fakeConnector: fakeConnector{refuses: map[string]bool{}, hangs: map[string]bool{}},
		connectGates:  map[string]chan struct{}{},
	}
}

func (*fakeMuxConnector) Multiplexed() bool { return true }

func (n *fakeMuxConnector) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (pool.Connection, error) {
	n.mu.Lock()
	n.dials = append(n.dials, h.Name())
	gate := n.connectGates[h.Name()]
	n.connecting++
	n.maxConnecting = max(n.maxConnecting, n.connecting)
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.connecting--
	}()
	if gate != nil {
		if !deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, protocol.NewFault(protocol.ConnectTimeout, ctx.Err())
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuses[h.Name()] {
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	}
	k := &fakeMuxConn{connector: n, host: h.Name(), released: released, died: make(chan struct{})}
	n.opened = append(n.opened, k)
	if n.maxStreams > 0 {
		return limitedMuxConn{k, n.maxStreams}, nil
	}
	return k, nil
}

// holdConnects blocks connects to host until the returned function is called.
func (n *fakeMuxConnector) holdConnects(host string) (open func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	gate := make(chan struct{})
	n.connectGates[host] = gate
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.connectGates, host)
		close(gate)
	}
}

// list returns all connections in the order in which they were opened.
func (n *fakeMuxConnector) list() []*fakeMuxConn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.opened)
}

// open returns the number of open connections.
func (n *fakeMuxConnector) open() int {
	open := 0
	for _, k := range n.list() {
		if !k.closed.Load() {
			open++
		}
	}
	return open
}

// fakeMuxConn is a connection that carries many exchanges. It panics if an exchange starts after
// Close, or if it is closed while it carries one.
type fakeMuxConn struct {
	connector *fakeMuxConnector
	host      string
	released  func(bool)
	load      atomic.Int64
	served    atomic.Int64
	goaway    atomic.Bool // the host accepts no new exchange
	ended     atomic.Bool // the host has closed it, and only Start fails
	closed    atomic.Bool
	dieOnce   sync.Once
	died      chan struct{} // closed when the host has closed the connection

	mu   sync.Mutex
	free []*fakeMuxBody // guarded by mu
}

// fakeMuxBody is a response body of a fakeMuxConn. Closing it ends the exchange.
type fakeMuxBody struct{ conn *fakeMuxConn }

func (*fakeMuxBody) Read([]byte) (int, error) { return 0, io.EOF }
func (*fakeMuxBody) Buffered() int            { return 0 }

func (a *fakeMuxBody) Close() error {
	k := a.conn
	k.mu.Lock()
	k.free = append(k.free, a)
	k.mu.Unlock()
	k.release()
	return nil
}

// die closes the connection from the host's side: exchanges that wait for a response fail.
func (k *fakeMuxConn) die() { k.dieOnce.Do(func() { close(k.died) }) }

func (k *fakeMuxConn) isDead() bool {
	select {
	case <-k.died:
		return true
	default:
		return false
	}
}

func (k *fakeMuxConn) Start(_ context.Context, x *protocol.Exchange) error {
	k.load.Add(1)
	if k.closed.Load() {
		panic("an exchange on a closed connection")
	}
	if k.ended.Load() || k.isDead() {
		k.release()
		return protocol.Faultf(protocol.ConnectFailure, "%s had gone away", k.host)
	}
	k.served.Add(1)
	if k.connector.respond != nil {
		if err := k.connector.respond(k, x); err != nil {
			k.release()
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var a *fakeMuxBody
	if n := len(k.free) - 1; n >= 0 {
		a, k.free = k.free[n], k.free[:n]
	} else {
		a = &fakeMuxBody{k}
	}
	x.Response.Status = 200
	x.Response.Body = a
	return nil
}

// blockForever is a respond function that blocks until the connection ends.
func blockForever(k *fakeMuxConn, _ *protocol.Exchange) error {
	<-k.died
	return protocol.Faultf(protocol.UpstreamReset, "%s closed the connection", k.host)
}

func (k *fakeMuxConn) release() {
	if k.load.Add(-1) < 0 {
		panic("released twice")
	}
	k.released(k.Usable(0) && !k.ended.Load())
}

func (k *fakeMuxConn) Usable(time.Duration) bool { return !k.goaway.Load() && !k.isDead() }

func (k *fakeMuxConn) Close() error {
	if n := k.load.Load(); n != 0 {
		panic(fmt.Sprintf("closed with %d exchanges on it", n))
	}
	if k.closed.Swap(true) {
		panic("closed twice")
	}
	return nil
}

// connOf returns the connection that serves x.
func connOf(x *protocol.Exchange) *fakeMuxConn { return x.Response.Body.(*fakeMuxBody).conn }

// newTestCluster returns a set with one cluster whose hosts belong to n, and the cluster.
func (n *fakeMuxConnector) newTestCluster(t testing.TB, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, &n.fakeConnector, func(o *Options) { o.Connectors[config.HTTP1] = n })
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// muxCluster returns a cluster with that many multiplexed connections per host.
func muxCluster(connections int, hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.Pool = config.Pool{Mode: config.Multiplex, Connections: connections}
	return c
}

// wantNothing checks that all counts are 0.
func wantNothing(t testing.TB, c *Cluster) {
	t.Helper()
	for what, n := range map[string]int64{
		"exchanges in flight": c.breakers[0].Counts().Active,
		"pending exchanges":   c.breakers[0].Counts().Pending,
		"slots":               c.breakers[0].Counts().Connections,
		"waiters for slots":   c.breakers[0].Counts().Waiting,
	} {
		if n != 0 {
			t.Errorf("%d %s, want 0", n, what)
		}
	}
}

// sleepReal advances fake time in one of many goroutines.
//
//arch:clock called in bubbles of testing/synctest only
func sleepReal(d time.Duration) { time.Sleep(d) }

// Limits and intervals of pools that tests rely on.
const (
	maxSweepInterval = 5 * time.Second
	growBackoff      = time.Second
	maxConnAttempts  = 3
)
