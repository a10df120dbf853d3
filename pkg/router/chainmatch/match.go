package chainmatch

import (
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// Needs returns what Match may have to know about the first bytes of a connection. For one
// connection, NeedsFor returns all or a part of it.
func (m *Matcher) Needs() Needs { return m.needs }

// NeedsFor returns what Match has to know about the first bytes of a connection with the addresses
// of c. 0 means nothing: the client need not send first.
func (m *Matcher) NeedsFor(c *Connection) Needs {
	if m.needs == 0 {
		return 0
	}
	n := m.root.byPort(c.Destination.Port())
	if n != nil {
		n = n.byAddr(c.Destination.Addr())
	}
	if n == nil {
		return 0
	}
	return n.needs
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

// next returns the node of the most specific chains at n that c matches at level, or nil if c
// matches none.
func (n *node) next(level criterion, c *Connection) *node {
	if n.children == nil {
		return n.fallback
	}
	switch level {
	case destinationPort:
		return n.byPort(c.Destination.Port())
	case destinationRange:
		return n.byAddr(c.Destination.Addr())
	case serverName:
		return n.byServerName(c.ServerName)
	case transport:
		return n.byText(string(c.Transport))
	case application:
		return n.byProtocols(c.Protocols)
	case directSourceRange:
		return n.byAddr(c.DirectSource)
	case sourceType:
		if c.isLocal() {
			return n.byText(string(config.LocalSource))
		}
		return n.byText(string(config.ExternalSource))
	case sourceRange:
		return n.byAddr(c.Source.Addr())
	case sourcePort:
		return n.byPort(c.Source.Port())
	case leaf:
	}
	return n
}

func (n *node) byPort(port uint16) *node {
	if next := n.children[key{port: port}]; next != nil {
		return next
	}
	return n.fallback
}

func (n *node) byText(text string) *node {
	if next := n.children[key{text: text}]; next != nil {
		return next
	}
	return n.fallback
}

// byAddr finds the longest range that contains a.
func (n *node) byAddr(a netip.Addr) *node {
	if !a.IsValid() {
		return n.fallback
	}
	a = a.Unmap().WithZone("")
	for _, bits := range n.lengths[family(a)] {
		p, _ := a.Prefix(int(bits)) // bits never exceeds the length of the address
		if next := n.children[key{prefix: p}]; next != nil {
			return next
		}
	}
	return n.fallback
}

// byServerName finds the exact name, then the longest wildcard.
func (n *node) byServerName(name string) *node {
	if next := n.children[key{text: name}]; name != "" && next != nil {
		return next
	}
	for {
		dot := strings.IndexByte(name, '.')
		if dot < 0 {
			return n.fallback
		}
		if next := n.children[key{text: name[dot:]}]; next != nil {
			return next
		}
		name = name[dot+1:]
	}
}

// byProtocols finds the first of the client's protocols that a chain requires.
func (n *node) byProtocols(protocols []string) *node {
	for _, p := range protocols {
		if next := n.children[key{text: p}]; next != nil {
			return next
		}
	}
	return n.fallback
}
