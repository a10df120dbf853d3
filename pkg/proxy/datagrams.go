package proxy

import (
	"context"
	"fmt"
	"sync"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
)

// networkUDP is the network of UDP listeners.
const networkUDP = "udp"

// datagramListeners holds the UDP listeners of a Server. They are separate from the listeners of
// connections.
type datagramListeners struct {
	mu   sync.Mutex
	live map[string]*datagramListener // by address; guarded by mu
	// Removed listeners that drain, by address. A configuration that binds the address again ends
	// the drain early.
	removed map[string]*datagramListener // guarded by mu
}

// datagramListener is a bound UDP listener. It serves after activateDatagrams has started it.
type datagramListener struct {
	config     *config.Listener // guarded by datagramListeners.mu
	socket     *network.PacketConn
	proxy      filter.PacketServer
	counts     *filter.DatagramCounters
	unregister []func()           // remove the metrics
	forceClose context.CancelFunc // ends a drain; set by drainRemovedDatagrams
	drained    chan struct{}      // closed after the drain
}

// datagramPlan is the change of the UDP listeners by a configuration.
type datagramPlan struct {
	config map[string]*config.Listener
	bound  map[string]*datagramListener // new listeners; they do not serve yet
}

// planDatagrams binds the new UDP listeners of next. On an error it binds none.
func (s *Server) planDatagrams(ctx context.Context, next *config.Snapshot) (*datagramPlan, error) {
	listeners, err := s.udpListeners(next)
	if err != nil {
		return nil, err
	}
	p := &datagramPlan{config: map[string]*config.Listener{}, bound: map[string]*datagramListener{}}
	for _, l := range listeners {
		p.config[l.Address] = l
		if s.datagrams.endDrainAt(l.Address) {
			continue
		}
		live, err := s.bindDatagrams(ctx, l)
		if err != nil {
			p.rollback()
			return nil, err
		}
		p.bound[l.Address] = live
	}
	return p, nil
}

// udpListeners checks and returns the UDP listeners of next, in order.
func (s *Server) udpListeners(next *config.Snapshot) (all []*config.Listener, err error) {
	taken := map[string]bool{}
	for _, l := range next.Listeners {
		switch {
		case l.Network != networkUDP:
			continue
		case taken[l.Address]:
			return nil, fmt.Errorf("listener %q: another listener has the address %s", l.Name, l.Address)
		case len(l.FilterChains) != 1 || l.FilterChains[0].UDPProxy == nil || s.o.UDPProxy == nil:
			return nil, fmt.Errorf("listener %q: a UDP listener requires exactly one filter chain, with a udp_proxy", l.Name)
		}
		taken[l.Address] = true
		all = append(all, l)
	}
	return all, nil
}

// endDrainAt reports whether an active listener is bound to the address. It ends the drain of a
// removed listener there.
func (d *datagramListeners) endDrainAt(address string) bool {
	d.mu.Lock()
	live, gone := d.live[address], d.removed[address]
	d.mu.Unlock()
	if gone != nil {
		gone.forceClose()
		<-gone.drained
	}
	return live != nil
}

func (s *Server) bindDatagrams(ctx context.Context, l *config.Listener) (*datagramListener, error) {
	socket, err := network.ListenPacket(ctx, network.PacketOptions{
		Name: l.Name, Address: l.Address, ReusePort: l.ReusePort, Mark: uint32(l.Mark), //nolint:gosec // the configuration parser has checked the range
	})
	if err != nil {
		return nil, err
	}
	live := &datagramListener{config: l, socket: socket, counts: new(filter.DatagramCounters), drained: make(chan struct{})}
	live.proxy, err = s.o.UDPProxy(*l.FilterChains[0].UDPProxy, socket, datagramHosts{s.clusters}, live.counts, s.o.Log)
	if err != nil {
		_ = socket.Close() // no datagram is lost
		return nil, fmt.Errorf("listener %q: %w", l.Name, err)
	}
	return live, nil
}

// rollback closes the listeners that the plan has bound.
func (p *datagramPlan) rollback() {
	if p == nil {
		return
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, live := range p.bound {
		live.proxy.Drain(now)
	}
}

// activateDatagrams activates the plan. It cannot fail.
func (s *Server) activateDatagrams(p *datagramPlan) {
	d := &s.datagrams
	var news []listenerChange
	defer func() { s.logListenerChanges(news) }() // runs after the unlock
	d.mu.Lock()
	defer d.mu.Unlock()
	for address, live := range d.live {
		next := p.config[address]
		if next == nil {
			delete(d.live, address)
			news = append(news, listenerChange{false, live.config.Name, address})
			s.drainRemovedDatagrams(live)
			continue
		}
		if next.Name != live.config.Name {
			live.unregisterMetrics()
			live.registerMetrics(s.o.Metrics, next.Name)
		}
		s.checkBound(live.config, next)
		live.config = next
		live.proxy.UpdateConfig(*next.FilterChains[0].UDPProxy)
	}
	if d.live == nil {
		d.live, d.removed = map[string]*datagramListener{}, map[string]*datagramListener{}
	}
	for address, live := range p.bound {
		d.live[address] = live
		news = append(news, listenerChange{true, live.config.Name, address})
		live.registerMetrics(s.o.Metrics, live.config.Name)
		s.tasks.Go(func() {
			if err := live.proxy.Serve(); err != nil {
				select {
				case s.failed <- fmt.Errorf("listener %s: %w", live.config.Name, err):
				default: // one error is enough to end the process
				}
			}
		})
	}
}

// drainRemovedDatagrams drains a removed listener. d.mu is held.
func (s *Server) drainRemovedDatagrams(live *datagramListener) {
	address, ctx := live.config.Address, context.Background()
	ctx, live.forceClose = context.WithTimeout(ctx, s.gracePeriod())
	s.datagrams.removed[address] = live
	s.tasks.Go(func() {
		s.drainDatagrams(ctx, live)
		s.datagrams.mu.Lock()
		defer s.datagrams.mu.Unlock()
		if s.datagrams.removed[address] == live {
			delete(s.datagrams.removed, address)
		}
		live.forceClose()
	})
}

func (s *Server) drainDatagrams(ctx context.Context, live *datagramListener) {
	s.logForceClosed(ctx, "UDP sessions", live.config.Name, live.proxy.Drain(ctx))
	live.unregisterMetrics()
	close(live.drained)
}

// drainAllDatagrams is the part of Drain for UDP listeners. It returns when all have ended.
func (s *Server) drainAllDatagrams(ctx context.Context) {
	d := &s.datagrams
	var ends sync.WaitGroup
	d.mu.Lock()
	all := d.live
	d.live = nil
	for _, live := range d.removed {
		defer context.AfterFunc(ctx, live.forceClose)()
		ends.Go(func() { <-live.drained })
	}
	d.mu.Unlock()
	for _, live := range all {
		ends.Go(func() { s.drainDatagrams(ctx, live) })
	}
	ends.Wait()
}

// registerMetrics exports the listener's metrics under that name.
func (l *datagramListener) registerMetrics(r *metrics.Registry, name string) {
	if r == nil {
		return
	}
	c := l.counts
	number := func(n interface{ Load() uint64 }) func() float64 { return func() float64 { return float64(n.Load()) } }
	l.unregister = []func(){
		r.Func(metrics.UDPSessions, func() float64 { return float64(l.proxy.Sessions()) }, name),
		r.Func(metrics.UDPSessionsOpened, number(&c.SessionsOpened), name),
		r.Func(metrics.UDPSessionsMoved, number(&c.SessionsMoved), name),
		r.Func(metrics.UDPDatagrams, number(&c.In), name, metrics.DirectionIn),
		r.Func(metrics.UDPDatagrams, number(&c.Out), name, metrics.DirectionOut),
		r.Func(metrics.UDPBytes, number(&c.InBytes), name, metrics.DirectionIn),
		r.Func(metrics.UDPBytes, number(&c.OutBytes), name, metrics.DirectionOut),
		r.Func(metrics.UDPDropped, number(&c.DroppedMaxSessions), name, metrics.DropMaxSessions),
		r.Func(metrics.UDPDropped, number(&c.DroppedNoHost), name, metrics.DropNoHost),
		r.Func(metrics.UDPDropped, number(&c.DroppedDraining), name, metrics.DropDraining),
		r.Func(metrics.UDPDropped, number(&c.DroppedToHost), name, metrics.DropToHost),
		r.Func(metrics.UDPDropped, number(&c.DroppedToClient), name, metrics.DropToClient),
	}
}

func (l *datagramListener) unregisterMetrics() {
	for _, f := range l.unregister {
		f()
	}
	l.unregister = nil
}

// describe appends the status of the active listeners.
func (d *datagramListeners) describe(all []ListenerStatus) []ListenerStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, live := range d.live {
		all = append(all, ListenerStatus{
			Name: live.config.Name, Network: networkUDP, Address: live.socket.Addr().String(),
			Sessions: live.proxy.Sessions(), ChainStatus: ChainStatus{Cluster: live.config.FilterChains[0].UDPProxy.Cluster},
		})
	}
	return all
}
