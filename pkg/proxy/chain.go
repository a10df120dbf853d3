package proxy

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// chain is a listener's filter chain, built. Its handler outlives changes of
// everything but the engine's own options: those go through serving.
type chain struct {
	config  *config.Listener
	handler network.Handler
	serving *serving // nil for a chain that carries bytes
	count   *metrics.Listener
	release func() // of count
}

// serving is the part of a chain that a new configuration replaces under the
// connections that are open.
type serving struct {
	now atomic.Pointer[composition]
}

// composition is what serves and records the exchanges of a listener.
type composition struct {
	service protocol.Service
	record  *record
}

// Serve lets the composition in force answer x.
func (s *serving) Serve(ctx context.Context, x *protocol.Exchange) error {
	now := s.now.Load()
	now.record.listener.Active.Add(1)
	err := now.service.Serve(ctx, x)
	now.record.listener.Active.Add(-1)
	return err
}

// Observe lets the composition in force record x.
func (s *serving) Observe(x *protocol.Exchange) { s.now.Load().record.observe(x) }

// adopt lets what next serves with take over in c, if the connections of c can
// go on under next; it reports whether they can.
func (c *chain) adopt(next *chain) bool {
	if !sameEngine(c.config, next.config) {
		return false
	}
	c.config = next.config
	next.release()
	if c.serving != nil {
		old := c.serving.now.Swap(next.serving.now.Load())
		old.record.close()
	}
	return true
}

// close ends what the chain writes to. Exchanges have ended.
func (c *chain) close() {
	if c.serving != nil {
		c.serving.now.Load().record.close()
	}
	c.release()
}

// chain builds what l's connections meet.
func (b *builder) chain(l *config.Listener) (*chain, error) {
	if len(l.FilterChains) != 1 {
		return nil, fmt.Errorf("%d filter chains: exactly one is supported", len(l.FilterChains))
	}
	fc := l.FilterChains[0]
	count, release := b.server.o.Metrics.Listener(l.Name)
	if fc.TCPProxy != nil {
		carrier := &Carrier{clusters: b.server.clusters}
		return &chain{config: l, handler: b.server.o.TCPProxy(*fc.TCPProxy, carrier, b.server.o.Log), count: count, release: release}, nil
	}
	c, err := b.proxyChain(l, fc.Proxy)
	if err != nil {
		release()
		return nil, err
	}
	c.count, c.release = count, release
	return c, nil
}

// proxyChain builds a chain that serves exchanges.
func (b *builder) proxyChain(l *config.Listener, p *config.Proxy) (*chain, error) {
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
	s := new(serving)
	s.now.Store(&composition{service: service, record: rec})
	handler := engine.NewServer(stream.ServerOptions{
		Listener:    l.Name,
		Service:     s,
		HTTP1:       p.HTTP1,
		IdleTimeout: l.IdleTimeout,
		Observe:     s.Observe,
		Log:         b.server.o.Log,
	})
	return &chain{config: l, handler: handler, serving: s}, nil
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
