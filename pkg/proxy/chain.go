package proxy

import (
	"context"
	"errors"
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
	release func()   // of count
	secured *secured // its TLS; nil: plaintext

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
	listener string // its name
	service  protocol.Starter
	record   *record

	held  atomic.Int64 // exchanges, and one while it is in force
	ended chan struct{}
	once  sync.Once // closes ended
}

func newComposition(listener string, s protocol.Starter, r *record) *composition {
	c := &composition{listener: listener, service: s, record: r, ended: make(chan struct{})}
	c.held.Store(1)
	return c
}

func (c *composition) release() { c.releaseAll(1) }

// releaseAll is release for n exchanges.
func (c *composition) releaseAll(n int) {
	if c.held.Add(-int64(n)) == 0 {
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
	return protocol.Run(ctx, s, x)
}

// Start is protocol.Starter's. The composition is held until Observe.
func (s *serving) Start(ctx context.Context, x *protocol.Exchange) error {
	c := s.take()
	c.record.listener.Active.Add(1)
	x.Record.Listener = c
	c.record.name(x)
	return c.service.Start(ctx, x)
}

// Observe lets the composition that served x record it, or the one in force if none
// did: x was no request.
func (s *serving) Observe(x *protocol.Exchange) {
	if c, ok := x.Record.Listener.(*composition); ok {
		c.Observe(x)
		return
	}
	c := s.take()
	defer c.release()
	c.record.observe(x)
}

// Name is protocol.Place's.
func (c *composition) Name() string { return c.listener }

// Observe ends what Start began.
func (c *composition) Observe(x *protocol.Exchange) {
	defer c.release()
	c.record.listener.Active.Add(-1)
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
	c.free()
}

// free gives back what c holds beside its composition.
func (c *chain) free() {
	c.release()
	c.secured.close()
}

// chain builds what l's connections meet. old is what serves them now, nil if
// nothing does.
func (b *builder) chain(l *config.Listener, old *serving) (*chain, error) {
	if len(l.FilterChains) != 1 {
		return nil, fmt.Errorf("%d filter chains: exactly one is supported", len(l.FilterChains))
	}
	fc := l.FilterChains[0]
	c := &chain{config: l}
	var carries network.Handler
	if fc.TCPProxy != nil {
		carries = b.server.o.TCPProxy(*fc.TCPProxy, &Carrier{clusters: b.server.clusters, clients: b.server.clients}, b.server.o.Log)
		c.handler = carries
	}
	var byALPN map[string]network.Handler
	if fc.Proxy != nil {
		var err error
		if byALPN, err = b.proxyChain(c, fc.Proxy, old, carries); err != nil {
			return nil, err
		}
	}
	if err := b.secure(c, fc, byALPN); err != nil {
		if c.made != nil {
			c.made.record.close()
		}
		return nil, fmt.Errorf("tls_context: %w", err)
	}
	if p := l.ProxyProtocol; p != nil {
		c.handler = stream.Announce(stream.AnnouncedOptions{Headers: *p, Next: c.handler, Listener: l.Name, Log: b.server.o.Log})
	}
	c.count, c.release = b.server.o.Metrics.Listener(l.Name)
	return c, nil
}

// proxyChain makes c one that serves exchanges, and returns who serves what ALPN has
// a name for. What is none goes to unknown, if p says so.
func (b *builder) proxyChain(c *chain, p *config.Proxy, s *serving, unknown network.Handler) (byALPN map[string]network.Handler, err error) {
	engines, err := b.engines(p)
	if err != nil {
		return nil, err
	}
	service, err := b.service(c.config.Name, p)
	if err != nil {
		return nil, err
	}
	rec, err := b.record(c.config)
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = new(serving)
	}
	if !p.Fallback {
		unknown = nil
	}
	c.serving, c.made = s, newComposition(c.config.Name, service, rec)
	c.handler, byALPN = b.handler(c.config, p, s, engines, unknown)
	return byALPN, nil
}

// handler lets each engine serve the connections that speak its protocol: as they
// begin, or as ALPN chose.
func (b *builder) handler(l *config.Listener, p *config.Proxy, s *serving, engines []*stream.Protocol, unknown network.Handler) (h network.Handler, byALPN map[string]network.Handler) {
	o := stream.ServerOptions{
		Listener:    l.Name,
		Service:     s,
		HTTP1:       p.HTTP1,
		HTTP2:       p.HTTP2,
		RPC:         p.RPC,
		IdleTimeout: l.IdleTimeout,
		Observe:     s.Observe,
		NewTally:    func() stream.Tally { return &tally{serving: s} },
		Log:         b.server.o.Log,
	}
	byALPN = map[string]network.Handler{}
	if len(engines) == 1 && !isAuto(p) && unknown == nil {
		h = engines[0].NewServer(o)
		byALPN[stream.ALPN(engines[0].Name)] = h
		return h, byALPN
	}
	choices := make([]stream.Choice, len(engines))
	for _, upgrades := range [...]bool{false, true} { // HTTP/1.1 after what its callers may upgrade to
		for i, e := range engines {
			if upgrades != (e.Name == config.HTTP1) {
				continue
			}
			choices[i] = stream.Choice{Match: e.Match, Server: e.NewServer(o)}
			byALPN[stream.ALPN(e.Name)] = choices[i].Server
			if u, ok := choices[i].Server.(stream.Upgrader); ok {
				o.H2C = u
			}
		}
	}
	return stream.Detect(stream.DetectOptions{
		Choices: choices, Unknown: unknown, Timeout: p.DetectTimeout, IdleTimeout: l.IdleTimeout,
	}), byALPN
}

func isAuto(p *config.Proxy) bool { return len(p.Downstream) == 1 && p.Downstream[0] == config.Auto }

// engines finds the protocols that the proxy filter speaks to callers, in the
// order in which it looks for them. Auto is all that there are and that its
// upstreams can be sent.
func (b *builder) engines(p *config.Proxy) ([]*stream.Protocol, error) {
	var engines []*stream.Protocol
	if isAuto(p) {
		for i := range b.server.o.Protocols {
			if e := &b.server.o.Protocols[i]; e.Name.CarriedBy(p.Upstream) {
				engines = append(engines, e)
			}
		}
	} else {
		for _, name := range p.Downstream {
			e := b.engine(name)
			if e == nil {
				return nil, fmt.Errorf("downstream_protocol %q is not built in", name)
			}
			engines = append(engines, e)
		}
	}
	if len(engines) == 0 {
		return nil, errors.New("downstream_protocol: there is none")
	}
	return engines, nil
}

func (b *builder) engine(name config.Protocol) *stream.Protocol {
	for i := range b.server.o.Protocols {
		if e := &b.server.o.Protocols[i]; e.Name == name {
			return e
		}
	}
	return nil
}
