package rbac

import (
	"net/netip"
	"slices"

	"github.com/weft-proxy/weft/pkg/filter/match"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// action is what it means that a policy fits.
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
	// readsPath, readsCall, readsFields, readsClient and readsMetadata: a condition looks at
	// the path, at what a call of RPC is for, at any field, at remote_ip, at metadata.
	readsPath, readsCall, readsFields, readsClient, readsMetadata bool
}

type policy struct {
	name      string
	what, who node
}

// node is a condition, or what joins conditions. It is a tree of one type, not of
// interfaces, so that what is judged stays on the stack.
type node struct {
	kind      kind
	children  []node
	header    *match.HeaderMatcher
	text      *match.StringMatcher // of a path or a name; nil: any name
	addresses *match.CIDRSet
	datum     *datum
	// first and end are ports, end not included.
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

// subject is a request that is judged.
type subject struct {
	x      *protocol.Exchange
	path   string     // without the query
	client netip.Addr // zero: it has none
}

// fits returns the name of the first policy that fits, in the order of their names,
// and whether there is one.
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

// isCalled reports whether the caller of x showed a certificate with a name that n
// asks for: one of its URIs, if it has none one of its DNS names, else its subject.
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

// datum is a condition on a value of the metadata.
type datum struct {
	namespace, key string
	test           datumTest
	texts          []match.StringMatcher // of which one must hold
	invert         bool
}

type datumTest uint8

const (
	single  datumTest = iota // the value, or one of those of a repeated field, fits; a list does not
	element                  // one of the values does
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
