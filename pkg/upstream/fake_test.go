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
		if !deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
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

// Serve sends x into the cluster in the protocol of its caller.
func (c *Cluster) Serve(ctx context.Context, x *protocol.Exchange) error {
	return (&ClusterPicker{Cluster: c}).Serve(ctx, x)
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
		return protocol.Faultf(protocol.UpstreamClosed, "%s had gone away: %w", w.host, protocol.ErrNotReceived)
	}
	x.Response.Status = 200
	if w.world.answers != nil {
		if err := w.world.answers(w, x); err != nil {
			w.release(false)
			return err
		}
	}
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
		config.LeastConnection:    balance.LeastConnection,
		config.PeakEWMA:           balance.PeakEWMA,
		config.RingHash:           balance.RingHash,
		config.Maglev:             balance.Maglev,
		config.RequestRoundRobin:  balance.RequestRoundRobin,
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

// allocatesNothing fails the test if a cluster that is warm allocates for x, which it serves.
func allocatesNothing(t *testing.T, what string, c *Cluster, x *protocol.Exchange) {
	t.Helper()
	via := &ClusterPicker{Cluster: c, Protocol: config.HTTP1}
	serve := func() {
		x.Record.Attempts = x.Record.Attempts[:0]
		if err := via.Serve(context.Background(), x); err != nil {
			t.Fatal(err)
		}
		x.ResetResponse()
	}
	for range 100 {
		serve()
	}
	if n := testing.AllocsPerRun(200, serve); n != 0 {
		t.Errorf("%s: %v allocations an exchange, want 0", what, n)
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

// pass lets fake time pass, and waits until everything that was due has
// happened.
//
//arch:clock called in bubbles of testing/synctest only
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// trunks is a network of hosts to which a connection carries many exchanges.
type trunks struct {
	world
	gates   map[string]chan struct{} // guarded by mu; connects wait until it is closed
	all     []*trunk                 // guarded by mu; every connection ever opened
	answers func(k *trunk, x *protocol.Exchange) error
	room    int64 // how many exchanges a host takes on a connection; 0: it says nothing of that

	connecting, mostConnecting int // guarded by mu; connects under way, and the most there were at once
}

// narrow is a trunk whose host takes only so many exchanges: the others wait on it.
type narrow struct {
	*trunk
	room int64
}

func (k narrow) MaxConcurrentStreams() int64 { return k.room }

// RTT is as many ms as the host takes exchanges.
func (k narrow) RTT() time.Duration { return time.Duration(k.room) * time.Millisecond }

func newTrunks() *trunks {
	return &trunks{
		world: world{refuse: map[string]bool{}, hang: map[string]bool{}},
		gates: map[string]chan struct{}{},
	}
}

func (*trunks) Multiplexed() bool { return true }

func (n *trunks) Connect(ctx context.Context, h *Host, deadline time.Time, released func(bool)) (Connection, error) {
	n.mu.Lock()
	n.dials = append(n.dials, h.Name())
	gate := n.gates[h.Name()]
	n.connecting++
	n.mostConnecting = max(n.mostConnecting, n.connecting)
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
	if n.refuse[h.Name()] {
		return nil, protocol.Faultf(protocol.ConnectFailure, "%s refused", h.Name())
	}
	k := &trunk{network: n, host: h.Name(), released: released, died: make(chan struct{})}
	n.all = append(n.all, k)
	if n.room > 0 {
		return narrow{k, n.room}, nil
	}
	return k, nil
}

// shut makes connects to host last until the returned function is called.
func (n *trunks) shut(host string) (open func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	gate := make(chan struct{})
	n.gates[host] = gate
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.gates, host)
		close(gate)
	}
}

// list returns every connection ever opened, in the order of that.
func (n *trunks) list() []*trunk {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// open returns how many connections are not closed.
func (n *trunks) open() int {
	open := 0
	for _, k := range n.list() {
		if !k.closed.Load() {
			open++
		}
	}
	return open
}

// trunk is a connection that carries many exchanges. It panics when it is given
// one after Close, or is closed while it carries one.
type trunk struct {
	network  *trunks
	host     string
	released func(bool)
	load     atomic.Int64
	served   atomic.Int64
	goaway   atomic.Bool // the peer wants no new exchange
	ended    atomic.Bool // the peer has closed it, and only sending shows it
	closed   atomic.Bool
	dying    sync.Once
	died     chan struct{} // closed when its peer is gone

	mu   sync.Mutex
	free []*call // guarded by mu
}

// call is an answer on a trunk; closing it ends the exchange there.
type call struct{ trunk *trunk }

func (*call) Read([]byte) (int, error) { return 0, io.EOF }
func (*call) Buffered() int            { return 0 }

func (a *call) Close() error {
	k := a.trunk
	k.mu.Lock()
	k.free = append(k.free, a)
	k.mu.Unlock()
	k.release()
	return nil
}

// die ends the connection from its peer's side: every exchange that waits for an
// answer fails.
func (k *trunk) die() { k.dying.Do(func() { close(k.died) }) }

func (k *trunk) isDead() bool {
	select {
	case <-k.died:
		return true
	default:
		return false
	}
}

func (k *trunk) Serve(_ context.Context, x *protocol.Exchange) error {
	k.load.Add(1)
	if k.closed.Load() {
		panic("an exchange on a closed connection")
	}
	if k.ended.Load() || k.isDead() {
		k.release()
		return protocol.Faultf(protocol.ConnectFailure, "%s had gone away", k.host)
	}
	k.served.Add(1)
	if k.network.answers != nil {
		if err := k.network.answers(k, x); err != nil {
			k.release()
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var a *call
	if n := len(k.free) - 1; n >= 0 {
		a, k.free = k.free[n], k.free[:n]
	} else {
		a = &call{k}
	}
	x.Response.Status = 200
	x.Response.Body = a
	return nil
}

// never answers: the exchange ends with the connection.
func never(k *trunk, _ *protocol.Exchange) error {
	<-k.died
	return protocol.Faultf(protocol.UpstreamReset, "%s closed the connection", k.host)
}

func (k *trunk) release() {
	if k.load.Add(-1) < 0 {
		panic("released twice")
	}
	k.released(k.Usable(0) && !k.ended.Load())
}

func (k *trunk) Usable(time.Duration) bool { return !k.goaway.Load() && !k.isDead() }

func (k *trunk) Close() error {
	if n := k.load.Load(); n != 0 {
		panic(fmt.Sprintf("closed with %d exchanges on it", n))
	}
	if k.closed.Swap(true) {
		panic("closed twice")
	}
	return nil
}

// on returns the connection that x's answer comes from.
func on(x *protocol.Exchange) *trunk { return x.Response.Body.(*call).trunk }

// web returns a set with the one cluster, whose hosts are of n.
func (n *trunks) web(t testing.TB, cfg *config.Cluster) (*Set, *Cluster) {
	t.Helper()
	s := newTestSet(t, &n.world, func(o *Options) { o.Connectors[config.HTTP1] = n })
	apply(t, s, cfg)
	return s, s.Get(cfg.Name)
}

// sharing returns a cluster of which each host has so many shared connections.
func sharing(connections int, hosts ...string) *config.Cluster {
	c := cluster("web", hosts...)
	c.Pool = config.Pool{Mode: config.Multiplex, Connections: connections}
	return c
}

// wantNothing checks that no count was left behind. Nothing is in flight.
func wantNothing(t testing.TB, c *Cluster) {
	t.Helper()
	for what, n := range map[string]int64{
		"exchanges in flight": c.breakers[0].active.Load(),
		"pending exchanges":   c.breakers[0].pending.Load(),
		"slots":               c.breakers[0].slots.open.Load(),
		"waiters for slots":   c.breakers[0].slots.waiting.Load(),
	} {
		if n != 0 {
			t.Errorf("%d %s, want 0", n, what)
		}
	}
}

// rest lets fake time pass for one of many goroutines.
//
//arch:clock called in bubbles of testing/synctest only
func rest(d time.Duration) { time.Sleep(d) }
