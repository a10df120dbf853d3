package proxy

import (
	"context"
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
)

// plan is a configuration that is built and bound, ready to be activated.
type plan struct {
	listeners    map[string]*compiledListener // by listener key
	newListeners map[string]*liveListener     // do not accept yet
	configs      map[string]*config.Listener
	tables       map[string]*liveTable

	datagrams *datagramPlan
}

// listenerKey returns the key of a listener. A virtual listener may have the address of a bound
// listener.
func listenerKey(l *config.Listener) string {
	if !l.Bind {
		return "virtual|" + l.Network + "|" + l.Address
	}
	return l.Network + "|" + l.Address
}

// plan builds all listeners and binds all new addresses, or does neither.
func (s *Server) plan(ctx context.Context, next *config.Snapshot) (*plan, error) {
	p := &plan{
		listeners:    make(map[string]*compiledListener),
		newListeners: make(map[string]*liveListener),
		configs:      make(map[string]*config.Listener),
	}
	if err := s.buildListeners(p, next); err != nil {
		p.rollbackListeners()
		return nil, err
	}
	if err := s.bindNewAddresses(ctx, p); err != nil {
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

// buildListeners builds all listeners except those for UDP. On an error, the caller rolls p back.
func (s *Server) buildListeners(p *plan, next *config.Snapshot) error {
	b := newBuilder(s, next)
	p.tables = b.tables
	for _, l := range next.Listeners {
		if l.Network == networkUDP {
			continue // planDatagrams handles it
		}
		key := listenerKey(l)
		if _, duplicate := p.configs[key]; duplicate {
			return fmt.Errorf("listener %q: another listener has the address %s", l.Name, l.Address)
		}
		var previous *compiledListener
		if live := s.listeners[key]; live != nil {
			previous = live.compiled
		}
		compiled, err := b.buildListener(l, previous)
		if err != nil {
			return fmt.Errorf("listener %q: %w", l.Name, err)
		}
		p.configs[key], p.listeners[key] = l, compiled
	}
	return nil
}

// bindNewAddresses opens new listeners and prepares the others for setOriginalDst. On an error, the
// caller rolls p back.
func (s *Server) bindNewAddresses(ctx context.Context, p *plan) error {
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
			p.newListeners[key] = live
		}
	}
	return nil
}

// rollback releases everything that the plan has built or bound.
func (p *plan) rollback() {
	p.rollbackListeners()
	p.datagrams.rollback()
}

func (p *plan) rollbackListeners() {
	for _, live := range p.newListeners {
		live.ln.Stop()
	}
	for _, compiled := range p.listeners {
		compiled.discard()
	}
	releaseTables(p.tables)
}

// activate activates the plan and returns the previous pipelines. It cannot fail.
func (s *Server) activate(ctx context.Context, p *plan) (previous []*pipeline.Pipeline) {
	var removed []*liveListener
	var changes []listenerChange
	defer func() { s.logListenerChanges(changes) }() // runs after the unlock
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, live := range s.listeners {
		if p.configs[key] == nil {
			delete(s.listeners, key)
			previous = append(previous, live.compiled.activePipelines()...)
			removed = append(removed, live)
			changes = append(changes, listenerChange{false, live.compiled.config.Name, live.ln.Addr().String()})
		}
	}
	for key, compiled := range p.listeners {
		live, bound := s.listeners[key], p.newListeners[key]
		switch {
		case live != nil:
			previous = append(previous, live.reconfigure(s, compiled)...)
			_ = s.setOriginalDst(live, compiled.config) // cannot fail after prepareOriginalDst
		case bound != nil:
			compiled.activate()
			s.listeners[key] = bound
			s.applyScopes(bound)
			s.serveListener(ctx, bound)
			changes = append(changes, listenerChange{true, compiled.config.Name, bound.ln.Addr().String()})
		default: // no connection can reach the listener
			compiled.discard()
		}
	}
	s.virtualListeners.publish(s.listeners)
	for _, live := range removed { // no listener passes connections to them anymore
		s.drainRemoved(live)
	}
	releaseTables(s.tables)
	s.tables = p.tables
	return previous
}

// serveListener starts accepting.
func (s *Server) serveListener(ctx context.Context, live *liveListener) {
	ctx, live.cancelHandlers = context.WithCancel(ctx)
	live.ln.SetHandler(live.compiled.handler, live.compiled.initialGroup())
	s.tasks.Go(func() {
		if err := live.ln.Serve(ctx); err != nil {
			select {
			case s.serveErrors <- err:
			default: // one error is enough to end the process
			}
		}
	})
}

// closeRecorder closes the recorder of a previous pipeline after its last exchange.
func (s *Server) closeRecorder(previous *pipeline.Pipeline) {
	if previous == nil {
		return
	}
	s.tasks.Go(func() {
		<-previous.Ended()
		previous.Close()
	})
}
