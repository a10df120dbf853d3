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
	mu     sync.Mutex
	active map[string]*datagramListener // by address; guarded by mu
	// removed holds the removed listeners that drain, by address; guarded by mu. A configuration
	// that binds the address again force-closes their sessions.
	removed map[string]*datagramListener
}

// datagramListener is a bound UDP listener. It serves after activateDatagrams has started it.
type datagramListener struct {
	config     *config.Listener // guarded by datagramListeners.mu while the listener is active
	socket     *network.PacketConn
	proxy      filter.PacketServer
	counts     *filter.DatagramCounters
	unregister []func()           // functions that remove the metrics
	forceClose context.CancelFunc // ends a drain; set by drainRemovedDatagrams
	drained    chan struct{}      // closed after the drain
}

// datagramPlan is the change that a configuration makes to the UDP listeners.
type datagramPlan struct {
	listeners    map[string]*config.Listener
	newListeners map[string]*datagramListener // do not serve yet
}

// planDatagrams binds the new UDP listeners of next. On an error it leaves none of them bound.
func (s *Server) planDatagrams(ctx context.Context, next *config.Snapshot) (*datagramPlan, error) {
	listeners, err := s.udpListeners(next)
	if err != nil {
		return nil, err
	}
	p := &datagramPlan{listeners: map[string]*config.Listener{}, newListeners: map[string]*datagramListener{}}
	for _, l := range listeners {
		p.listeners[l.Address] = l
		if s.datagrams.endDrainAt(l.Address) {
			continue
		}
		dl, err := s.bindDatagrams(ctx, l)
		if err != nil {
			p.rollback()
			return nil, err
		}
		p.newListeners[l.Address] = dl
	}
	return p, nil
}

// udpListeners checks and returns the UDP listeners of next, in order.
func (s *Server) udpListeners(next *config.Snapshot) (listeners []*config.Listener, err error) {
	seen := map[string]bool{}
	for _, l := range next.Listeners {
		switch {
		case l.Network != networkUDP:
			continue
		case seen[l.Address]:
			return nil, fmt.Errorf("listener %q: another listener has the address %s", l.Name, l.Address)
		case len(l.FilterChains) != 1 || l.FilterChains[0].UDPProxy == nil || s.o.UDPProxy == nil:
			return nil, fmt.Errorf("listener %q: a UDP listener requires exactly one filter chain, with a udp_proxy", l.Name)
		}
		seen[l.Address] = true
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// endDrainAt force-closes the sessions of a removed listener that still drains at the address, and
// waits for its end. It reports whether an active listener is bound to the address.
func (d *datagramListeners) endDrainAt(address string) bool {
	d.mu.Lock()
	active, removed := d.active[address], d.removed[address]
	d.mu.Unlock()
	if removed != nil {
		removed.forceClose()
		<-removed.drained
	}
	return active != nil
}

func (s *Server) bindDatagrams(ctx context.Context, l *config.Listener) (*datagramListener, error) {
	socket, err := network.ListenPacket(ctx, network.PacketOptions{
		Name: l.Name, Address: l.Address, ReusePort: l.ReusePort, Mark: uint32(l.Mark), //nolint:gosec // the configuration parser has checked the range
	})
	if err != nil {
		return nil, err
	}
	dl := &datagramListener{config: l, socket: socket, counts: new(filter.DatagramCounters), drained: make(chan struct{})}
	dl.proxy, err = s.o.UDPProxy(*l.FilterChains[0].UDPProxy, socket, datagramHosts{s.clusters}, dl.counts, s.o.Log)
	if err != nil {
		_ = socket.Close() // no datagram is lost
		return nil, fmt.Errorf("listener %q: %w", l.Name, err)
	}
	return dl, nil
}

// rollback closes the listeners that the plan has bound.
func (p *datagramPlan) rollback() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, dl := range p.newListeners {
		dl.proxy.Drain(ctx)
	}
}

// activateDatagrams activates the plan. It cannot fail.
func (s *Server) activateDatagrams(p *datagramPlan) {
	d := &s.datagrams
	var changes []listenerChange
	defer func() { s.logListenerChanges(changes) }() // runs after the unlock
	d.mu.Lock()
	defer d.mu.Unlock()
	for address, dl := range d.active {
		next := p.listeners[address]
		if next == nil {
			delete(d.active, address)
			changes = append(changes, listenerChange{false, dl.config.Name, address})
			s.drainRemovedDatagrams(dl)
			continue
		}
		if next.Name != dl.config.Name {
			dl.unregisterMetrics()
			dl.registerMetrics(s.o.Metrics, next.Name)
		}
		s.checkBound(dl.config, next)
		dl.config = next
		dl.proxy.UpdateConfig(*next.FilterChains[0].UDPProxy)
	}
	if d.active == nil {
		d.active, d.removed = map[string]*datagramListener{}, map[string]*datagramListener{}
	}
	for address, dl := range p.newListeners {
		d.active[address] = dl
		changes = append(changes, listenerChange{true, dl.config.Name, address})
		dl.registerMetrics(s.o.Metrics, dl.config.Name)
		s.tasks.Go(func() {
			if err := dl.proxy.Serve(); err != nil {
				select {
				case s.serveErrors <- fmt.Errorf("listener %s: %w", s.datagrams.name(dl), err):
				default: // one error is enough to end the process
				}
			}
		})
	}
}

// name returns the current name of a listener.
func (d *datagramListeners) name(dl *datagramListener) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return dl.config.Name
}

// drainRemovedDatagrams drains a removed listener. The caller holds s.datagrams.mu.
func (s *Server) drainRemovedDatagrams(dl *datagramListener) {
	address, ctx := dl.config.Address, context.Background()
	ctx, dl.forceClose = context.WithTimeout(ctx, s.gracePeriod())
	s.datagrams.removed[address] = dl
	s.tasks.Go(func() {
		s.drainDatagrams(ctx, dl)
		s.datagrams.mu.Lock()
		defer s.datagrams.mu.Unlock()
		if s.datagrams.removed[address] == dl {
			delete(s.datagrams.removed, address)
		}
		dl.forceClose()
	})
}

func (s *Server) drainDatagrams(ctx context.Context, dl *datagramListener) {
	s.logForceClosed(ctx, "UDP sessions", dl.config.Name, dl.proxy.Drain(ctx))
	dl.unregisterMetrics()
	close(dl.drained)
}

// drainAllDatagrams drains all UDP listeners and returns when they have ended. Drain calls it.
func (s *Server) drainAllDatagrams(ctx context.Context) {
	d := &s.datagrams
	var wg sync.WaitGroup
	d.mu.Lock()
	active := d.active
	d.active = nil
	for _, dl := range d.removed {
		defer context.AfterFunc(ctx, dl.forceClose)()
		wg.Go(func() { <-dl.drained })
	}
	d.mu.Unlock()
	for _, dl := range active {
		wg.Go(func() { s.drainDatagrams(ctx, dl) })
	}
	wg.Wait()
}

// registerMetrics exports the listener's metrics under name.
func (l *datagramListener) registerMetrics(r *metrics.Registry, name string) {
	if r == nil {
		return
	}
	c := l.counts
	value := func(n interface{ Load() uint64 }) func() float64 { return func() float64 { return float64(n.Load()) } }
	l.unregister = []func(){
		r.Func(metrics.UDPSessions, func() float64 { return float64(l.proxy.Sessions()) }, name),
		r.Func(metrics.UDPSessionsOpened, value(&c.SessionsOpened), name),
		r.Func(metrics.UDPSessionsMoved, value(&c.SessionsMoved), name),
		r.Func(metrics.UDPDatagrams, value(&c.In), name, metrics.DirectionIn),
		r.Func(metrics.UDPDatagrams, value(&c.Out), name, metrics.DirectionOut),
		r.Func(metrics.UDPBytes, value(&c.InBytes), name, metrics.DirectionIn),
		r.Func(metrics.UDPBytes, value(&c.OutBytes), name, metrics.DirectionOut),
		r.Func(metrics.UDPDropped, value(&c.DroppedMaxSessions), name, metrics.DropMaxSessions),
		r.Func(metrics.UDPDropped, value(&c.DroppedNoHost), name, metrics.DropNoHost),
		r.Func(metrics.UDPDropped, value(&c.DroppedDraining), name, metrics.DropDraining),
		r.Func(metrics.UDPDropped, value(&c.DroppedToHost), name, metrics.DropToHost),
		r.Func(metrics.UDPDropped, value(&c.DroppedToClient), name, metrics.DropToClient),
	}
}

func (l *datagramListener) unregisterMetrics() {
	for _, f := range l.unregister {
		f()
	}
	l.unregister = nil
}

// describe appends the status of the active listeners.
func (d *datagramListeners) describe(statuses []ListenerStatus) []ListenerStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dl := range d.active {
		statuses = append(statuses, ListenerStatus{
			Name: dl.config.Name, Network: networkUDP, Address: dl.socket.Addr().String(),
			Sessions: dl.proxy.Sessions(), ChainStatus: ChainStatus{Cluster: dl.config.FilterChains[0].UDPProxy.Cluster},
		})
	}
	return statuses
}
