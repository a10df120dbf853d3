package upstream

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// stressTest runs many exchanges on connections that the test ends in different ways.
type stressTest struct {
	*fakeMuxConnector
	t       *testing.T
	running goleak.Option // goroutines that ran before the test
	set     *Set
	cluster *Cluster

	ended atomic.Int64 // ended exchanges

	mu    sync.Mutex
	hosts map[*Host]bool // guarded by mu; all hosts that were tried
}

// yield calls runtime.Gosched the given number of times. The stress test has no fake time, because
// it tests concurrency.
func yield(times int) {
	for range times {
		runtime.Gosched()
	}
}

// TestStressLeavesNoCounts verifies that each exchange ends with an expected reason, and that all
// counts return to 0, whatever happens to connections, hosts and configuration.
func TestStressLeavesNoCounts(t *testing.T) {
	for _, mode := range []config.PoolMode{config.Multiplex, config.Bind, config.PingPong} {
		for name, limit := range map[string]struct {
			connections int
			maxStreams  int64 // concurrent exchanges per connection
			maxRequests int   // max_requests per connection; 0: no limit
		}{
			"any number of connections":          {},
			"5 connections":                      {connections: 5},
			"5 connections with stream limit 10": {connections: 5, maxStreams: 10},
			"5 connections with max_requests 7":  {connections: 5, maxRequests: 7},
			"any number with max_requests 1":     {maxRequests: 1},
		} {
			t.Run(string(mode)+", "+name, func(t *testing.T) {
				cfg := muxCluster(3, "a", "b", "c")
				cfg.Pool.Mode = mode
				cfg.CircuitBreakers.MaxConnections, cfg.Pool.MaxRPCRequests = limit.connections, limit.maxRequests
				cfg.ConnectTimeout = time.Hour // a lost wake-up must not end by timeout
				cfg.IdleTimeout = 40 * time.Millisecond
				f := newFakeMuxConnector()
				f.maxStreams = limit.maxStreams
				f.respond = func(conn *fakeMuxConn, _ *protocol.Exchange) error {
					yield(int(conn.served.Load() % 4))
					if conn.isDead() {
						return protocol.Faultf(protocol.UpstreamReset, "%s closed the connection", conn.host)
					}
					return nil
				}
				s := &stressTest{fakeMuxConnector: f, t: t, running: goleak.IgnoreCurrent(), hosts: map[*Host]bool{}}
				s.set, s.cluster = f.newTestCluster(t, cfg)
				s.run(cfg)
			})
		}
	}
}

func (s *stressTest) run(cfg *config.Cluster) {
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { s.downstream(uint64(i)) })
	}
	random := rand.New(rand.NewPCG(1, 2))
	for s.ended.Load() < 5000 { // of 10,000
		yield(20)
		apply(s.t, s.set, s.randomConfig(cfg, random))
	}
	apply(s.t, s.set, cfg)
	yield(100)
	s.set.Close() // while exchanges are in flight
	wg.Wait()
	s.check()
}

// downstream runs one of 50 downstream connections, with 20 concurrent exchanges.
func (s *stressTest) downstream(seed uint64) {
	d := newFakeDownstreamConn()
	defer d.end()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range uint64(20) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, i))
			for range 10 {
				s.exchange(d, random)
				yield(random.IntN(20))
			}
		})
	}
}

func (s *stressTest) exchange(d *fakeDownstreamConn, random *rand.Rand) {
	x := newExchange()
	x.Meta.Conn = &d.meta
	hasDeadline := random.IntN(4) == 0
	if hasDeadline {
		x.Deadline = time.Now().Add(time.Duration(random.IntN(5)) * time.Millisecond)
	}
	ctx, cancel := context.WithCancel(d)
	defer cancel()
	mayCancel := random.IntN(8) == 0
	if mayCancel {
		defer time.AfterFunc(time.Duration(random.IntN(5))*time.Millisecond, cancel).Stop()
		if cfg := s.cluster.Config(); cfg != nil && cfg.Pool.Mode == config.Bind {
			ctx = d // bind pools use the context of the downstream connection
		}
	}
	switch reason := protocol.ReasonOf(s.cluster.Serve(ctx, x)); reason {
	case protocol.ReasonNone:
		yield(random.IntN(3))
		finish(x)
	case protocol.UpstreamReset, protocol.ConnectFailure, protocol.ConnectTimeout, protocol.NoCluster:
	case protocol.UpstreamTimeout:
		if !hasDeadline {
			s.t.Error("an exchange without a deadline ended with upstream_timeout")
		}
	case protocol.ReasonDownstreamDisconnect:
		if !mayCancel {
			s.t.Error("an exchange without a cancel ended with downstream_gone")
		}
	default:
		s.t.Errorf("an exchange ended with %v; want a response or a failure that the test causes", x.Record)
	}
	if s.ended.Add(1)%10 == 0 {
		s.breakRandomConns(random)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range x.Record.Attempts {
		s.hosts[a.Host.(*Host)] = true
	}
}

// breakRandomConns ends some connections, each in a different way.
func (s *stressTest) breakRandomConns(random *rand.Rand) {
	var open []*fakeMuxConn
	for _, conn := range s.list() {
		if !conn.closed.Load() {
			open = append(open, conn)
		}
	}
	for _, end := range []func(*fakeMuxConn){
		(*fakeMuxConn).die,
		func(conn *fakeMuxConn) { conn.goaway.Store(true) },
		func(conn *fakeMuxConn) { conn.stale.Store(true) },
	} {
		if len(open) > 0 && random.IntN(2) == 0 {
			end(open[random.IntN(len(open))])
		}
	}
	host := []string{"a", "b", "c"}[random.IntN(3)]
	s.fakeMuxConnector.set(s.refuses, host, random.IntN(3) == 0)
}

// randomConfig returns cfg with one host removed, and with another pool mode, max_connections,
// max_requests or warm connections.
func (*stressTest) randomConfig(cfg *config.Cluster, random *rand.Rand) *config.Cluster {
	c := *cfg
	removed := random.IntN(len(cfg.Hosts))
	c.Hosts = append(append([]config.Host(nil), cfg.Hosts[:removed]...), cfg.Hosts[removed+1:]...)
	switch random.IntN(4) {
	case 0:
		c.Pool.Mode = []config.PoolMode{config.Multiplex, config.PingPong, config.Bind}[random.IntN(3)]
	case 1:
		c.CircuitBreakers.MaxConnections = 2 + random.IntN(10)
	case 2:
		c.Pool.MaxRPCRequests = random.IntN(4)
	default:
		c.Pool.WarmProtocol = config.HTTP1
	}
	return &c
}

// check verifies that the ended exchanges have left no counts, connections or goroutines.
func (s *stressTest) check() {
	goleak.VerifyNone(s.t, s.running)
	wantZeroCounts(s.t, s.cluster)
	if got := s.numOpen(); got != 0 {
		s.t.Errorf("%d connections are open, want 0", got)
	}
	served := int64(0)
	for _, conn := range s.list() {
		served += conn.served.Load()
	}
	s.t.Logf("%d connections served %d exchanges, %d exchanges were resent", len(s.list()), served, s.cluster.resent.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.hosts {
		if inFlight := h.load.InFlight(); inFlight != 0 {
			s.t.Errorf("%s has %d exchanges in flight, want 0", h.address, inFlight)
		}
		for n := h.pools.Load(); n != nil; n = n.next {
			if stats := n.pool.Stats(); stats.Open != 0 || stats.Idle != 0 {
				s.t.Errorf("%s: %d connections, %d idle, want none", h.address, stats.Open, stats.Idle)
			}
		}
	}
}
