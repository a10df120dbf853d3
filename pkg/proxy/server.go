package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Options are what a Server needs of the rest of the process. Immutable.
type Options struct {
	Protocols []stream.Protocol
	Filters   []filter.Stream
	// TCPProxy makes the handler of a tcp_proxy filter.
	TCPProxy func(cfg config.TCPProxy, carrier *Carrier, log *slog.Logger) network.Handler
	// Upstream completes what Server knows itself: policies and discoveries.
	Upstream upstream.Options
	Logs     *logfile.Set
	Metrics  *metrics.Registry
	Log      *slog.Logger
}

// Server runs one configuration after the other. What a request has loaded it
// keeps to its end; the next one sees the new.
type Server struct {
	o        Options // immutable
	clusters *upstream.Set
	running  atomic.Pointer[config.Snapshot]
	draining atomic.Bool
	tasks    sync.WaitGroup // drains of listeners that are gone, accept loops

	mu        sync.Mutex                 // serializes Apply and Drain
	listeners map[string]*liveListener   // by network and address; guarded by mu
	numbers   map[string]*metrics.Routes // of the tables in force; guarded by mu
	failed    chan error                 // an accept loop ended
}

// NewServer returns a server that runs nothing yet.
func NewServer(o Options) *Server {
	s := &Server{
		o:         o,
		listeners: make(map[string]*liveListener),
		failed:    make(chan error, 1),
	}
	up := o.Upstream
	up.Connectors = connectors(o.Protocols)
	s.clusters = upstream.NewSet(up)
	return s
}

// Running returns the configuration in force, nil before the first Apply.
func (s *Server) Running() *config.Snapshot { return s.running.Load() }

// Clusters returns the upstream side.
func (s *Server) Clusters() *upstream.Set { return s.clusters }

// Failed delivers the error of a listener that stopped accepting for good.
func (s *Server) Failed() <-chan error { return s.failed }

// Apply makes next the configuration in force: everything new is made and bound
// first; on any error that is undone and what ran goes on; then the new takes
// over; then what is gone is drained. ctx is the lifetime of the listeners.
func (s *Server) Apply(ctx context.Context, next *config.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return errors.New("the server is draining")
	}
	clusters, err := s.clusters.Prepare(next.Clusters)
	if err != nil {
		return err
	}
	plan, err := s.plan(ctx, next)
	if err != nil {
		clusters.Rollback()
		return err
	}
	s.warm(ctx, clusters)
	clusters.Commit()
	before := s.swap(ctx, plan)
	s.running.Store(next)
	s.tasks.Go(func() {
		awaitEnd(before, s.grace())
		clusters.Retire()
	})
	return nil
}

// warmTime bounds how long a new configuration waits for names to be resolved.
const warmTime = 5 * time.Second

// warm waits until the hosts of new clusters are known, if that is soon.
func (s *Server) warm(ctx context.Context, clusters *upstream.Change) {
	ctx, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	if err := clusters.Warm(ctx); err != nil {
		s.o.Log.Warn("applying a configuration before all hosts are known", "error", err)
	}
}

// awaitEnd returns when no exchange is served by what was in force before: what
// those refer to must be there as long as they are.
func awaitEnd(before []*composition, grace time.Duration) {
	late := time.NewTimer(grace)
	defer late.Stop()
	for _, c := range before {
		select {
		case <-c.ended:
		case <-late.C:
			return
		}
	}
}

// plan is a configuration that is ready to take over.
type plan struct {
	chains  map[string]*chain            // by listener key
	bound   map[string]*network.Listener // those that are new
	config  map[string]*config.Listener
	numbers map[string]*metrics.Routes // by route table
}

func listenerKey(l *config.Listener) string { return l.Network + "|" + l.Address }

// plan builds every chain and binds every new address, or neither.
func (s *Server) plan(ctx context.Context, next *config.Snapshot) (*plan, error) {
	p := &plan{
		chains: make(map[string]*chain),
		bound:  make(map[string]*network.Listener),
		config: make(map[string]*config.Listener),
	}
	if err := s.fill(ctx, p, next); err != nil {
		p.undo()
		return nil, err
	}
	return p, nil
}

// fill is plan without the undoing.
func (s *Server) fill(ctx context.Context, p *plan, next *config.Snapshot) error {
	b := newBuilder(s, next)
	p.numbers = b.numbers
	for _, l := range next.Listeners {
		key := listenerKey(l)
		if _, twice := p.config[key]; twice {
			return fmt.Errorf("listener %q: another listener has the address %s", l.Name, l.Address)
		}
		var old *serving
		if live := s.listeners[key]; live != nil {
			old = live.chain.serving
		}
		c, err := b.chain(l, old)
		if err != nil {
			return fmt.Errorf("listener %q: %w", l.Name, err)
		}
		p.config[key], p.chains[key] = l, c
	}
	for key, l := range p.config {
		if !l.Bind || s.listeners[key] != nil {
			continue
		}
		ln, err := s.bind(ctx, l, p.chains[key])
		if err != nil {
			return err
		}
		p.bound[key] = ln
	}
	return nil
}

func (p *plan) undo() {
	for _, ln := range p.bound {
		ln.Stop()
	}
	for _, c := range p.chains {
		c.drop()
	}
	releaseAll(p.numbers)
}

func releaseAll(numbers map[string]*metrics.Routes) {
	for _, n := range numbers {
		n.Release()
	}
}

func (s *Server) bind(ctx context.Context, l *config.Listener, c *chain) (*network.Listener, error) {
	return network.Listen(ctx, network.ListenOptions{
		Name:           l.Name,
		Network:        l.Network,
		Address:        l.Address,
		ReusePort:      l.ReusePort,
		MaxConnections: l.MaxConnections,
		Log:            s.o.Log,
		Count:          c.count,
	}, c.handler)
}

// swap lets the plan take over and returns what served before. Nothing in it can
// fail.
func (s *Server) swap(ctx context.Context, p *plan) (before []*composition) {
	for key, live := range s.listeners {
		if p.config[key] == nil || !p.config[key].Bind {
			delete(s.listeners, key)
			before = append(before, live.composition())
			s.retire(live)
		}
	}
	for key, c := range p.chains {
		live, ln := s.listeners[key], p.bound[key]
		switch {
		case live != nil:
			old := live.change(c)
			before = append(before, old)
			s.closeRecord(old)
		case ln != nil:
			c.enforce()
			s.listeners[key] = s.begin(ctx, ln, c)
		default: // not bound
			c.drop()
		}
	}
	releaseAll(s.numbers)
	s.numbers = p.numbers
	return slices.DeleteFunc(before, func(c *composition) bool { return c == nil })
}

// liveListener is a listener that accepts. Its fields are guarded by Server.mu.
type liveListener struct {
	ln    *network.Listener
	chain *chain
}

func (s *Server) begin(ctx context.Context, ln *network.Listener, c *chain) *liveListener {
	s.tasks.Go(func() {
		if err := ln.Serve(ctx); err != nil {
			select {
			case s.failed <- err:
			default: // one is enough to end the process
			}
		}
	})
	return &liveListener{ln: ln, chain: c}
}

// composition is what serves the listener's exchanges; nil if it carries bytes.
func (live *liveListener) composition() *composition {
	if live.chain.serving == nil {
		return nil
	}
	return live.chain.serving.now.Load()
}

// change gives a listener that goes on its new chain, and returns what served
// before. Connections that it has take part: only if an engine's own options
// changed must they end, each after its next exchange.
func (live *liveListener) change(c *chain) (before *composition) {
	live.ln.SetMaxConnections(c.config.MaxConnections)
	before = c.enforce()
	if c.serving == nil { // it carries bytes from now on
		if before = live.composition(); before != nil {
			before.release()
		}
	}
	if sameEngine(live.chain.config, c.config) {
		c.handler = live.chain.handler
	} else {
		live.ln.SetHandler(c.handler, true)
	}
	live.chain.release()
	live.chain = c
	return before
}

// closeRecord closes the record of what was in force once nothing is written to
// it any more.
func (s *Server) closeRecord(before *composition) {
	if before == nil {
		return
	}
	s.tasks.Go(func() {
		<-before.ended
		before.record.close()
	})
}

// retire drains a listener that is no longer configured.
func (s *Server) retire(live *liveListener) {
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.grace())
		defer cancel()
		s.drainOne(ctx, live)
	})
}

func (s *Server) drainOne(ctx context.Context, live *liveListener) {
	if cut := live.ln.Drain(ctx); cut > 0 {
		s.o.Log.Warn("connections were cut at the end of the drain time", "listener", live.chain.config.Name, "connections", cut)
	}
	if c := live.composition(); c != nil {
		c.release()
		c.record.close()
	}
	live.chain.release()
}

func (s *Server) grace() time.Duration {
	if c := s.running.Load(); c != nil {
		return c.Server.GracefulTimeout
	}
	return 0
}

// Drain stops accepting, lets what is under way end until ctx does, and returns
// when everything has ended. No Apply follows it.
func (s *Server) Drain(ctx context.Context) {
	s.draining.Store(true)
	s.mu.Lock()
	listeners := s.listeners
	s.listeners = nil
	s.mu.Unlock()
	var ends sync.WaitGroup
	for _, live := range listeners {
		ends.Go(func() { s.drainOne(ctx, live) })
	}
	ends.Wait()
	s.tasks.Wait()
	s.clusters.Close()
}

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// ListenerStatus is a listener as it runs, for people.
type ListenerStatus struct {
	Name        string   `json:"name"`
	Network     string   `json:"network"`
	Address     string   `json:"address"` // as bound
	Connections int      `json:"connections"`
	Protocols   []string `json:"protocols,omitempty"`
	RouteTable  string   `json:"route_table,omitempty"`
	Cluster     string   `json:"cluster,omitempty"` // of tcp_proxy
}

// Describe returns the listeners that accept, by name.
func (s *Server) Describe() []ListenerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]ListenerStatus, 0, len(s.listeners))
	for _, live := range s.listeners {
		l := live.chain.config
		status := ListenerStatus{Name: l.Name, Network: l.Network, Address: live.ln.Addr().String(), Connections: live.ln.Connections()}
		fc := l.FilterChains[0]
		if fc.TCPProxy != nil {
			status.Cluster = fc.TCPProxy.Cluster
		} else {
			status.RouteTable = fc.Proxy.RouteTable
			for _, p := range fc.Proxy.Downstream {
				status.Protocols = append(status.Protocols, string(p))
			}
		}
		all = append(all, status)
	}
	slices.SortFunc(all, func(a, b ListenerStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// sameEngine reports whether connections accepted under a go on as they are
// under b.
func sameEngine(a, b *config.Listener) bool {
	if len(a.FilterChains) != 1 || len(b.FilterChains) != 1 || a.IdleTimeout != b.IdleTimeout || a.Name != b.Name {
		return false
	}
	pa, pb := a.FilterChains[0].Proxy, b.FilterChains[0].Proxy
	if pa == nil || pb == nil {
		return pa == pb && reflect.DeepEqual(a.FilterChains[0].TCPProxy, b.FilterChains[0].TCPProxy)
	}
	return pa.HTTP1 == pb.HTTP1 && reflect.DeepEqual(pa.Downstream, pb.Downstream)
}
