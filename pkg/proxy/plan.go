package proxy

import (
	"context"
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
)

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

// buildListeners builds every entry. On an error, the caller rolls p back.
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

// bindNew binds the new addresses. On an error, the caller rolls p back.
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

// rollback releases everything that the plan has built or bound.
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
			_ = s.setOriginalDst(live, e.config) // cannot fail after prepareOriginalDst
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

// closeRecorder closes the recorder of a previous pipeline after its last exchange.
func (s *Server) closeRecorder(before *pipeline.Pipeline) {
	if before == nil {
		return
	}
	s.tasks.Go(func() {
		<-before.Ended()
		before.Close()
	})
}
