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
// If only one chain is possible, connections bypass the selector.
type compiledListener struct {
	config             *config.Listener
	handler            network.Handler
	metrics            *metrics.Listener
	releaseMetrics     func()                    // of count
	handshakes         *handshakeRecorder        // handshakes with clients; nil: no TLS
	previousHandshakes *handshakeRecorder        // recorder of the previous listener, to share; nil: none
	chains             []*compiledChain          // in configuration order, the default chain last
	chainsByIdentity   map[string]*compiledChain // chains by identity
	chainSet           *chainSet                 // chains to publish to selector
	selector           *chainSelector            // selector of the listener
}

// buildListener compiles l. old is its current state, or nil if l is new.
func (b *builder) buildListener(l *config.Listener, old *compiledListener) (*compiledListener, error) {
	e := &compiledListener{config: l, chainsByIdentity: map[string]*compiledChain{}, chainSet: &chainSet{timeout: l.InspectTimeout, inspection: l.Inspection}}
	if old != nil {
		e.selector = old.selector
		if old.config.Name == l.Name {
			e.previousHandshakes = old.handshakes
		}
	} else {
		e.selector = new(chainSelector)
	}
	if err := b.buildChains(e, old); err != nil {
		e.discardChains()
		return nil, err
	}
	var err error
	if e.chainSet.matcher, err = chainmatch.Compile(chainMatches(l)); err != nil {
		e.discardChains()
		return nil, err
	}
	e.handler = b.server.listenerHandler(e)
	e.metrics, e.releaseMetrics = b.server.o.Metrics.Listener(l.Name)
	return e, nil
}

// buildChains builds the filter chains of e.
func (b *builder) buildChains(e, old *compiledListener) error {
	names := map[string]int{}
	for fc := range e.config.Chains() {
		names[fc.Name]++
	}
	for fc := range e.config.Chains() {
		c := &compiledChain{config: fc, identity: e.identity(fc, names[fc.Name] == 1), group: new(network.ConnGroup)}
		place := fmt.Sprintf("%q", e.config.Name)
		if e.selectsChain() {
			place += " " + c.identity
		}
		var serves *pipeline.Live
		if before := old.previousChain(e, c); before != nil {
			serves = before.live
		}
		err := b.buildChain(e, c, serves, place)
		switch {
		case err != nil && e.selectsChain():
			return fmt.Errorf("filter chain %s: %w", c.identity, err)
		case err != nil:
			return err
		}
		e.chains = append(e.chains, c)
		e.chainsByIdentity[c.identity] = c
	}
	return nil
}

// listenerHandler returns the first handler of e's connections: the PROXY protocol if configured,
// then the selector if connections may use different chains.
func (s *Server) listenerHandler(e *compiledListener) network.Handler {
	var h network.Handler = e.selector
	if !e.selectsChain() {
		h = e.chains[0].handler
	}
	if p := e.config.ProxyProtocol; p != nil {
		h = stream.NewProxyProtocolHandler(stream.ProxyProtocolOptions{Headers: *p, Next: h, Listener: e.config.Name, Log: s.o.Log})
	}
	return h
}

// initialGroup returns the group of new connections, or nil if they must choose a chain first.
func (e *compiledListener) initialGroup() *network.ConnGroup {
	if e.selectsChain() {
		return nil
	}
	return e.chains[0].group
}

func chainMatches(l *config.Listener) []config.ChainMatch {
	out := make([]config.ChainMatch, len(l.FilterChains))
	for i, fc := range l.FilterChains {
		out[i] = fc.Match
	}
	return out
}

// selectsChain reports whether connections may use different chains: there is more than one, or one
// with match criteria.
func (e *compiledListener) selectsChain() bool {
	l := e.config
	return len(l.FilterChains) != 1 || l.DefaultChain != nil || l.FilterChains[0].Match.String() != ""
}

// identity distinguishes fc from e's other filter chains across configurations: its name if that is
// unique, or its match criteria.
func (e *compiledListener) identity(fc *config.FilterChain, unique bool) string {
	what := fc.Match.String()
	switch {
	case fc.Name != "" && unique:
		return strconv.Quote(fc.Name)
	case fc == e.config.DefaultChain:
		what = "(default)"
	case what == "":
		what = "(all)"
	}
	if fc.Name == "" {
		return what
	}
	return strconv.Quote(fc.Name) + " " + what
}

// previousChain returns the chain that c of next replaces, or nil if c is new. e may be nil.
func (e *compiledListener) previousChain(next *compiledListener, c *compiledChain) *compiledChain {
	switch {
	case e == nil:
		return nil
	case !e.selectsChain() && !next.selectsChain():
		return e.chains[0] // the only chain, whatever its name
	}
	return e.chainsByIdentity[c.identity]
}

// activate activates the first configuration of a listener.
func (e *compiledListener) activate() {
	for _, c := range e.chains {
		c.activate()
	}
	e.publishChains()
}

// publishChains makes the selector choose among e's chains.
func (e *compiledListener) publishChains() {
	choice := *e.chainSet
	choice.chains, choice.matchCount = e.chains, len(e.config.FilterChains)
	choice.handshakes = e.handshakes
	e.selector.active.Store(&choice)
}

// activePipelines returns the active pipelines of e.
func (e *compiledListener) activePipelines() []*pipeline.Pipeline {
	var all []*pipeline.Pipeline
	for _, c := range e.chains {
		if s := c.active(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// discard releases a listener that never became active.
func (e *compiledListener) discard() {
	e.discardChains()
	e.releaseMetrics()
}

// discardChains releases the chains and the handshake recorder.
func (e *compiledListener) discardChains() {
	for _, c := range e.chains {
		c.discard()
	}
	e.handshakes.release()
}

// close releases what e owns apart from its pipelines.
func (e *compiledListener) close() {
	for _, c := range e.chains {
		c.tls.close()
	}
	e.handshakes.release()
	e.releaseMetrics()
}
