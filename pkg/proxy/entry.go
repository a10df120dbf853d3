package proxy

import (
	"fmt"
	"strconv"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/router/chainmatch"
	"github.com/weft-proxy/weft/pkg/stream"
)

// compiledListener is a listener's handler with its filter chains. It is built but may not be
// active yet:
//
//	handler ── PROXY protocol ──┬── the only chain
//	                            └── chooser ── first bytes ──┬── chain
//	                                                         └── chain …
//
// If there is nothing to choose, connections bypass the chooser.
type compiledListener struct {
	config  *config.Listener
	handler network.Handler
	count   *metrics.Listener
	release func()                    // of count
	shaken  *handshakeRecorder        // handshakes with clients; nil: no TLS
	former  *handshakeRecorder        // recorder of the previous listener, to share; nil: none
	chains  []*compiledChain          // in configuration order, the default chain last
	known   map[string]*compiledChain // chains by identity
	choice  *chainSet                 // chains to publish to chooser
	chooser *chainSelector            // the listener's
}

// entry compiles l. old is its current state, or nil if l is new.
func (b *builder) entry(l *config.Listener, old *compiledListener) (*compiledListener, error) {
	e := &compiledListener{config: l, known: map[string]*compiledChain{}, choice: &chainSet{timeout: l.InspectTimeout, how: l.Inspection}}
	if old != nil {
		e.chooser = old.chooser
		if old.config.Name == l.Name {
			e.former = old.shaken
		}
	} else {
		e.chooser = new(chainSelector)
	}
	if err := b.chains(e, old); err != nil {
		e.undo()
		return nil, err
	}
	var err error
	if e.choice.matcher, err = chainmatch.Compile(matches(l)); err != nil {
		e.undo()
		return nil, err
	}
	e.handler = b.server.listenerHandler(e)
	e.count, e.release = b.server.o.Metrics.Listener(l.Name)
	return e, nil
}

// chains builds the filter chains of e.
func (b *builder) chains(e, old *compiledListener) error {
	names := map[string]int{}
	for fc := range e.config.Chains() {
		names[fc.Name]++
	}
	for fc := range e.config.Chains() {
		c := &compiledChain{config: fc, identity: e.identity(fc, names[fc.Name] == 1), group: new(network.ConnGroup)}
		place := fmt.Sprintf("%q", e.config.Name)
		if e.chooses() {
			place += " " + c.identity
		}
		var serves *livePipeline
		if before := old.previousChain(e, c); before != nil {
			serves = before.serving
		}
		err := b.chain(e, c, serves, place)
		switch {
		case err != nil && e.chooses():
			return fmt.Errorf("filter chain %s: %w", c.identity, err)
		case err != nil:
			return err
		}
		e.chains = append(e.chains, c)
		e.known[c.identity] = c
	}
	return nil
}

// listenerHandler returns the first handler of e's connections: the PROXY protocol if configured,
// then the chooser if there is a choice.
func (s *Server) listenerHandler(e *compiledListener) network.Handler {
	var h network.Handler = e.chooser
	if !e.chooses() {
		h = e.chains[0].handler
	}
	if p := e.config.ProxyProtocol; p != nil {
		h = stream.NewProxyProtocolHandler(stream.ProxyProtocolOptions{Headers: *p, Next: h, Listener: e.config.Name, Log: s.o.Log})
	}
	return h
}

// initialGroup returns the group of new connections, or nil if they must choose a chain first.
func (e *compiledListener) initialGroup() *network.ConnGroup {
	if e.chooses() {
		return nil
	}
	return e.chains[0].group
}

func matches(l *config.Listener) []config.ChainMatch {
	out := make([]config.ChainMatch, len(l.FilterChains))
	for i, fc := range l.FilterChains {
		out[i] = fc.Match
	}
	return out
}

// chooses reports whether connections may use different chains: there is more than one, or one with
// match criteria.
func (e *compiledListener) chooses() bool {
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
	case !e.chooses() && !next.chooses():
		return e.chains[0] // the only chain, whatever its name
	}
	return e.known[c.identity]
}

// enforce activates the first configuration of a listener.
func (e *compiledListener) enforce() {
	for _, c := range e.chains {
		c.enforce()
	}
	e.publishChains()
}

// publishChains makes the chooser choose among e's chains.
func (e *compiledListener) publishChains() {
	choice := *e.choice
	choice.chains, choice.matches = e.chains, len(e.config.FilterChains)
	choice.shaken = e.shaken
	e.chooser.now.Store(&choice)
}

// compositions returns the active pipelines of e.
func (e *compiledListener) compositions() []*pipeline {
	var all []*pipeline
	for _, c := range e.chains {
		if s := c.active(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// drop releases a listener that never became active.
func (e *compiledListener) drop() {
	e.undo()
	e.release()
}

// undo releases the chains and the handshake recorder.
func (e *compiledListener) undo() {
	for _, c := range e.chains {
		c.drop()
	}
	e.shaken.give()
}

// free releases what e owns apart from its pipelines.
func (e *compiledListener) free() {
	for _, c := range e.chains {
		c.secured.close()
	}
	e.shaken.give()
	e.release()
}
