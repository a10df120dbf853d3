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
	actionAllow action = iota
	actionDeny
	actionLog // LOG
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
	name                    string
	permissions, principals node
}

// node is a condition, or an operator on child conditions. It is a struct, not an interface, so
// that the subject stays on the stack.
type node struct {
	kind      nodeKind
	children  []node
	header    *match.HeaderMatcher
	text      *match.StringMatcher // for a path or a name; nil: any name
	addresses *match.CIDRSet
	metadata  *metadataCondition
	// Ports from first up to, but not including, end.
	first, end uint32
}

type nodeKind uint8

const (
	kindNever nodeKind = iota
	kindAlways
	kindAll
	kindAny
	kindNot
	kindHeader
	kindPath
	kindDestination
	kindPorts
	kindPeer
	kindDirect
	kindClient
	kindAuthenticated
	kindMetadata
	kindServerName
)

// evaluation is a request to evaluate.
type evaluation struct {
	x      *protocol.Exchange
	path   string     // without the query
	client netip.Addr // zero: none
}

// matchingPolicy returns the name of the first policy, in the order of names, that matches s, and
// whether there is one.
func (r *rules) matchingPolicy(s *evaluation) (name string, ok bool) {
	for i := range r.policies {
		if p := &r.policies[i]; p.permissions.matches(s) && p.principals.matches(s) {
			return p.name, true
		}
	}
	return "", false
}

func (n *node) matches(s *evaluation) bool {
	switch n.kind {
	case kindAlways:
		return true
	case kindAll:
		for i := range n.children {
			if !n.children[i].matches(s) {
				return false
			}
		}
		return true
	case kindAny:
		for i := range n.children {
			if n.children[i].matches(s) {
				return true
			}
		}
	case kindNot:
		return !n.children[0].matches(s)
	case kindHeader:
		return n.header.Matches(s.x)
	case kindPath:
		return n.text.Matches(s.path)
	case kindDestination:
		return n.addresses.Contains(localAddr(s.x).Addr())
	case kindPorts:
		port := uint32(localAddr(s.x).Port())
		return port >= n.first && port < n.end
	case kindPeer:
		return n.addresses.Contains(match.RemoteAddr(s.x))
	case kindDirect:
		return n.addresses.Contains(match.DirectRemoteAddr(s.x))
	case kindClient:
		return n.addresses.Contains(s.client)
	case kindMetadata:
		return n.metadata.matches(&s.x.Metadata)
	case kindAuthenticated:
		return n.matchesCertificate(s.x)
	case kindServerName:
		return n.text.Matches(serverNameOf(s.x))
	case kindNever:
	}
	return false
}

// matchesCertificate reports whether the peer certificate of x has a name that matches n.text: one
// of its URIs, or without URIs one of its DNS names, or without either its subject. If n.text is
// nil, any certificate matches.
func (n *node) matchesCertificate(x *protocol.Exchange) bool {
	if x.Meta.Conn == nil || x.Meta.Conn.TLS == nil || x.Meta.Conn.TLS.Peer == nil {
		return false
	}
	shown := x.Meta.Conn.TLS.Peer
	switch {
	case n.text == nil:
		return true
	case len(shown.URISANs) > 0:
		return slices.ContainsFunc(shown.URISANs, n.text.Matches)
	case len(shown.DNSSANs) > 0:
		return slices.ContainsFunc(shown.DNSSANs, n.text.Matches)
	}
	return n.text.Matches(shown.Subject)
}

func serverNameOf(x *protocol.Exchange) string {
	if x.Meta.Conn == nil || x.Meta.Conn.TLS == nil {
		return ""
	}
	return x.Meta.Conn.TLS.ServerName
}

func localAddr(x *protocol.Exchange) netip.AddrPort {
	if x.Meta.Conn == nil {
		return netip.AddrPort{}
	}
	return x.Meta.Conn.Local
}

// metadataCondition is a compiled Metadata.
type metadataCondition struct {
	namespace, key string
	test           metadataTest
	matchers       []match.StringMatcher // one of them must match
	invert         bool
}

type metadataTest uint8

const (
	testSingle  metadataTest = iota // the only value, or one of a repeated header, matches; a list does not
	testElement                     // one of the values matches
	testPresent
	testAbsent
)

func (d *metadataCondition) matches(m *protocol.Metadata) bool {
	count, fitting := 0, 0
	for value := range m.Values(d.namespace, d.key) {
		count++
		if match.AnyMatches(d.matchers, value) {
			fitting++
		}
	}
	holds := false
	switch d.test {
	case testSingle:
		holds = fitting > 0 && (count == 1 && !m.IsList(d.namespace, d.key) || m.Repeats(d.namespace, d.key))
	case testElement:
		holds = fitting > 0
	case testPresent:
		holds = count > 0
	case testAbsent:
		holds = count == 0
	}
	return holds != d.invert
}
