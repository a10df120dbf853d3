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

// Matcher chooses among the chains that it was compiled from.
type Matcher struct {
	root *node
	asks Needs // of all chains
}

// Needs says what of a connection's first bytes must be known to choose its chain.
type Needs uint8

// What may be asked.
const (
	AskTLS  Needs = 1 << iota // whether it begins with a handshake, and what that asks for
	AskHTTP                   // which HTTP it speaks in plaintext
)

// ConflictError says that two chains have a match in common.
type ConflictError struct {
	First, Second int // their places
	On            string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("filter chains %d and %d are for the same connections: %s", e.First, e.Second, e.On)
}

// ErrTooLarge says that the values of the chains' criteria have too many combinations.
var ErrTooLarge = errors.New("the criteria of the filter chains have more than 1,000,000 combinations")

// mostCombinations bounds the memory that a configuration can ask for.
const mostCombinations = 1_000_000

// criterion is a level of the tree: what its nodes ask about.
type criterion uint8

const (
	destinationPort criterion = iota
	destinationRange
	serverName
	transport
	application
	peerRange
	sourceType
	sourceRange
	sourcePort
	leaf
)

// key is one value of a criterion, in the field that the criterion has; the zero value
// is that of the chains that do not ask.
type key struct {
	port   uint16
	text   string // a name, a wildcard as ".suffix", a protocol or a source type
	prefix netip.Prefix
}

// node is where the chains stand that agree in all criteria before its own. It is
// immutable once compiled.
type node struct {
	below   map[key]*node
	lengths [2][]uint8 // of the ranges in below, the longest first: IPv4's and IPv6's
	rest    *node      // of the chains that do not ask; nil: there is none
	chain   int        // of a leaf
	asks    Needs      // of all chains below
}

// Compile returns a Matcher of chains with these matches, which it refers to by their
// places. Errors: *ConflictError, ErrTooLarge.
func Compile(matches []config.ChainMatch) (*Matcher, error) {
	m := &Matcher{root: new(node)}
	c := compiler{}
	for i := range matches {
		c.chain, c.keys, c.asks = i, keysOf(&matches[i]), asksOf(&matches[i])
		m.asks |= c.asks
		if err := c.insert(m.root, destinationPort); err != nil {
			return nil, err
		}
	}
	m.root.order()
	return m, nil
}

// compiler inserts one chain after the other.
type compiler struct {
	chain int
	keys  [leaf][]key // by criterion; one zero key: it does not ask
	asks  Needs
	path  [leaf]key // to the node that is looked at
	count int       // leaves
}

// keysOf returns what match asks for, each value once.
func keysOf(match *config.ChainMatch) [leaf][]key {
	keys := [leaf][]key{
		destinationPort:  {{port: match.DestinationPort}},
		destinationRange: ranges(match.DestinationRanges),
		transport:        {{text: string(match.TransportProtocol)}},
		peerRange:        ranges(match.DirectSourceRanges),
		sourceType:       {{text: string(match.SourceType)}},
		sourceRange:      ranges(match.SourceRanges),
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
	for i, list := range keys {
		if len(list) == 0 {
			keys[i] = []key{{}}
			continue
		}
		keys[i] = slices.Compact(slices.SortedFunc(slices.Values(list), compare))
	}
	return keys
}

func ranges(list []netip.Prefix) []key {
	keys := make([]key, len(list))
	for i, p := range list {
		keys[i].prefix = unmapped(p)
	}
	return keys
}

// unmapped returns p as it compares with addresses, of which those of IPv4 are never
// written as IPv6's.
func unmapped(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

func compare(a, b key) int {
	return cmp.Or(cmp.Compare(a.port, b.port), strings.Compare(a.text, b.text), a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
}

// asksOf returns what must be known to tell whether a connection meets match.
func asksOf(match *config.ChainMatch) (asks Needs) {
	if len(match.ServerNames) > 0 || match.TransportProtocol != config.AnyTransport || len(match.ApplicationProtocols) > 0 {
		asks = AskTLS
	}
	for _, name := range match.ApplicationProtocols {
		if name == config.PlainHTTP10 || name == config.PlainHTTP11 || name == config.PlainHTTP2 {
			asks |= AskHTTP
		}
	}
	return asks
}

// insert adds the chain below n, which asks about level.
func (c *compiler) insert(n *node, level criterion) error {
	n.asks |= c.asks
	for _, k := range c.keys[level] {
		c.path[level] = k
		next, fresh := n.descend(k)
		switch {
		case level+1 < leaf:
			if err := c.insert(next, level+1); err != nil {
				return err
			}
		case !fresh:
			return &ConflictError{First: next.chain, Second: c.chain, On: c.describe()}
		default:
			next.chain = c.chain
			if c.count++; c.count > mostCombinations {
				return ErrTooLarge
			}
		}
	}
	return nil
}

// descend returns the node of the chains that ask for k, and whether it was made just
// now.
func (n *node) descend(k key) (next *node, fresh bool) {
	if k == (key{}) {
		if n.rest == nil {
			n.rest, fresh = new(node), true
		}
		return n.rest, fresh
	}
	if next = n.below[k]; next != nil {
		return next, false
	}
	if n.below == nil {
		n.below = map[key]*node{}
	}
	next = new(node)
	n.below[k] = next
	if p := k.prefix; p.IsValid() {
		lengths := &n.lengths[family(p.Addr())]
		if bits := uint8(p.Bits()); !slices.Contains(*lengths, bits) { //nolint:gosec // 128 at most
			*lengths = append(*lengths, bits)
		}
	}
	return next, true
}

// family is the position of an address' lengths.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// order completes what inserting left open, of n and all below.
func (n *node) order() {
	for i := range n.lengths {
		slices.SortFunc(n.lengths[i], func(a, b uint8) int { return cmp.Compare(b, a) })
	}
	for _, next := range n.below {
		next.order()
	}
	if n.rest != nil {
		n.rest.order()
	}
}

// describe returns what the path asks for, by the names of config.json.
func (c *compiler) describe() string {
	names := [leaf]string{
		"destination_port", "prefix_ranges", "server_names", "transport_protocol", "application_protocols",
		"direct_source_prefix_ranges", "source_type", "source_prefix_ranges", "source_ports",
	}
	var all []string
	for level, k := range c.path {
		switch {
		case k.port != 0:
			all = append(all, fmt.Sprintf("%s %d", names[level], k.port))
		case k.prefix.IsValid():
			all = append(all, fmt.Sprintf("%s %s", names[level], k.prefix))
		case criterion(level) == serverName && strings.HasPrefix(k.text, "."):
			all = append(all, fmt.Sprintf("%s %q", names[level], "*"+k.text))
		case k.text != "":
			all = append(all, fmt.Sprintf("%s %q", names[level], k.text))
		}
	}
	if len(all) == 0 {
		return "all that no other chain is for"
	}
	return strings.Join(all, ", ")
}
