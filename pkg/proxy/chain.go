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

// chain is a listener's filter chains, built but not yet in force:
//
//	handler ── PROXY protocol ──┬── the only branch
//	                            └── chooser ── what it begins with ──┬── branch
//	                                                                 └── branch …
//
// Where there is nothing to choose, connections pay nothing for the choice.
type chain struct {
	config   *config.Listener
	handler  network.Handler
	count    *metrics.Listener
	release  func()             // of count
	shaken   *handshakes        // with the listener's callers; nil: no TLS
	former   *handshakes        // of the chain before, to be shared; nil: there is none
	branches []*branch          // in the order of the configuration, the default one last
	known    map[string]*branch // the branches by their identities
	choice   *choice            // what chooser is to choose among
	chooser  *chooser           // the listener's
}

// chain builds what l's connections meet. old is what they meet now, nil if l is new.
func (b *builder) chain(l *config.Listener, old *chain) (*chain, error) {
	c := &chain{config: l, known: map[string]*branch{}, choice: &choice{listener: l.Name, timeout: l.InspectTimeout}}
	if old != nil {
		c.chooser = old.chooser
		if old.config.Name == l.Name {
			c.former = old.shaken
		}
	} else {
		c.chooser = new(chooser)
	}
	if err := b.branches(c, old); err != nil {
		c.undo()
		return nil, err
	}
	var err error
	if c.choice.matcher, err = chainmatch.Compile(matches(l)); err != nil {
		c.undo()
		return nil, err
	}
	c.handler = b.server.front(c)
	c.count, c.release = b.server.o.Metrics.Listener(l.Name)
	return c, nil
}

// branches builds the filter chains of c.
func (b *builder) branches(c, old *chain) error {
	names := map[string]int{}
	for fc := range c.config.Chains() {
		names[fc.Name]++
	}
	for fc := range c.config.Chains() {
		r := &branch{config: fc, identity: c.identity(fc, names[fc.Name] == 1), group: new(network.Group)}
		place := fmt.Sprintf("%q", c.config.Name)
		if c.chooses() {
			place += " " + r.identity
		}
		var serves *serving
		if before := old.like(c, r); before != nil {
			serves = before.serving
		}
		err := b.branch(c, r, serves, place)
		switch {
		case err != nil && c.chooses():
			return fmt.Errorf("filter chain %s: %w", r.identity, err)
		case err != nil:
			return err
		}
		c.branches = append(c.branches, r)
		c.known[r.identity] = r
	}
	return nil
}

// front returns what connections of c meet first: the header of the PROXY protocol, if
// the listener says so, and the choice, if there is one.
func (s *Server) front(c *chain) network.Handler {
	var h network.Handler = c.chooser
	if !c.chooses() {
		h = c.branches[0].handler
	}
	if p := c.config.ProxyProtocol; p != nil {
		h = stream.Announce(stream.AnnouncedOptions{Headers: *p, Next: h, Listener: c.config.Name, Log: s.o.Log})
	}
	return h
}

// entrance is the group that connections are in from the beginning; nil: they have to
// choose first.
func (c *chain) entrance() *network.Group {
	if c.chooses() {
		return nil
	}
	return c.branches[0].group
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
func (c *chain) chooses() bool {
	l := c.config
	return len(l.FilterChains) != 1 || l.DefaultChain != nil || l.FilterChains[0].Match.String() != ""
}

// identity is what tells fc from c's other filter chains, over changes of the
// configuration: its name, if that is unique, or else what it is for.
func (c *chain) identity(fc *config.FilterChain, unique bool) string {
	what := fc.Match.String()
	switch {
	case fc.Name != "" && unique:
		return strconv.Quote(fc.Name)
	case fc == c.config.DefaultChain:
		what = "(default)"
	case what == "":
		what = "(all)"
	}
	if fc.Name == "" {
		return what
	}
	return strconv.Quote(fc.Name) + " " + what
}

// like returns the branch that was what r is in next; nil: r is new. c may be nil.
func (c *chain) like(next *chain, r *branch) *branch {
	switch {
	case c == nil:
		return nil
	case !c.chooses() && !next.chooses():
		return c.branches[0] // whatever it is called
	}
	return c.known[r.identity]
}

// enforce puts a chain in force that is the first of its listener.
func (c *chain) enforce() {
	for _, r := range c.branches {
		r.enforce()
	}
	c.settle()
}

// settle lets the listener's chooser choose among c's branches.
func (c *chain) settle() {
	choice := *c.choice
	choice.branches, choice.matches = c.branches, len(c.config.FilterChains)
	choice.shaken = c.shaken
	c.chooser.now.Store(&choice)
}

// compositions are what serves the chain's exchanges.
func (c *chain) compositions() []*composition {
	var all []*composition
	for _, r := range c.branches {
		if s := r.inForce(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// drop gives up a chain that did not come into force.
func (c *chain) drop() {
	c.undo()
	c.release()
}

// undo gives up what was built.
func (c *chain) undo() {
	for _, r := range c.branches {
		r.drop()
	}
	c.shaken.give()
}

// free gives back what c holds beside its compositions.
func (c *chain) free() {
	for _, r := range c.branches {
		r.secured.close()
	}
	c.shaken.give()
	c.release()
}
