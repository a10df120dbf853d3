package proxy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// chain is a listener's filter chain, built but not yet in force.
type chain struct {
	config  *config.Listener
	handler network.Handler
	count   *metrics.Listener
	release func() // of count

	// Of a chain that serves exchanges; nil for one that carries bytes.
	serving *serving     // the listener's, if it has one already
	made    *composition // what serving is to serve with
}

// serving is the part of a listener that a new configuration replaces under the
// connections that are open, whatever engine options they were accepted with.
type serving struct {
	now atomic.Pointer[composition]
}

// composition is what serves and records the exchanges of a listener. It knows
// how many it serves, so that what it refers to can be retired when it is no
// longer in force and the last of them has ended.
type composition struct {
	service protocol.Service
	record  *record

	held  atomic.Int64 // exchanges, and one while it is in force
	ended chan struct{}
	once  sync.Once // closes ended
}

func newComposition(s protocol.Service, r *record) *composition {
	c := &composition{service: s, record: r, ended: make(chan struct{})}
	c.held.Store(1)
	return c
}

func (c *composition) release() {
	if c.held.Add(-1) == 0 {
		c.once.Do(func() { close(c.ended) })
	}
}

// take returns the composition in force, held.
func (s *serving) take() *composition {
	for {
		c := s.now.Load()
		c.held.Add(1)
		if s.now.Load() == c {
			return c
		}
		c.release() // it was replaced before we held it: its end may have been seen
	}
}

// Serve lets the composition in force answer x.
func (s *serving) Serve(ctx context.Context, x *protocol.Exchange) error {
	c := s.take()
	defer c.release()
	c.record.listener.Active.Add(1)
	defer c.record.listener.Active.Add(-1)
	return c.service.Serve(ctx, x)
}

// Observe lets the composition in force record x.
func (s *serving) Observe(x *protocol.Exchange) {
	c := s.take()
	defer c.release()
	c.record.observe(x)
}

// enforce puts what the chain was made with in force, and returns what was
// before: nil for nothing. Its record is to be closed once it has ended.
func (c *chain) enforce() (before *composition) {
	if c.serving == nil {
		return nil
	}
	before = c.serving.now.Swap(c.made)
	if before != nil {
		before.release()
	}
	return before
}

// drop gives up a chain that did not come into force.
func (c *chain) drop() {
	if c.made != nil {
		c.made.record.close()
	}
	c.release()
}

// chain builds what l's connections meet. old is what serves them now, nil if
// nothing does.
func (b *builder) chain(l *config.Listener, old *serving) (*chain, error) {
	if len(l.FilterChains) != 1 {
		return nil, fmt.Errorf("%d filter chains: exactly one is supported", len(l.FilterChains))
	}
	fc := l.FilterChains[0]
	count, release := b.server.o.Metrics.Listener(l.Name)
	if fc.TCPProxy != nil {
		carrier := &Carrier{clusters: b.server.clusters}
		return &chain{config: l, handler: b.server.o.TCPProxy(*fc.TCPProxy, carrier, b.server.o.Log), count: count, release: release}, nil
	}
	c, err := b.proxyChain(l, fc.Proxy, old)
	if err != nil {
		release()
		return nil, err
	}
	c.count, c.release = count, release
	return c, nil
}

// proxyChain builds a chain that serves exchanges.
func (b *builder) proxyChain(l *config.Listener, p *config.Proxy, s *serving) (*chain, error) {
	engine, err := b.engine(p)
	if err != nil {
		return nil, err
	}
	service, err := b.service(p)
	if err != nil {
		return nil, err
	}
	rec, err := b.record(l)
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = new(serving)
	}
	handler := engine.NewServer(stream.ServerOptions{
		Listener:    l.Name,
		Service:     s,
		HTTP1:       p.HTTP1,
		IdleTimeout: l.IdleTimeout,
		Observe:     s.Observe,
		Log:         b.server.o.Log,
	})
	return &chain{config: l, handler: handler, serving: s, made: newComposition(service, rec)}, nil
}

// engine finds the protocol that the proxy filter speaks to callers.
func (b *builder) engine(p *config.Proxy) (*stream.Protocol, error) {
	if len(p.Downstream) != 1 {
		return nil, fmt.Errorf("downstream_protocol: exactly one is supported, not %v", p.Downstream)
	}
	for i := range b.server.o.Protocols {
		if e := &b.server.o.Protocols[i]; e.Name == p.Downstream[0] {
			return e, nil
		}
	}
	return nil, fmt.Errorf("downstream_protocol %q is not built in", p.Downstream[0])
}
