package proxy

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Options are what a Server needs from the rest of the process. Immutable.
type Options struct {
	Protocols         []stream.Protocol
	StreamFilters     []filter.StreamFilterFactory
	ConnectionFilters []filter.ConnectionFilterFactory
	// TCPProxy makes the handler of a tcp_proxy filter.
	TCPProxy func(cfg config.TCPProxy, carrier *TCPForwarder, log *slog.Logger) network.Handler
	// UDPProxy makes the server of a socket for a udp_proxy filter; nil: not supported.
	UDPProxy func(cfg config.UDPProxy, socket *network.PacketConn, hosts filter.HostLeaser, counts *filter.DatagramCounts, log *slog.Logger) (filter.PacketServer, error)
	// Upstream contains the options that Server does not set itself: policies and discoveries.
	Upstream upstream.Options
	Logs     *logfile.Set
	Metrics  *metrics.Registry
	Log      *slog.Logger
	// System contains proc and sys; nil: the system's root. For tests.
	System fs.FS
}

// Server runs successive configurations. A request keeps the configuration that it has loaded to
// its end; the next request uses the new one.
type Server struct {
	o        Options // immutable
	clusters *upstream.Set
	onDemand *tablesOnDemand
	handoff  virtualListeners
	// TLS: certificates, and the clients of clusters.
	credentials *credential.Reloader
	clients     *upstreamTLS
	overseer    overloadManager
	datagrams   datagramListeners

	running  atomic.Pointer[config.Snapshot]
	draining atomic.Bool
	tasks    sync.WaitGroup     // drains of removed listeners, accept loops, background work of filters
	life     context.Context    //nolint:containedctx // of what filters do beside: the server's own, which Drain ends
	end      context.CancelFunc // of life
	failed   chan error         // an accept loop ended

	hurry    context.Context //nolint:containedctx // of Apply: it waits for nothing once this has ended
	hurryNow context.CancelFunc

	applying sync.Mutex            // serializes Apply and Drain
	routing  map[string]*liveTable // the active tables; guarded by applying
	ended    chan struct{}         // closed when the exchanges of earlier configurations have ended; guarded by applying

	mu        sync.Mutex
	listeners map[string]*liveListener             // by network and address; guarded by mu, changed under applying
	retiring  map[*liveListener]context.CancelFunc // draining; guarded by mu
	leaving   map[*liveListener]struct{}           // listeners that Drain waits for; guarded by mu
}

// NewServer returns a server without a configuration.
func NewServer(o Options) *Server {
	s := &Server{
		o:         o,
		failed:    make(chan error, 1),
		ended:     make(chan struct{}),
		listeners: make(map[string]*liveListener),
		retiring:  make(map[*liveListener]context.CancelFunc),
		leaving:   make(map[*liveListener]struct{}),
	}
	s.onDemand = newTablesOnDemand()
	s.overseer.server = s
	close(s.ended) // there are no earlier configurations
	s.handoff.publish(nil)
	s.life, s.end = context.WithCancel(context.Background())
	s.hurry, s.hurryNow = context.WithCancel(context.Background())
	up := o.Upstream
	s.credentials = newCredentials(&s.o)
	s.clients = newClients(s.credentials, o.Metrics)
	up.Connectors = connectors(o.Protocols, s.clients)
	up.Dial = func(ctx context.Context, h *upstream.Host, deadline time.Time) (*network.Conn, error) {
		return s.clients.dial(ctx, h, "", connOrigin{}, deadline)
	}
	s.clusters = upstream.NewSet(up)
	return s
}

// Running returns the active configuration, or nil before the first Apply.
//
// Its clusters are those of the last Apply; Clusters includes the changes of ApplyClusters.
func (s *Server) Running() *config.Snapshot { return s.running.Load() }

// Clusters returns the upstream side.
func (s *Server) Clusters() *upstream.Set { return s.clusters }

// Failed delivers the error of a listener that stopped accepting for good.
func (s *Server) Failed() <-chan error { return s.failed }

// Apply makes next the active configuration. It first creates and binds everything new; on an error
// it undoes that and the previous configuration stays. Then the new one takes over, and removed
// parts drain. ctx is the lifetime of new listeners. Apply is safe for concurrent use; calls are
// serialized.
func (s *Server) Apply(ctx context.Context, next *config.Snapshot) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	return s.apply(ctx, next)
}

// apply is Apply. s.applying is held.
func (s *Server) apply(ctx context.Context, next *config.Snapshot) error {
	if s.draining.Load() {
		return errDraining
	}
	clusters, err := s.clusters.Prepare(next.Clusters)
	if err != nil {
		return err
	}
	clients, err := s.clients.prepare(next.Clusters)
	if err != nil {
		clusters.Rollback()
		return err
	}
	watch, err := s.overseer.prepare(next.Overload)
	if err != nil {
		s.clients.drop(clients)
		clusters.Rollback()
		return err
	}
	plan, err := s.plan(ctx, next)
	if err != nil {
		s.clients.drop(clients)
		clusters.Rollback()
		return err
	}
	if err := s.warm(ctx, clusters); err != nil {
		plan.drop()
		s.clients.drop(clients)
		clusters.Rollback()
		return err
	}
	s.clients.commit(clients)
	clusters.Commit()
	before := s.swap(ctx, plan)
	s.swapDatagrams(plan.datagrams)
	s.running.Store(next)
	s.onDemand.notifyWaiters(next.Routes)
	s.overseer.enforce(watch)
	s.retireClusters(clusters, clients, before)
	return nil
}

// retireClusters retires the removed clusters once no exchange can reach them: neither of the
// configuration just replaced, before, nor of an earlier one that may have known the same clusters.
// s.applying is held.
func (s *Server) retireClusters(change *upstream.Change, clients *upstreamTLSTable, before []*pipeline) {
	earlier, ended, grace := s.ended, make(chan struct{}), s.grace()
	s.ended = ended
	s.tasks.Go(func() {
		awaitEnd(before, grace)
		<-earlier
		close(ended)
		change.Retire()
		s.clients.retire(clients)
	})
}

// warmTime limits how long a new configuration waits for hosts to be resolved.
const warmTime = 5 * time.Second

// warm waits up to warmTime until the hosts of new clusters are known. It returns an error if the
// server drains or ctx ends meanwhile; then the caller undoes the change.
func (s *Server) warm(ctx context.Context, clusters *upstream.Change) error {
	waiting, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	defer context.AfterFunc(s.hurry, cancel)()
	err := clusters.Warm(waiting)
	switch {
	case err == nil:
	case s.hurry.Err() != nil:
		return errDraining
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		s.o.Log.Warn("applying a configuration before all hosts are known", "error", err)
	}
	return nil
}

// Hurry makes a waiting Apply give up, and every later one that would wait. Call it before a drain.
func (s *Server) Hurry() { s.hurryNow() }

// awaitEnd returns when no exchange uses the previous pipelines, or after grace.
func awaitEnd(before []*pipeline, grace time.Duration) {
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
	entries map[string]*compiledListener // by listener key
	bound   map[string]*liveListener     // new listeners; they do not accept yet
	config  map[string]*config.Listener
	tables  map[string]*liveTable

	datagrams *datagramPlan
}

// listenerKey returns the key of a listener. A virtual listener may have an address that another
// one is bound to.
func listenerKey(l *config.Listener) string {
	if !l.Bind {
		return "virtual|" + l.Network + "|" + l.Address
	}
	return l.Network + "|" + l.Address
}

// plan builds every entry and binds every new address, or does neither.
func (s *Server) plan(ctx context.Context, next *config.Snapshot) (*plan, error) {
	p := &plan{
		entries: make(map[string]*compiledListener),
		bound:   make(map[string]*liveListener),
		config:  make(map[string]*config.Listener),
	}
	if err := s.compose(p, next); err != nil {
		p.undo()
		return nil, err
	}
	if err := s.bindNew(ctx, p); err != nil {
		p.undo()
		return nil, err
	}
	var err error
	if p.datagrams, err = s.planDatagrams(ctx, next); err != nil {
		p.undo()
		return nil, err
	}
	return p, nil
}

// compose builds every entry. On an error the caller undoes p.
func (s *Server) compose(p *plan, next *config.Snapshot) error {
	b := newBuilder(s, next)
	p.tables = b.tables
	for _, l := range next.Listeners {
		if l.Network == networkUDP {
			continue // planDatagrams handles it
		}
		key := listenerKey(l)
		if _, twice := p.config[key]; twice {
			return fmt.Errorf("listener %q: another listener has the address %s", l.Name, l.Address)
		}
		var old *compiledListener
		if live := s.listeners[key]; live != nil {
			old = live.entry
		}
		e, err := b.entry(l, old)
		if err != nil {
			return fmt.Errorf("listener %q: %w", l.Name, err)
		}
		p.config[key], p.entries[key] = l, e
	}
	return nil
}

// bindNew binds the new addresses. On an error the caller undoes p.
func (s *Server) bindNew(ctx context.Context, p *plan) error {
	for key, l := range p.config {
		if live := s.listeners[key]; live != nil {
			if err := live.prepareRedirect(l); err != nil {
				return err
			}
			continue
		}
		live, err := s.open(ctx, p.entries[key])
		if err != nil {
			return err
		}
		if live != nil {
			p.bound[key] = live
		}
	}
	return nil
}

// drop undoes a complete plan.
func (p *plan) drop() {
	p.undo()
	p.datagrams.undo()
}

func (p *plan) undo() {
	for _, live := range p.bound {
		live.ln.Stop()
	}
	for _, e := range p.entries {
		e.drop()
	}
	releaseAll(p.tables)
}

// swap activates the plan and returns the previous pipelines. It cannot fail.
func (s *Server) swap(ctx context.Context, p *plan) (before []*pipeline) {
	var gone []*liveListener
	var news []listenerNews
	defer func() { s.tell(news) }() // runs after the unlock
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, live := range s.listeners {
		if p.config[key] == nil {
			delete(s.listeners, key)
			before = append(before, live.entry.compositions()...)
			gone = append(gone, live)
			news = append(news, listenerNews{false, live.entry.config.Name, live.ln.Addr().String()})
		}
	}
	for key, e := range p.entries {
		live, made := s.listeners[key], p.bound[key]
		switch {
		case live != nil:
			before = append(before, live.change(s, e)...)
			_ = s.redirect(live, e.config) // prepareRedirect has done what can fail
		case made != nil:
			e.enforce()
			s.listeners[key] = made
			s.begin(ctx, made)
			news = append(news, listenerNews{true, e.config.Name, made.ln.Addr().String()})
		default: // no connection can reach it
			e.drop()
		}
	}
	s.handoff.publish(s.listeners)
	for _, live := range gone { // no listener passes connections to them now
		s.retire(live)
	}
	releaseAll(s.routing)
	s.routing = p.tables
	return before
}

// begin makes a listener accept.
func (s *Server) begin(ctx context.Context, live *liveListener) {
	ctx, live.end = context.WithCancel(ctx)
	live.ln.SetHandler(live.entry.handler, live.entry.initialGroup())
	s.tasks.Go(func() {
		if err := live.ln.Serve(ctx); err != nil {
			select {
			case s.failed <- err:
			default: // one error is enough to end the process
			}
		}
	})
}

// closeRecord closes the record of a previous pipeline after its last exchange.
func (s *Server) closeRecord(before *pipeline) {
	if before == nil {
		return
	}
	s.tasks.Go(func() {
		<-before.ended
		before.record.close()
	})
}

// retire drains a removed listener. Its address is free when retire returns. s.mu is held.
func (s *Server) retire(live *liveListener) {
	live.ln.StopReplaced()
	ctx, cancel := context.WithTimeout(context.Background(), s.grace())
	s.retiring[live] = cancel
	s.tasks.Go(func() {
		s.drainOne(ctx, live)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.retiring, live)
		cancel()
	})
}

// forceCloseRetiring ends all drains of removed listeners immediately.
func (s *Server) forceCloseRetiring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cut := range s.retiring {
		cut()
	}
}

func (s *Server) drainOne(ctx context.Context, live *liveListener) {
	defer live.end()
	// End handlers that wait for something other than their connection.
	defer context.AfterFunc(ctx, live.end)()
	s.logForceClosed(ctx, "connections", live.entry.config.Name, live.ln.Drain(ctx))
	for _, c := range live.entry.chains {
		c.end()
	}
	live.entry.free()
}

func (s *Server) grace() time.Duration {
	if c := s.running.Load(); c != nil {
		return c.Server.GracefulTimeout
	}
	return 0
}

// Drain stops accepting, lets active work finish until ctx ends, and returns when everything has
// ended. After it Apply fails and another Drain does nothing.
func (s *Server) Drain(ctx context.Context) {
	s.draining.Store(true)
	s.Hurry()
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	listeners := s.listeners
	s.listeners = nil
	for _, live := range listeners {
		s.leaving[live] = struct{}{}
	}
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.forceCloseRetiring)()
	defer context.AfterFunc(ctx, s.end)()
	var ends sync.WaitGroup
	for _, live := range listeners {
		ends.Go(func() {
			s.drainOne(ctx, live)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.leaving, live)
		})
	}
	ends.Go(func() { s.drainAllDatagrams(ctx) })
	ends.Wait()
	s.overseer.enforce(nil)
	s.tasks.Wait()
	s.end()
	releaseAll(s.routing)
	s.routing = nil
	s.clusters.Close()
}

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }
