package chainmatch

import (
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// Needs returns what Match needs to know of the first bytes of any connection.
func (m *Matcher) Needs() Needs { return m.asks }

// Asks returns what Match needs to know of the first bytes of a connection with these addresses.
// 0 means nothing: the client need not send first.
func (m *Matcher) Asks(c *Connection) Needs {
	if m.asks == 0 {
		return 0
	}
	n := m.root.port(c.Destination.Port())
	if n != nil {
		n = n.within(c.Destination.Addr())
	}
	if n == nil {
		return 0
	}
	return n.asks
}

// Match returns the index of the chain for c, -1 for none. It does not allocate.
func (m *Matcher) Match(c *Connection) int {
	n := m.root
	for level := range leaf {
		if n = n.next(level, c); n == nil {
			return -1
		}
	}
	return n.chain
}

// next returns the node of the most specific chains at n that c matches at level, nil if it
// matches none.
func (n *node) next(level criterion, c *Connection) *node {
	if n.below == nil {
		return n.rest
	}
	switch level {
	case destinationPort:
		return n.port(c.Destination.Port())
	case destinationRange:
		return n.within(c.Destination.Addr())
	case serverName:
		return n.name(c.ServerName)
	case transport:
		return n.text(string(c.Transport))
	case application:
		return n.firstOf(c.Protocols)
	case peerRange:
		return n.within(c.Peer)
	case sourceType:
		if c.isLocal() {
			return n.text(string(config.LocalSource))
		}
		return n.text(string(config.ExternalSource))
	case sourceRange:
		return n.within(c.Source.Addr())
	case sourcePort:
		return n.port(c.Source.Port())
	case leaf:
	}
	return n
}

func (n *node) port(port uint16) *node {
	if next := n.below[key{port: port}]; next != nil {
		return next
	}
	return n.rest
}

func (n *node) text(text string) *node {
	if next := n.below[key{text: text}]; next != nil {
		return next
	}
	return n.rest
}

// within finds the longest range that contains a.
func (n *node) within(a netip.Addr) *node {
	if !a.IsValid() {
		return n.rest
	}
	a = a.Unmap().WithZone("")
	for _, bits := range n.lengths[family(a)] {
		p, _ := a.Prefix(int(bits)) // bits never exceeds the length of the address
		if next := n.below[key{prefix: p}]; next != nil {
			return next
		}
	}
	return n.rest
}

// name finds the exact name, then the longest wildcard.
func (n *node) name(name string) *node {
	if next := n.below[key{text: name}]; name != "" && next != nil {
		return next
	}
	for {
		dot := strings.IndexByte(name, '.')
		if dot < 0 {
			return n.rest
		}
		if next := n.below[key{text: name[dot:]}]; next != nil {
			return next
		}
		name = name[dot+1:]
	}
}

// firstOf finds the first of the client's protocols that a chain requires.
func (n *node) firstOf(protocols []string) *node {
	for _, p := range protocols {
		if next := n.below[key{text: p}]; next != nil {
			return next
		}
	}
	return n.rest
}
