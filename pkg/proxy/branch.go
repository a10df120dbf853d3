package proxy

import (
	"errors"
	"fmt"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/stream"
)

// branch is a filter chain of a listener, built but not yet in force.
type branch struct {
	config   *config.FilterChain
	identity string // see chain.identity
	handler  network.Handler
	secured  *secured       // its TLS; nil: plaintext
	group    *network.Group // the connections that took it

	// Of one that serves exchanges; nil for one that carries bytes.
	serving *serving     // the chain's, if it has one already
	made    *composition // what serving is to serve with
}

// enforce puts what the branch was made with in force, and returns what was before: nil
// for nothing. Its record is to be closed once it has ended.
func (r *branch) enforce() (before *composition) {
	if r.serving == nil {
		return nil
	}
	before = r.serving.now.Swap(r.made)
	if before != nil {
		before.release()
	}
	return before
}

// follow is enforce for a branch in the place of was, which may have served what r
// carries as bytes from now on; nil: in nobody's place.
func (r *branch) follow(was *branch) (before *composition) {
	if was != nil && r.serving == nil {
		if before = was.inForce(); before != nil {
			before.release()
		}
		return before
	}
	return r.enforce()
}

// end gives up a branch that was in force when its last connection has ended.
func (r *branch) end() {
	if c := r.inForce(); c != nil {
		c.release()
		c.record.close()
	}
}

// inForce is what serves the branch's exchanges; nil if it carries bytes.
func (r *branch) inForce() *composition {
	if r.serving == nil {
		return nil
	}
	return r.serving.now.Load()
}

// drop gives up a branch that did not come into force.
func (r *branch) drop() {
	if r.made != nil {
		r.made.record.close()
	}
	r.secured.close()
}

// branch builds what the connections of c meet that take r. old is what serves them
// now, nil if nothing does. place tells r from all others.
func (b *builder) branch(c *chain, r *branch, old *serving, place string) error {
	fc := r.config
	var carries network.Handler
	if fc.TCPProxy != nil {
		carries = b.server.o.TCPProxy(*fc.TCPProxy, &Carrier{clusters: b.server.clusters, clients: b.server.clients}, b.server.o.Log)
		r.handler = carries
	}
	var byALPN map[string]network.Handler
	if fc.Proxy != nil {
		var err error
		if byALPN, err = b.proxyChain(c.config, r, old, carries, place); err != nil {
			return err
		}
	}
	if r.handler == nil {
		return errors.New("no network filter serves connections")
	}
	if err := b.secure(c, r, byALPN); err != nil {
		r.drop()
		return fmt.Errorf("tls_context: %w", err)
	}
	return nil
}

// proxyChain makes r one that serves exchanges, and returns who serves what ALPN has a
// name for. What is none goes to unknown, if the proxy filter says so.
func (b *builder) proxyChain(l *config.Listener, r *branch, s *serving, unknown network.Handler, place string) (byALPN map[string]network.Handler, err error) {
	p := r.config.Proxy
	engines, err := b.engines(p)
	if err != nil {
		return nil, err
	}
	service, err := b.service(place, p)
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
	if !p.Fallback {
		unknown = nil
	}
	r.serving, r.made = s, newComposition(l.Name, service, rec)
	r.handler, byALPN = b.handler(l, p, s, engines, unknown)
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
