package proxy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
	"github.com/weft-proxy/weft/pkg/proxy/service"
	"github.com/weft-proxy/weft/pkg/stream"
)

// compiledChain is a filter chain of a listener that is built but may not be active yet.
type compiledChain struct {
	config   *config.FilterChain
	identity string // see compiledListener.identity
	handler  network.Handler
	tls      *chainTLS          // nil: plaintext
	group    *network.ConnGroup // connections that use the chain

	// For a chain that serves exchanges; nil for one that relays bytes.
	live *pipeline.Live     // pipelines of the chain
	next *pipeline.Pipeline // pipeline to activate
}

// activate activates the chain's new pipeline and returns the previous one, or nil. The caller
// closes the recorder of the previous pipeline after that pipeline has ended.
func (c *compiledChain) activate() (previous *pipeline.Pipeline) {
	if c.live == nil {
		return nil
	}
	previous = c.live.Activate(c.next)
	if previous != nil {
		previous.Release()
	}
	return previous
}

// activateReplacing activates c in place of old, which may be nil, and returns the previous
// pipeline, or nil. If old served exchanges and c relays bytes, it only releases the pipeline of
// old.
func (c *compiledChain) activateReplacing(old *compiledChain) (previous *pipeline.Pipeline) {
	if old != nil && c.live == nil {
		if previous = old.active(); previous != nil {
			previous.Release()
		}
		return previous
	}
	return c.activate()
}

// close releases and closes the active pipeline, if there is one. The caller waits for the last
// connection of the chain first.
func (c *compiledChain) close() {
	if active := c.active(); active != nil {
		active.Release()
		active.Close()
	}
}

// active returns the active pipeline of the chain, or nil if the chain relays bytes.
func (c *compiledChain) active() *pipeline.Pipeline {
	if c.live == nil {
		return nil
	}
	return c.live.Active()
}

// discard releases a chain that never became active.
func (c *compiledChain) discard() {
	if c.next != nil {
		c.next.Close()
	}
	c.tls.close()
}

// buildChain builds the handlers of c. old holds the pipeline of the chain that c replaces; nil: c
// is new, or replaces a chain that relays bytes. key distinguishes c from all other chains.
func (b *builder) buildChain(cl *compiledListener, c *compiledChain, old *pipeline.Live, key string) error {
	fc := c.config
	var relay network.Handler
	if fc.TCPProxy != nil {
		observers, err := b.buildSessionObservers(fc.ConnectionFilters, key)
		if err != nil {
			return err
		}
		relay = b.server.o.TCPProxy(*fc.TCPProxy, &TCPForwarder{b.server.clusters, b.server.upstreamTLS, observers}, b.server.o.Log)
		c.handler = relay
	}
	var byALPN map[string]network.Handler
	if fc.Proxy != nil {
		var err error
		if byALPN, err = b.buildProxyChain(cl.config, c, old, relay, key); err != nil {
			return err
		}
	}
	if c.handler == nil {
		return errors.New("no network filter serves connections")
	}
	if err := b.addConnectionFilters(cl, c, byALPN, key); err != nil {
		c.discard()
		return err
	}
	if err := b.addTLS(cl, c, byALPN); err != nil {
		c.discard()
		return fmt.Errorf("tls_context: %w", err)
	}
	return nil
}

// buildProxyChain makes c serve exchanges and returns the handlers by ALPN name. If the proxy
// filter has the fallback option, fallback serves connections whose protocol is not detected.
func (b *builder) buildProxyChain(l *config.Listener, c *compiledChain, live *pipeline.Live, fallback network.Handler, key string) (byALPN map[string]network.Handler, err error) {
	p := c.config.Proxy
	protocols, err := b.protocols(p)
	if err != nil {
		return nil, err
	}
	outermost, observers, err := b.buildService(key, p)
	if err != nil {
		return nil, err
	}
	replies, err := compileReplies(&p.Replies, c.config.Name)
	if err != nil {
		return nil, fmt.Errorf("local replies: %w", err)
	}
	rec, err := pipeline.NewRecorder(l, b.server.o.Logs, b.server.o.Metrics, observers)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = new(pipeline.Live)
	}
	if !p.Fallback {
		fallback = nil
	}
	table := b.onDemandTable(p.RouteTable)
	if table != nil && table.Unsubscribed {
		outermost = service.Respond(table, b.server.o.Metrics.Counter(metrics.Panics), b.server.o.Log)
	}
	c.live, c.next = live, pipeline.New(l.Name, outermost, rec, table)
	c.handler, byALPN = b.buildHandler(l, p, live, protocols, fallback, replies)
	return byALPN, nil
}

// buildHandler lets each engine serve the connections of its protocol, detected by first bytes or
// chosen by ALPN.
func (b *builder) buildHandler(l *config.Listener, p *config.Proxy, live *pipeline.Live, protocols []*stream.Protocol, fallback network.Handler, replies *protocol.EnvoyReplies) (h network.Handler, byALPN map[string]network.Handler) {
	o := stream.ServerOptions{
		Listener:         l.Name,
		Service:          live,
		HTTP1:            p.HTTP1,
		HTTP2:            p.HTTP2,
		RPC:              p.RPC,
		IdleTimeout:      l.IdleTimeout,
		EnvoyReplies:     replies,
		Observe:          live.Observe,
		NewBatchObserver: func() stream.BatchObserver { return live.NewBatchObserver() },
		CountUnderscores: b.server.countUnderscores,
		Log:              b.server.o.Log,
	}
	byALPN = map[string]network.Handler{}
	if len(protocols) == 1 && !isAuto(p) && fallback == nil {
		h = protocols[0].NewServer(o)
		byALPN[stream.ALPN(protocols[0].Name)] = h
		return h, byALPN
	}
	if isBolt(p) && fallback == nil {
		return newBoltHandler(protocols, o, p.DetectTimeout), byALPN
	}
	candidates := make([]stream.Candidate, len(protocols))
	for _, isHTTP1 := range [...]bool{false, true} { // HTTP/1.1 last: its options contain the HTTP/2 engine, for connections that upgrade
		for i, e := range protocols {
			if isHTTP1 != (e.Name == config.HTTP1) {
				continue
			}
			candidates[i] = stream.Candidate{Match: e.Match, Server: e.NewServer(o)}
			byALPN[stream.ALPN(e.Name)] = candidates[i].Server
			if isHTTP1 && fallback == nil && isHTTP(p) {
				fallback = candidates[i].Server // the HTTP/1.1 engine responds to other bytes with 400
			}
			if u, ok := candidates[i].Server.(stream.Upgrader); ok {
				o.H2C = u
			}
		}
	}
	return stream.NewDetector(stream.DetectOptions{
		Candidates: candidates, Fallback: fallback, Timeout: p.DetectTimeout, IdleTimeout: l.IdleTimeout,
	}), byALPN
}

func isBolt(p *config.Proxy) bool { return len(p.Downstream) == 1 && p.Downstream[0] == config.Bolt }

// newBoltHandler returns the handler for a proxy that speaks only Bolt. It selects the engine by
// the version in the first byte of a connection: version 2, or version 1 for any other byte.
func newBoltHandler(versions []*stream.Protocol, o stream.ServerOptions, timeout time.Duration) network.Handler {
	v1, v2 := versions[0], versions[1]
	matchV2 := func(b []byte) xprotocol.MatchResult {
		if v2.Match(b[:1]) == xprotocol.MatchNo {
			return xprotocol.MatchNo
		}
		return xprotocol.MatchYes
	}
	return stream.NewDetector(stream.DetectOptions{
		Candidates: []stream.Candidate{{Match: matchV2, Server: v2.NewServer(o)}}, Fallback: v1.NewServer(o),
		Timeout: timeout, IdleTimeout: o.IdleTimeout,
	})
}

func isAuto(p *config.Proxy) bool { return len(p.Downstream) == 1 && p.Downstream[0] == config.Auto }

// isHTTP reports whether the proxy filter lists only versions of HTTP.
func isHTTP(p *config.Proxy) bool {
	return !slices.ContainsFunc(p.Downstream, func(d config.Protocol) bool { return d != config.HTTP1 && d != config.HTTP2 })
}

// protocols returns the downstream protocols of the proxy filter in detection order. Auto means all
// protocols that can be sent as the upstream protocol; Bolt means both of its versions.
func (b *builder) protocols(p *config.Proxy) ([]*stream.Protocol, error) {
	var protocols []*stream.Protocol
	if isAuto(p) {
		for i := range b.server.o.Protocols {
			if e := &b.server.o.Protocols[i]; e.Name.CanSendAs(p.Upstream) {
				protocols = append(protocols, e)
			}
		}
	} else {
		for _, name := range p.Downstream {
			e := b.findProtocol(name)
			if e == nil {
				return nil, fmt.Errorf("downstream_protocol %q is not supported by this build", name)
			}
			protocols = append(protocols, e)
			if v2 := b.findProtocol(config.BoltV2); name == config.Bolt && v2 != nil && !slices.Contains(p.Downstream, config.BoltV2) {
				protocols = append(protocols, v2)
			}
		}
	}
	if len(protocols) == 0 {
		return nil, errors.New("downstream_protocol: no protocol is configured")
	}
	return protocols, nil
}

func (b *builder) findProtocol(name config.Protocol) *stream.Protocol {
	for i := range b.server.o.Protocols {
		if e := &b.server.o.Protocols[i]; e.Name == name {
			return e
		}
	}
	return nil
}

// countUnderscores implements stream.ServerOptions.CountUnderscores.
func (s *Server) countUnderscores(action config.UnderscoreAction, count int) {
	result := metrics.ResultDropped
	if action == config.RejectUnderscores {
		result = metrics.ResultRejected
	}
	s.o.Metrics.Counter(metrics.HeaderUnderscores, result).Add(uint64(count)) //nolint:gosec // never negative
}
