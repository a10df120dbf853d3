package chainmatch

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
)

// Matcher selects among the chains that it was compiled from.
type Matcher struct {
	root  *node
	needs Needs // needs of all chains
}

// Needs is the set of properties that a chain selection needs from the first bytes of a connection.
type Needs uint8

// The bits of Needs.
const (
	NeedTLS  Needs = 1 << iota // whether the bytes start a TLS handshake, and the values of the ClientHello
	NeedHTTP                   // the HTTP version in plaintext
)

// ConflictError reports that two chains match the same connections.
type ConflictError struct {
	First, Second int // indexes of the chains
	Criteria      string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("filter chains %d and %d match the same connections: %s", e.First, e.Second, e.Criteria)
}

// ErrTooLarge reports that the values of the chains' criteria have too many combinations.
var ErrTooLarge = errors.New("the criteria of the filter chains have more than 1,000,000 combinations")

// maxCombinations bounds the memory that a configuration can require.
const maxCombinations = 1_000_000

// criterion is a level of the tree: the property that its nodes test.
type criterion uint8

const (
	destinationPort criterion = iota
	destinationRange
	serverName
	transport
	application
	directSourceRange
	sourceType
	sourceRange
	sourcePort
	leaf
)

// key is one value of a criterion, in the field of that criterion. The zero key belongs to chains
// without the criterion.
type key struct {
	port   uint16
	text   string // a name, a wildcard as ".suffix", a protocol or a source type
	prefix netip.Prefix
}

// node represents the chains with the same values of all earlier criteria. It is immutable after
// Compile.
type node struct {
	children map[key]*node
	lengths  [2][]uint8 // prefix lengths in children, longest first: of IPv4 and of IPv6
	fallback *node      // chains without the criterion; nil: none
	chain    int        // at a leaf: index of the chain
	needs    Needs      // needs of all chains below
}

// Compile returns a Matcher for chains with these matches; a chain is identified by its index.
// Errors are *ConflictError and ErrTooLarge.
func Compile(matches []config.ChainMatch) (*Matcher, error) {
	m := &Matcher{root: new(node)}
	c := compiler{}
	for i := range matches {
		c.chain, c.keys, c.needs = i, keysOf(&matches[i]), needsOf(&matches[i])
		m.needs |= c.needs
		if err := c.insert(m.root, destinationPort); err != nil {
			return nil, err
		}
	}
	m.root.sortLengths()
	return m, nil
}

// compiler inserts one chain after another.
type compiler struct {
	chain int
	keys  [leaf][]key // by criterion; one zero key: no requirement
	needs Needs
	path  [leaf]key // keys of the nodes from the root to the current node
	count int       // number of leaves
}

// keysOf returns the values that match requires, without duplicates.
func keysOf(match *config.ChainMatch) [leaf][]key {
	keys := [leaf][]key{
		destinationPort:   {{port: match.DestinationPort}},
		destinationRange:  rangeKeys(match.DestinationRanges),
		transport:         {{text: string(match.TransportProtocol)}},
		directSourceRange: rangeKeys(match.DirectSourceRanges),
		sourceType:        {{text: string(match.SourceType)}},
		sourceRange:       rangeKeys(match.SourceRanges),
	}
	for _, name := range match.ServerNames {
		keys[serverName] = append(keys[serverName], key{text: strings.TrimPrefix(strings.ToLower(name), "*")})
	}
	for _, name := range match.ApplicationProtocols {
		keys[application] = append(keys[application], key{text: name})
	}
	for _, port := range match.SourcePorts {
		keys[sourcePort] = append(keys[sourcePort], key{port: port})
	}
	for i, values := range keys {
		if len(values) == 0 {
			keys[i] = []key{{}}
			continue
		}
		keys[i] = slices.Compact(slices.SortedFunc(slices.Values(values), compareKeys))
	}
	return keys
}

func rangeKeys(prefixes []netip.Prefix) []key {
	keys := make([]key, len(prefixes))
	for i, p := range prefixes {
		keys[i].prefix = unmapped(p)
	}
	return keys
}

// unmapped converts an IPv4-mapped range to IPv4, because connection addresses are compared
// unmapped.
func unmapped(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.port, b.port), strings.Compare(a.text, b.text), a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
}

// needsOf returns the properties of the first bytes that match tests.
func needsOf(match *config.ChainMatch) (needs Needs) {
	if len(match.ServerNames) > 0 || match.TransportProtocol != config.AnyTransport || len(match.ApplicationProtocols) > 0 {
		needs = NeedTLS
	}
	for _, name := range match.ApplicationProtocols {
		if name == config.PlainHTTP10 || name == config.PlainHTTP11 || name == config.PlainHTTP2 {
			needs |= NeedHTTP
		}
	}
	return needs
}

// insert adds the chain below n, a node of level.
func (c *compiler) insert(n *node, level criterion) error {
	n.needs |= c.needs
	for _, k := range c.keys[level] {
		c.path[level] = k
		next, created := n.childFor(k)
		switch {
		case level+1 < leaf:
			if err := c.insert(next, level+1); err != nil {
				return err
			}
		case !created:
			return &ConflictError{First: next.chain, Second: c.chain, Criteria: c.describe()}
		default:
			next.chain = c.chain
			if c.count++; c.count > maxCombinations {
				return ErrTooLarge
			}
		}
	}
	return nil
}

// childFor returns the node for k, and whether it created the node.
func (n *node) childFor(k key) (next *node, created bool) {
	if k == (key{}) {
		if n.fallback == nil {
			n.fallback, created = new(node), true
		}
		return n.fallback, created
	}
	if next = n.children[k]; next != nil {
		return next, false
	}
	if n.children == nil {
		n.children = map[key]*node{}
	}
	next = new(node)
	n.children[k] = next
	if p := k.prefix; p.IsValid() {
		lengths := &n.lengths[family(p.Addr())]
		if bits := uint8(p.Bits()); !slices.Contains(*lengths, bits) { //nolint:gosec // 128 at most
			*lengths = append(*lengths, bits)
		}
	}
	return next, true
}

// family returns the index in lengths for an address.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// sortLengths sorts the prefix lengths of n and all nodes below.
func (n *node) sortLengths() {
	for i := range n.lengths {
		slices.SortFunc(n.lengths[i], func(a, b uint8) int { return cmp.Compare(b, a) })
	}
	for _, next := range n.children {
		next.sortLengths()
	}
	if n.fallback != nil {
		n.fallback.sortLengths()
	}
}

// describe returns the values of the path, with the key names of config.json.
func (c *compiler) describe() string {
	names := [leaf]string{
		"destination_port", "prefix_ranges", "server_names", "transport_protocol", "application_protocols",
		"direct_source_prefix_ranges", "source_type", "source_prefix_ranges", "source_ports",
	}
	var parts []string
	for level, k := range c.path {
		switch {
		case k.port != 0:
			parts = append(parts, fmt.Sprintf("%s %d", names[level], k.port))
		case k.prefix.IsValid():
			parts = append(parts, fmt.Sprintf("%s %s", names[level], k.prefix))
		case criterion(level) == serverName && strings.HasPrefix(k.text, "."):
			parts = append(parts, fmt.Sprintf("%s %q", names[level], "*"+k.text))
		case k.text != "":
			parts = append(parts, fmt.Sprintf("%s %q", names[level], k.text))
		}
	}
	if len(parts) == 0 {
		return "all connections that no other filter chain matches"
	}
	return strings.Join(parts, ", ")
}
