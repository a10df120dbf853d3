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
	actionLog
)

// rules are compiled Rules. They are immutable.
type rules struct {
	action   action
	policies []policy
	// Whether a condition reads the path, the service or method of an RPC call, any header,
	// remote_ip, or metadata.
	readsPath, readsCall, readsFields, readsClient, readsMetadata bool
}

type policy struct {
	name                    string
	permissions, principals node
}

// node is a condition, or an operator on child conditions. It is a struct, not an interface, so
// that the evaluation stays on the stack.
type node struct {
	kind      nodeKind
	children  []node
	header    *match.HeaderMatcher
	text      *match.StringMatcher // matches a path or a name; nil: any name
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

// evaluation holds the properties of the request to evaluate.
type evaluation struct {
	x      *protocol.Exchange
	path   string     // without the query
	client netip.Addr // zero: none
}

// matchingPolicy returns the name of the first policy, in the order of names, that matches e, and
// whether there is one.
func (r *rules) matchingPolicy(e *evaluation) (name string, ok bool) {
	for i := range r.policies {
		if p := &r.policies[i]; p.permissions.matches(e) && p.principals.matches(e) {
			return p.name, true
		}
	}
	return "", false
}

func (n *node) matches(e *evaluation) bool {
	switch n.kind {
	case kindAlways:
		return true
	case kindAll:
		for i := range n.children {
			if !n.children[i].matches(e) {
				return false
			}
		}
		return true
	case kindAny:
		for i := range n.children {
			if n.children[i].matches(e) {
				return true
			}
		}
	case kindNot:
		return !n.children[0].matches(e)
	case kindHeader:
		return n.header.Matches(e.x)
	case kindPath:
		return n.text.Matches(e.path)
	case kindDestination:
		return n.addresses.Contains(localAddr(e.x).Addr())
	case kindPorts:
		port := uint32(localAddr(e.x).Port())
		return port >= n.first && port < n.end
	case kindPeer:
		return n.addresses.Contains(match.RemoteAddr(e.x))
	case kindDirect:
		return n.addresses.Contains(match.DirectRemoteAddr(e.x))
	case kindClient:
		return n.addresses.Contains(e.client)
	case kindMetadata:
		return n.metadata.matches(&e.x.Metadata)
	case kindAuthenticated:
		return n.matchesCertificate(e.x)
	case kindServerName:
		return n.text.Matches(serverNameOf(e.x))
	case kindNever:
	}
	return false
}

// matchesCertificate reports whether a name in the peer certificate of x matches n.text. The names
// are the URIs, else the DNS names, else the subject. If n.text is nil, any certificate matches.
func (n *node) matchesCertificate(x *protocol.Exchange) bool {
	if x.Meta.Conn == nil || x.Meta.Conn.TLS == nil || x.Meta.Conn.TLS.Peer == nil {
		return false
	}
	cert := x.Meta.Conn.TLS.Peer
	switch {
	case n.text == nil:
		return true
	case len(cert.URISANs) > 0:
		return slices.ContainsFunc(cert.URISANs, n.text.Matches)
	case len(cert.DNSSANs) > 0:
		return slices.ContainsFunc(cert.DNSSANs, n.text.Matches)
	}
	return n.text.Matches(cert.Subject)
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

// metadataCondition is a compiled MetadataMatcher.
type metadataCondition struct {
	namespace, key string
	test           metadataTest
	matchers       []match.StringMatcher // one of them must match
	invert         bool
}

type metadataTest uint8

const (
	testSingle  metadataTest = iota // the only value, or one value of a repeated header, matches; elements of lists never match
	testElement                     // one of the values matches
	testPresent
	testAbsent
)

func (c *metadataCondition) matches(m *protocol.Metadata) bool {
	count, matching := 0, 0
	for value := range m.Values(c.namespace, c.key) {
		count++
		if match.AnyMatches(c.matchers, value) {
			matching++
		}
	}
	matched := false
	switch c.test {
	case testSingle:
		matched = matching > 0 && (count == 1 && !m.IsList(c.namespace, c.key) || m.Repeats(c.namespace, c.key))
	case testElement:
		matched = matching > 0
	case testPresent:
		matched = count > 0
	case testAbsent:
		matched = count == 0
	}
	return matched != c.invert
}
