package rbac

import (
	"net/netip"
	"slices"

	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// action is the effect of a matching policy.
type action uint8

const (
	allow action = iota
	deny
	note // LOG
)

// rules are compiled Rules. They are immutable.
type rules struct {
	action   action
	policies []policy
	// A condition reads the path, the service or method of an RPC call, any header, remote_ip, or
	// metadata.
	readsPath, readsCall, readsFields, readsClient, readsMetadata bool
}

type policy struct {
	name      string
	what, who node
}

// node is a condition, or an operator on child conditions. It is a struct, not an interface, so
// that the subject stays on the stack.
type node struct {
	kind      kind
	children  []node
	header    *match.HeaderMatcher
	text      *match.StringMatcher // for a path or a name; nil: any name
	addresses *match.CIDRSet
	datum     *datum
	// Ports from first up to, but not including, end.
	first, end uint32
}

type kind uint8

const (
	never kind = iota
	always
	allOf
	oneOf
	not
	header
	path
	destination
	ports
	peer
	direct
	client
	authenticated
	metadata
	serverName
)

// subject is a request to evaluate.
type subject struct {
	x      *protocol.Exchange
	path   string     // without the query
	client netip.Addr // zero: none
}

// fits returns the name of the first policy, in the order of names, that matches s, and whether
// there is one.
func (r *rules) fits(s *subject) (name string, ok bool) {
	for i := range r.policies {
		if p := &r.policies[i]; p.what.holds(s) && p.who.holds(s) {
			return p.name, true
		}
	}
	return "", false
}

func (n *node) holds(s *subject) bool {
	switch n.kind {
	case always:
		return true
	case allOf:
		for i := range n.children {
			if !n.children[i].holds(s) {
				return false
			}
		}
		return true
	case oneOf:
		for i := range n.children {
			if n.children[i].holds(s) {
				return true
			}
		}
	case not:
		return !n.children[0].holds(s)
	case header:
		return n.header.Holds(s.x)
	case path:
		return n.text.Holds(s.path)
	case destination:
		return n.addresses.Has(local(s.x).Addr())
	case ports:
		port := uint32(local(s.x).Port())
		return port >= n.first && port < n.end
	case peer:
		return n.addresses.Has(match.Peer(s.x))
	case direct:
		return n.addresses.Has(match.Direct(s.x))
	case client:
		return n.addresses.Has(s.client)
	case metadata:
		return n.datum.holds(&s.x.Metadata)
	case authenticated:
		return n.isCalled(s.x)
	case serverName:
		return n.text.Holds(serverNameOf(s.x))
	case never:
	}
	return false
}

// isCalled reports whether the peer certificate of x has a name that matches n.text: one of its
// URIs, or without URIs one of its DNS names, or without either its subject. If n.text is nil, any
// certificate matches.
func (n *node) isCalled(x *protocol.Exchange) bool {
	if x.Meta.Conn == nil || x.Meta.Conn.TLS == nil || x.Meta.Conn.TLS.Peer == nil {
		return false
	}
	shown := x.Meta.Conn.TLS.Peer
	switch {
	case n.text == nil:
		return true
	case len(shown.URISANs) > 0:
		return slices.ContainsFunc(shown.URISANs, n.text.Holds)
	case len(shown.DNSSANs) > 0:
		return slices.ContainsFunc(shown.DNSSANs, n.text.Holds)
	}
	return n.text.Holds(shown.Subject)
}

func serverNameOf(x *protocol.Exchange) string {
	if x.Meta.Conn == nil || x.Meta.Conn.TLS == nil {
		return ""
	}
	return x.Meta.Conn.TLS.ServerName
}

func local(x *protocol.Exchange) netip.AddrPort {
	if x.Meta.Conn == nil {
		return netip.AddrPort{}
	}
	return x.Meta.Conn.Local
}

// datum is a compiled Metadata.
type datum struct {
	namespace, key string
	test           datumTest
	texts          []match.StringMatcher // one of them must match
	invert         bool
}

type datumTest uint8

const (
	single  datumTest = iota // the only value, or one of a repeated header, matches; a list does not
	element                  // one of the values matches
	present
	absent
)

func (d *datum) holds(m *protocol.Metadata) bool {
	count, fitting := 0, 0
	for value := range m.Values(d.namespace, d.key) {
		count++
		if match.AnyMatches(d.texts, value) {
			fitting++
		}
	}
	holds := false
	switch d.test {
	case single:
		holds = fitting > 0 && (count == 1 && !m.IsList(d.namespace, d.key) || m.Repeats(d.namespace, d.key))
	case element:
		holds = fitting > 0
	case present:
		holds = count > 0
	case absent:
		holds = count == 0
	}
	return holds != d.invert
}
