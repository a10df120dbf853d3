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
	hangs   map[string]bool // guarded by mu; connects hang until their deadline
	dials   []string        // guarded by mu
	conns   []*fakeConn     // guarded by mu; every connection ever opened
	respond func(conn *fakeConn, x *protocol.Exchange) error
}

func newFakeConnector() *fakeConnector {
	return &fakeConnector{refuses: map[string]bool{}, hangs: map[string]bool{}}
}

func (*fakeConnector) Multiplexed() bool { return false }

func (f *fakeConnector) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (pool.Connection, error) {
	f.mu.Lock()
	f.dials = append(f.dials, h.Name())
	refuse, hang := f.refuses[h.Name()], f.hangs[h.Name()]
	f.mu.Unlock()
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
	conn := &fakeConn{connector: f, host: h.Name(), released: released}
	conn.body.conn = conn
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, conn)
	return conn, nil
}

func (f *fakeConnector) set(m map[string]bool, host string, value bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m[host] = value
}

// dialed returns the hosts dialed since its last call.
func (f *fakeConnector) dialed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	dials := f.dials
	f.dials = nil
	return dials
}

func (f *fakeConnector) numOpen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.conns {
		if !c.closed.Load() {
			n++
		}
	}
	return n
}

// Serve sends x to the cluster in the downstream protocol.
func (c *Cluster) Serve(ctx context.Context, x *protocol.Exchange) error {
	return x.Serve(ctx, (&ClusterPicker{Cluster: c}))
}

// ForwardWithoutAddrs is ForwardConn without addresses of the downstream connection.
func (c *Cluster) ForwardWithoutAddrs(ctx context.Context, attempts int, connect connectRelayFunc) error {
	return c.ForwardConn(ctx, ConnAddrs{}, attempts, connect)
}

// fakeConn is a connection of a fakeConnector.
type fakeConn struct {
	connector *fakeConnector
	host      string
	released  func(bool)
	body      fakeBody
	served    atomic.Int64
	busy      atomic.Bool
	dead      atomic.Bool // the host has closed the connection, and Usable returns false
	stale     atomic.Bool // the host has closed the connection, but only Start fails
	oneShot   atomic.Bool // not reusable after the next exchange
	closed    atomic.Bool
}

// fakeBody is a response body. Closing it releases the connection.
type fakeBody struct{ conn *fakeConn }

func (b *fakeBody) Read([]byte) (int, error) { return 0, io.EOF }
func (b *fakeBody) Buffered() int            { return 0 }
func (b *fakeBody) Close() error             { b.conn.release(!b.conn.oneShot.Load()); return nil }

func (c *fakeConn) Start(_ context.Context, x *protocol.Exchange) error {
	if c.busy.Swap(true) {
		panic("two exchanges on one connection")
	}
	if c.closed.Load() {
		panic("an exchange on a closed connection")
	}
	c.served.Add(1)
	if c.stale.Load() || c.dead.Load() {
		c.release(false)
		return protocol.Faultf(protocol.UpstreamClosed, "%s closed the connection: %w", c.host, protocol.ErrNotReceived)
	}
	x.Response.Status = 200
	if c.connector.respond != nil {
		if err := c.connector.respond(c, x); err != nil {
			c.release(false)
			return err
		}
	}
	x.Response.Body = &c.body
	return nil
}

func (c *fakeConn) release(reusable bool) {
	if !c.busy.Swap(false) {
		panic("released twice")
	}
	c.released(reusable)
}

func (c *fakeConn) Usable(time.Duration) bool { return !c.dead.Load() }

func (c *fakeConn) Close() error {
	if c.closed.Swap(true) {
		return errors.New("closed twice")
	}
	return nil
}

func policies() map[config.LBPolicy]balance.NewFunc {
	return map[config.LBPolicy]balance.NewFunc{
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

func newTestSet(t testing.TB, f *fakeConnector, options ...func(*Options)) *Set {
	t.Helper()
	o := Options{Connectors: map[config.Protocol]Connector{config.HTTP1: f}, Policies: policies()}
	for _, change := range options {
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
	change.DrainRemoved()
}

// newTestCluster returns a set with one cluster, and the cluster.
func newTestCluster(t testing.TB, f *fakeConnector, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, f)
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// wantNoAllocs fails the test if the cluster allocates when it serves x on warm connections.
func wantNoAllocs(t *testing.T, label string, c *Cluster, x *protocol.Exchange) {
	t.Helper()
	picker := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
	serve := func() {
		x.Record.Attempts = x.Record.Attempts[:0]
		if err := x.Serve(context.Background(), picker); err != nil {
			t.Fatal(err)
		}
		x.ResetResponse()
	}
	for range 100 {
		serve()
	}
	if n := testing.AllocsPerRun(200, serve); n != 0 {
		t.Errorf("%s: %v allocations per exchange, want 0", label, n)
	}
}

func newExchange() *protocol.Exchange {
	x := &protocol.Exchange{}
	x.Reset()
	x.Request.Method = "GET"
	x.Meta.Protocol = string(config.HTTP1)
	return x
}

// begin serves a GET and leaves it in flight; finish ends it.
func begin(t testing.TB, c *Cluster) *protocol.Exchange {
	t.Helper()
	x := newExchange()
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
	x := newExchange()
	err := c.Serve(context.Background(), x)
	if got := protocol.ReasonOf(err); err == nil || got != want {
		t.Fatalf("Serve = %v (%v), want %v", err, got, want)
	}
	return x
}

// attempts returns the attempts of x as host:outcome, for example "a:200", "b:connect_failure".
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

func wantList(t testing.TB, label string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s = %q, want %q", label, got, want)
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
	heldConnects map[string]chan struct{} // guarded by mu; connects wait until the channel is closed
	opened       []*fakeMuxConn           // guarded by mu; every connection ever opened
	respond      func(conn *fakeMuxConn, x *protocol.Exchange) error
	maxStreams   int64 // concurrent exchanges that a host allows on a connection; 0: no reported limit

	connecting, maxConnecting int // guarded by mu; current and maximum number of concurrent connects
}

// limitedMuxConn is a connection whose host limits the number of concurrent exchanges.
type limitedMuxConn struct {
	*fakeMuxConn
	maxStreams int64
}

func (c limitedMuxConn) MaxConcurrentStreams() int64 { return c.maxStreams }

// RTT returns one millisecond for each exchange that the host allows.
func (c limitedMuxConn) RTT() time.Duration { return time.Duration(c.maxStreams) * time.Millisecond }

func newFakeMuxConnector() *fakeMuxConnector {
	return &fakeMuxConnector{
		fakeConnector: fakeConnector{refuses: map[string]bool{}, hangs: map[string]bool{}},
		heldConnects:  map[string]chan struct{}{},
	}
}

func (*fakeMuxConnector) Multiplexed() bool { return true }

func (f *fakeMuxConnector) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (pool.Connection, error) {
	f.mu.Lock()
	f.dials = append(f.dials, h.Name())
	unblocked := f.heldConnects[h.Name()]
	f.connecting++
	f.maxConnecting = max(f.maxConnecting, f.connecting)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.connecting--
	}()
	if unblocked != nil {
		if !deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
		select {
		case <-unblocked:
		case <-ctx.Done():
			return nil, protocol.NewFault(protocol.ConnectTimeout, ctx.Err())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses[h.Name()] {
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	}
	conn := &fakeMuxConn{connector: f, host: h.Name(), released: released, died: make(chan struct{})}
	f.opened = append(f.opened, conn)
	if f.maxStreams > 0 {
		return limitedMuxConn{conn, f.maxStreams}, nil
	}
	return conn, nil
}

// holdConnects blocks connects to host until the returned function is called.
func (f *fakeMuxConnector) holdConnects(host string) (unblock func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unblocked := make(chan struct{})
	f.heldConnects[host] = unblocked
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.heldConnects, host)
		close(unblocked)
	}
}

// list returns all connections in the order in which they were opened.
func (f *fakeMuxConnector) list() []*fakeMuxConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.opened)
}

// numOpen returns the number of open connections.
func (f *fakeMuxConnector) numOpen() int {
	open := 0
	for _, conn := range f.list() {
		if !conn.closed.Load() {
			open++
		}
	}
	return open
}

// fakeMuxConn is a connection that carries many exchanges. It panics if an exchange starts after
// Close, or if Close is called while it carries an exchange.
type fakeMuxConn struct {
	connector *fakeMuxConnector
	host      string
	released  func(bool)
	load      atomic.Int64
	served    atomic.Int64
	goaway    atomic.Bool // the host accepts no new exchange
	stale     atomic.Bool // the host has closed the connection, but only Start fails
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

func (b *fakeMuxBody) Close() error {
	conn := b.conn
	conn.mu.Lock()
	conn.free = append(conn.free, b)
	conn.mu.Unlock()
	conn.release()
	return nil
}

// die closes the connection from the host's side: exchanges that wait for a response fail.
func (conn *fakeMuxConn) die() { conn.dieOnce.Do(func() { close(conn.died) }) }

func (conn *fakeMuxConn) isDead() bool {
	select {
	case <-conn.died:
		return true
	default:
		return false
	}
}

func (conn *fakeMuxConn) Start(_ context.Context, x *protocol.Exchange) error {
	conn.load.Add(1)
	if conn.closed.Load() {
		panic("an exchange on a closed connection")
	}
	if conn.stale.Load() || conn.isDead() {
		conn.release()
		return protocol.Faultf(protocol.ConnectFailure, "%s closed the connection", conn.host)
	}
	conn.served.Add(1)
	if conn.connector.respond != nil {
		if err := conn.connector.respond(conn, x); err != nil {
			conn.release()
			return err
		}
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	var body *fakeMuxBody
	if n := len(conn.free) - 1; n >= 0 {
		body, conn.free = conn.free[n], conn.free[:n]
	} else {
		body = &fakeMuxBody{conn}
	}
	x.Response.Status = 200
	x.Response.Body = body
	return nil
}

// blockUntilClosed is a respond function that blocks until the host closes the connection.
func blockUntilClosed(conn *fakeMuxConn, _ *protocol.Exchange) error {
	<-conn.died
	return protocol.Faultf(protocol.UpstreamReset, "%s closed the connection", conn.host)
}

func (conn *fakeMuxConn) release() {
	if conn.load.Add(-1) < 0 {
		panic("released twice")
	}
	conn.released(conn.Usable(0) && !conn.stale.Load())
}

func (conn *fakeMuxConn) Usable(time.Duration) bool { return !conn.goaway.Load() && !conn.isDead() }

func (conn *fakeMuxConn) Close() error {
	if load := conn.load.Load(); load != 0 {
		panic(fmt.Sprintf("closed with %d exchanges on it", load))
	}
	if conn.closed.Swap(true) {
		panic("closed twice")
	}
	return nil
}

// connOf returns the connection that serves x.
func connOf(x *protocol.Exchange) *fakeMuxConn { return x.Response.Body.(*fakeMuxBody).conn }

// newTestCluster returns a set with one cluster whose hosts belong to f, and the cluster.
func (f *fakeMuxConnector) newTestCluster(t testing.TB, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, &f.fakeConnector, func(o *Options) { o.Connectors[config.HTTP1] = f })
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// muxCluster returns a cluster with the given number of multiplexed connections per host.
func muxCluster(connections int, hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.Pool = config.Pool{Mode: config.Multiplex, Connections: connections}
	return c
}

// wantZeroCounts checks that the circuit breaker of the default priority counts no exchange,
// connection or waiter.
func wantZeroCounts(t testing.TB, c *Cluster) {
	t.Helper()
	for label, n := range map[string]int64{
		"exchanges in flight": c.breakers[0].Counts().Active,
		"pending exchanges":   c.breakers[0].Counts().Pending,
		"slots":               c.breakers[0].Counts().Connections,
		"waiters for slots":   c.breakers[0].Counts().Waiting,
	} {
		if n != 0 {
			t.Errorf("%d %s, want 0", n, label)
		}
	}
}

// Copies of unexported constants of package pool (sweep.go, multiplex.go).
const (
	maxSweepInterval = 5 * time.Second
	growBackoff      = time.Second
	maxConnAttempts  = 3
)
