// Package proxy runs successive configurations in one process. Its Server compiles a configuration
// into listeners, filter chains and routes, makes it active, and drains what was replaced or
// removed. It composes the services of its subpackages:
//
//	service        what an exchange passes between its engine and its cluster
//	pipeline       serves and records the exchanges of a filter chain, across configurations
//	accesslog      writes access logs
//	explain        the path of a request through a configuration
//	overload       protects the process when a resource is nearly used up
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
	"github.com/weft-proxy/weft/pkg/proxy/overload"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
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
	UDPProxy func(cfg config.UDPProxy, socket *network.PacketConn, hosts filter.HostLeaser, counts *filter.DatagramCounters, log *slog.Logger) (filter.PacketServer, error)
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
	o                Options // immutable
	clusters         *upstream.Set
	onDemand         *pipeline.OnDemandTables
	virtualListeners virtualListeners
	// TLS: certificates, and the clients of clusters.
	reloader    *credential.Reloader
	upstreamTLS *upstreamTLS
	overload    *overload.Manager
	datagrams   datagramListeners

	running          atomic.Pointer[config.Snapshot]
	draining         atomic.Bool
	tasks            sync.WaitGroup     // drains of removed listeners, accept loops, background work of filters
	backgroundCtx    context.Context    //nolint:containedctx // of what filters do beside: the server's own, which Drain ends
	cancelBackground context.CancelFunc // of life
	failed           chan error         // an accept loop ended

	applyCtx    context.Context //nolint:containedctx // of Apply: it waits for nothing once this has ended
	cancelApply context.CancelFunc

	applying      sync.Mutex            // serializes Apply and Drain
	tables        map[string]*liveTable // the active tables; guarded by applying
	previousEnded chan struct{}         // closed when the exchanges of earlier configurations have ended; guarded by applying

	mu                sync.Mutex
	listeners         map[string]*liveListener             // by network and address; guarded by mu, changed under applying
	removed           map[*liveListener]context.CancelFunc // draining; guarded by mu
	drainingListeners map[*liveListener]struct{}           // listeners that Drain waits for; guarded by mu
}

// NewServer returns a server without a configuration.
func NewServer(o Options) *Server {
	s := &Server{
		o:                 o,
		failed:            make(chan error, 1),
		previousEnded:     make(chan struct{}),
		listeners:         make(map[string]*liveListener),
		removed:           make(map[*liveListener]context.CancelFunc),
		drainingListeners: make(map[*liveListener]struct{}),
	}
	s.onDemand = pipeline.NewOnDemandTables()
	s.overload = newOverloadManager(s)
	close(s.previousEnded) // there are no earlier configurations
	s.virtualListeners.publish(nil)
	s.backgroundCtx, s.cancelBackground = context.WithCancel(context.Background())
	s.applyCtx, s.cancelApply = context.WithCancel(context.Background())
	up := o.Upstream
	s.reloader = newCredentials(&s.o)
	s.upstreamTLS = newUpstreamTLS(s.reloader, o.Metrics)
	up.Connectors = connectors(o.Protocols, s.upstreamTLS)
	up.Dial = func(ctx context.Context, h *upstream.Host, deadline time.Time) (*network.Conn, error) {
		return s.upstreamTLS.dial(ctx, h, "", connOrigin{}, deadline)
	}
	s.clusters = upstream.NewSet(up)
	return s
}

// Running returns the active configuration, or nil before the first Apply.
//
// Its clusters are those of the last Apply; Clusters includes the changes of ApplyClusters.
func (s *Server) Running() *config.Snapshot { return s.running.Load() }

// OnDemandRoutes returns the demand for the server's route tables.
func (s *Server) OnDemandRoutes() pipeline.OnDemandRoutes { return s.onDemand.Requests() }

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
	clients, err := s.upstreamTLS.prepare(next.Clusters)
	if err != nil {
		clusters.Rollback()
		return err
	}
	watch, err := s.overload.Prepare(next.Overload)
	if err != nil {
		s.upstreamTLS.rollback(clients)
		clusters.Rollback()
		return err
	}
	plan, err := s.plan(ctx, next)
	if err != nil {
		s.upstreamTLS.rollback(clients)
		clusters.Rollback()
		return err
	}
	if err := s.warm(ctx, clusters); err != nil {
		plan.rollback()
		s.upstreamTLS.rollback(clients)
		clusters.Rollback()
		return err
	}
	s.upstreamTLS.commit(clients)
	clusters.Commit()
	before := s.activate(ctx, plan)
	s.activateDatagrams(plan.datagrams)
	s.running.Store(next)
	s.onDemand.NotifyWaiters(next.Routes)
	s.overload.Activate(watch)
	s.retireClusters(clusters, clients, before)
	return nil
}

// retireClusters retires the removed clusters once no exchange can reach them: neither of the
// configuration just replaced, before, nor of an earlier one that may have known the same clusters.
// s.applying is held.
func (s *Server) retireClusters(change *upstream.Change, clients *upstreamTLSTable, before []*pipeline.Pipeline) {
	earlier, ended, grace := s.previousEnded, make(chan struct{}), s.gracePeriod()
	s.previousEnded = ended
	s.tasks.Go(func() {
		awaitPipelines(before, grace)
		<-earlier
		close(ended)
		change.Retire()
		s.upstreamTLS.retire(clients)
	})
}

// warmTimeout limits how long a new configuration waits for hosts to be resolved.
const warmTimeout = 5 * time.Second

// warm waits up to warmTimeout until the hosts of new clusters are known. It returns an error if the
// server drains or ctx ends meanwhile; then the caller undoes the change.
func (s *Server) warm(ctx context.Context, clusters *upstream.Change) error {
	waiting, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	defer context.AfterFunc(s.applyCtx, cancel)()
	err := clusters.Warm(waiting)
	switch {
	case err == nil:
	case s.applyCtx.Err() != nil:
		return errDraining
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		s.o.Log.Warn("applying a configuration before all hosts are known", "error", err)
	}
	return nil
}

// StopWaiting makes a waiting Apply give up, and every later one that would wait. Call it before a drain.
func (s *Server) StopWaiting() { s.cancelApply() }

// awaitPipelines returns when no exchange uses the previous pipelines, or after grace.
func awaitPipelines(before []*pipeline.Pipeline, grace time.Duration) {
	late := time.NewTimer(grace)
	defer late.Stop()
	for _, c := range before {
		select {
		case <-c.Ended():
		case <-late.C:
			return
		}
	}
}

// plan is a configuration that is ready to take over.
type plan struct {
	listeners map[string]*compiledListener // by listener key
	bound     map[string]*liveListener     // new listeners; they do not accept yet
	configs   map[string]*config.Listener
	tables    map[string]*liveTable

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
		listeners: make(map[string]*compiledListener),
		bound:     make(map[string]*liveListener),
		configs:   make(map[string]*config.Listener),
	}
	if err := s.buildListeners(p, next); err != nil {
		p.rollbackListeners()
		return nil, err
	}
	if err := s.bindNew(ctx, p); err != nil {
		p.rollbackListeners()
		return nil, err
	}
	var err error
	if p.datagrams, err = s.planDatagrams(ctx, next); err != nil {
		p.rollbackListeners()
		return nil, err
	}
	return p, nil
}

// buildListeners builds every entry. On an error the caller undoes p.
func (s *Server) buildListeners(p *plan, next *config.Snapshot) error {
	b := newBuilder(s, next)
	p.tables = b.tables
	for _, l := range next.Listeners {
		if l.Network == networkUDP {
			continue // planDatagrams handles it
		}
		key := listenerKey(l)
		if _, twice := p.configs[key]; twice {
			return fmt.Errorf("listener %q: another listener has the address %s", l.Name, l.Address)
		}
		var old *compiledListener
		if live := s.listeners[key]; live != nil {
			old = live.compiled
		}
		e, err := b.buildListener(l, old)
		if err != nil {
			return fmt.Errorf("listener %q: %w", l.Name, err)
		}
		p.configs[key], p.listeners[key] = l, e
	}
	return nil
}

// bindNew binds the new addresses. On an error the caller undoes p.
func (s *Server) bindNew(ctx context.Context, p *plan) error {
	for key, l := range p.configs {
		if live := s.listeners[key]; live != nil {
			if err := live.prepareOriginalDst(l); err != nil {
				return err
			}
			continue
		}
		live, err := s.openListener(ctx, p.listeners[key])
		if err != nil {
			return err
		}
		if live != nil {
			p.bound[key] = live
		}
	}
	return nil
}

// rollback undoes a complete plan.
func (p *plan) rollback() {
	p.rollbackListeners()
	p.datagrams.rollback()
}

func (p *plan) rollbackListeners() {
	for _, live := range p.bound {
		live.ln.Stop()
	}
	for _, e := range p.listeners {
		e.discard()
	}
	releaseTables(p.tables)
}

// activate activates the plan and returns the previous pipelines. It cannot fail.
func (s *Server) activate(ctx context.Context, p *plan) (before []*pipeline.Pipeline) {
	var gone []*liveListener
	var news []listenerChange
	defer func() { s.logListenerChanges(news) }() // runs after the unlock
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, live := range s.listeners {
		if p.configs[key] == nil {
			delete(s.listeners, key)
			before = append(before, live.compiled.activePipelines()...)
			gone = append(gone, live)
			news = append(news, listenerChange{false, live.compiled.config.Name, live.ln.Addr().String()})
		}
	}
	for key, e := range p.listeners {
		live, made := s.listeners[key], p.bound[key]
		switch {
		case live != nil:
			before = append(before, live.reconfigure(s, e)...)
			_ = s.setOriginalDst(live, e.config) // prepareOriginalDst has done what can fail
		case made != nil:
			e.activate()
			s.listeners[key] = made
			s.serveListener(ctx, made)
			news = append(news, listenerChange{true, e.config.Name, made.ln.Addr().String()})
		default: // no connection can reach it
			e.discard()
		}
	}
	s.virtualListeners.publish(s.listeners)
	for _, live := range gone { // no listener passes connections to them now
		s.drainRemoved(live)
	}
	releaseTables(s.tables)
	s.tables = p.tables
	return before
}

// serveListener makes a listener accept.
func (s *Server) serveListener(ctx context.Context, live *liveListener) {
	ctx, live.cancelHandlers = context.WithCancel(ctx)
	live.ln.SetHandler(live.compiled.handler, live.compiled.initialGroup())
	s.tasks.Go(func() {
		if err := live.ln.Serve(ctx); err != nil {
			select {
			case s.failed <- err:
			default: // one error is enough to end the process
			}
		}
	})
}

// closeRecorder closes the record of a previous pipeline after its last exchange.
func (s *Server) closeRecorder(before *pipeline.Pipeline) {
	if before == nil {
		return
	}
	s.tasks.Go(func() {
		<-before.Ended()
		before.Close()
	})
}

// drainRemoved drains a removed listener. Its address is free when retire returns. s.mu is held.
func (s *Server) drainRemoved(live *liveListener) {
	live.ln.StopReplaced()
	ctx, cancel := context.WithTimeout(context.Background(), s.gracePeriod())
	s.removed[live] = cancel
	s.tasks.Go(func() {
		s.drainListener(ctx, live)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.removed, live)
		cancel()
	})
}

// forceCloseRemoved ends all drains of removed listeners immediately.
func (s *Server) forceCloseRemoved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cut := range s.removed {
		cut()
	}
}

func (s *Server) drainListener(ctx context.Context, live *liveListener) {
	defer live.cancelHandlers()
	// End handlers that wait for something other than their connection.
	defer context.AfterFunc(ctx, live.cancelHandlers)()
	s.logForceClosed(ctx, "connections", live.compiled.config.Name, live.ln.Drain(ctx))
	for _, c := range live.compiled.chains {
		c.close()
	}
	live.compiled.close()
}

func (s *Server) gracePeriod() time.Duration {
	if c := s.running.Load(); c != nil {
		return c.Server.GracefulTimeout
	}
	return 0
}

// Drain stops accepting, lets active work finish until ctx ends, and returns when everything has
// ended. After it Apply fails and another Drain does nothing.
func (s *Server) Drain(ctx context.Context) {
	s.draining.Store(true)
	s.StopWaiting()
	s.applying.Lock()
	defer s.applying.Unlock()
	s.mu.Lock()
	listeners := s.listeners
	s.listeners = nil
	for _, live := range listeners {
		s.drainingListeners[live] = struct{}{}
	}
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.forceCloseRemoved)()
	defer context.AfterFunc(ctx, s.cancelBackground)()
	var ends sync.WaitGroup
	for _, live := range listeners {
		ends.Go(func() {
			s.drainListener(ctx, live)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.drainingListeners, live)
		})
	}
	ends.Go(func() { s.drainAllDatagrams(ctx) })
	ends.Wait()
	s.overload.Activate(nil)
	s.tasks.Wait()
	s.cancelBackground()
	releaseTables(s.tables)
	s.tables = nil
	s.clusters.Close()
}

// Draining reports whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }
