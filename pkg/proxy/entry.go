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

// compiledListener is a listener's way in and its filter chains, built but not yet in force:
//
//	handler ── PROXY protocol ──┬── the only chain
//	                            └── chooser ── what it begins with ──┬── chain
//	                                                                 └── chain …
//
// Where there is nothing to choose, connections pay nothing for the choice.
type compiledListener struct {
	config  *config.Listener
	handler network.Handler
	count   *metrics.Listener
	release func()                    // of count
	shaken  *handshakeRecorder        // with the listener's callers; nil: no TLS
	former  *handshakeRecorder        // of the entry before, to be shared; nil: there is none
	chains  []*compiledChain          // in the order of the configuration, the default one last
	known   map[string]*compiledChain // the chains by their identities
	choice  *chainSet                 // what chooser is to choose among
	chooser *chainSelector            // the listener's
}

// entry builds what l's connections meet. old is what they meet now, nil if l is new.
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

// listenerHandler returns what connections of e meet first: the header of the PROXY protocol, if
// the listener says so, and the choice, if there is one.
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

// initialGroup is the group that connections are in from the beginning; nil: they have to
// choose first.
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

// chooses reports whether connections may take different ways: there is more than one,
// or one that is not for all.
func (e *compiledListener) chooses() bool {
	l := e.config
	return len(l.FilterChains) != 1 || l.DefaultChain != nil || l.FilterChains[0].Match.String() != ""
}

// identity is what tells fc from e's other filter chains, over changes of the
// configuration: its name, if that is unique, or else what it is for.
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

// previousChain returns the chain that was what c is in next; nil: c is new. e may be nil.
func (e *compiledListener) previousChain(next *compiledListener, c *compiledChain) *compiledChain {
	switch {
	case e == nil:
		return nil
	case !e.chooses() && !next.chooses():
		return e.chains[0] // whatever it is called
	}
	return e.known[c.identity]
}

// enforce puts an entry in force that is the first of its listener.
func (e *compiledListener) enforce() {
	for _, c := range e.chains {
		c.enforce()
	}
	e.publishChains()
}

// publishChains lets the listener's chooser choose among e's chains.
func (e *compiledListener) publishChains() {
	choice := *e.choice
	choice.chains, choice.matches = e.chains, len(e.config.FilterChains)
	choice.shaken = e.shaken
	e.chooser.now.Store(&choice)
}

// compositions are what serves the entry's exchanges.
func (e *compiledListener) compositions() []*pipeline {
	var all []*pipeline
	for _, c := range e.chains {
		if s := c.active(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// drop gives up an entry that did not come into force.
func (e *compiledListener) drop() {
	e.undo()
	e.release()
}

// undo gives up what was built.
func (e *compiledListener) undo() {
	for _, c := range e.chains {
		c.drop()
	}
	e.shaken.give()
}

// free gives back what e holds beside its compositions.
func (e *compiledListener) free() {
	for _, c := range e.chains {
		c.secured.close()
	}
	e.shaken.give()
	e.release()
}
