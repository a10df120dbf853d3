package proxy

import (
	"fmt"
	"strconv"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
	"github.com/weft-proxy/weft/pkg/router/chainmatch"
	"github.com/weft-proxy/weft/pkg/stream"
)

// compiledListener is a listener's handler with its filter chains. It is built but may not be
// active yet:
//
//	handler ── PROXY protocol ──┬── the only chain
//	                            └── selector ── first bytes ──┬── chain
//	                                                         └── chain …
//
// If selectsChain returns false, connections bypass the selector.
type compiledListener struct {
	config             *config.Listener
	handler            network.Handler
	metrics            *metrics.Listener
	releaseMetrics     func()             // releases metrics
	handshakes         *handshakeRecorder // handshakes with clients; nil: no TLS
	previousHandshakes *handshakeRecorder // recorder of the previous listener, to share; nil: none
	chains             []*compiledChain   // in configuration order, the default chain last
	chainsByIdentity   map[string]*compiledChain
	chainSet           *chainSet      // chains to publish to selector
	selector           *chainSelector // shared with the previous configuration of the listener
}

// buildListener compiles l. old is its current state, or nil if l is new.
func (b *builder) buildListener(l *config.Listener, old *compiledListener) (*compiledListener, error) {
	cl := &compiledListener{config: l, chainsByIdentity: map[string]*compiledChain{}, chainSet: &chainSet{timeout: l.InspectTimeout, inspection: l.Inspection}}
	if old != nil {
		cl.selector = old.selector
		if old.config.Name == l.Name {
			cl.previousHandshakes = old.handshakes
		}
	} else {
		cl.selector = new(chainSelector)
	}
	if err := b.buildChains(cl, old); err != nil {
		cl.discardChains()
		return nil, err
	}
	var err error
	if cl.chainSet.matcher, err = chainmatch.Compile(chainMatches(l)); err != nil {
		cl.discardChains()
		return nil, err
	}
	cl.handler = b.server.listenerHandler(cl)
	cl.metrics, cl.releaseMetrics = b.server.o.Metrics.Listener(l.Name)
	return cl, nil
}

// buildChains builds the filter chains of cl.
func (b *builder) buildChains(cl, old *compiledListener) error {
	names := map[string]int{}
	for fc := range cl.config.Chains() {
		names[fc.Name]++
	}
	for fc := range cl.config.Chains() {
		c := &compiledChain{config: fc, identity: cl.identity(fc, names[fc.Name] == 1), group: new(network.ConnGroup)}
		key := fmt.Sprintf("%q", cl.config.Name)
		if cl.selectsChain() {
			key += " " + c.identity
		}
		var live *pipeline.Live
		if previous := old.previousChain(cl, c); previous != nil {
			live = previous.live
		}
		err := b.buildChain(cl, c, live, key)
		switch {
		case err != nil && cl.selectsChain():
			return fmt.Errorf("filter chain %s: %w", c.identity, err)
		case err != nil:
			return err
		}
		cl.chains = append(cl.chains, c)
		cl.chainsByIdentity[c.identity] = c
	}
	return nil
}

// listenerHandler returns the first handler of cl's connections: the PROXY protocol if configured,
// then the selector, or the handler of the only chain.
func (s *Server) listenerHandler(cl *compiledListener) network.Handler {
	var h network.Handler = cl.selector
	if !cl.selectsChain() {
		h = cl.chains[0].handler
	}
	if p := cl.config.ProxyProtocol; p != nil {
		h = stream.NewProxyProtocolHandler(stream.ProxyProtocolOptions{Headers: *p, Next: h, Listener: cl.config.Name, Log: s.o.Log})
	}
	return h
}

// initialGroup returns the group of new connections, or nil if the selector chooses their chain.
func (cl *compiledListener) initialGroup() *network.ConnGroup {
	if cl.selectsChain() {
		return nil
	}
	return cl.chains[0].group
}

func chainMatches(l *config.Listener) []config.ChainMatch {
	out := make([]config.ChainMatch, len(l.FilterChains))
	for i, fc := range l.FilterChains {
		out[i] = fc.Match
	}
	return out
}

// selectsChain reports whether the selector chooses the chain of a connection. It returns false if
// cl has exactly one filter chain, without match criteria, and no default chain.
func (cl *compiledListener) selectsChain() bool {
	l := cl.config
	return len(l.FilterChains) != 1 || l.DefaultChain != nil || l.FilterChains[0].Match.String() != ""
}

// identity returns a text that distinguishes fc from cl's other filter chains across
// configurations. It is the name of fc if that is unique. Otherwise it is the match criteria,
// preceded by the name if fc has one.
func (cl *compiledListener) identity(fc *config.FilterChain, unique bool) string {
	criteria := fc.Match.String()
	switch {
	case fc.Name != "" && unique:
		return strconv.Quote(fc.Name)
	case fc == cl.config.DefaultChain:
		criteria = "(default)"
	case criteria == "":
		criteria = "(all)"
	}
	if fc.Name == "" {
		return criteria
	}
	return strconv.Quote(fc.Name) + " " + criteria
}

// previousChain returns the chain that c of next replaces, or nil if c is new. cl may be nil.
func (cl *compiledListener) previousChain(next *compiledListener, c *compiledChain) *compiledChain {
	switch {
	case cl == nil:
		return nil
	case !cl.selectsChain() && !next.selectsChain():
		return cl.chains[0] // the only chain, whatever its name
	}
	return cl.chainsByIdentity[c.identity]
}

// activate activates the first configuration of a listener.
func (cl *compiledListener) activate() {
	for _, c := range cl.chains {
		c.activate()
	}
	cl.publishChains()
}

// publishChains makes the selector choose among cl's chains.
func (cl *compiledListener) publishChains() {
	set := *cl.chainSet
	set.chains, set.matchCount = cl.chains, len(cl.config.FilterChains)
	set.handshakes = cl.handshakes
	cl.selector.active.Store(&set)
}

// activePipelines returns the active pipelines of cl.
func (cl *compiledListener) activePipelines() []*pipeline.Pipeline {
	var pipelines []*pipeline.Pipeline
	for _, c := range cl.chains {
		if p := c.active(); p != nil {
			pipelines = append(pipelines, p)
		}
	}
	return pipelines
}

// discard releases a listener that never became active.
func (cl *compiledListener) discard() {
	cl.discardChains()
	cl.releaseMetrics()
}

// discardChains releases the chains and the handshake recorder.
func (cl *compiledListener) discardChains() {
	for _, c := range cl.chains {
		c.discard()
	}
	cl.handshakes.release()
}

// close releases the resources of cl except its pipelines.
func (cl *compiledListener) close() {
	for _, c := range cl.chains {
		c.tls.close()
	}
	cl.handshakes.release()
	cl.releaseMetrics()
}
