package match

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// CIDRRangeConfig configures a range of addresses.
type CIDRRangeConfig struct {
	Address string `key:"address_prefix" doc:"The first address of the range, or any other address in it." required:"true" example:"\"10.0.0.0\""`
	Length  int    `key:"prefix_len" doc:"Length of the prefix: the number of leading bits that all addresses in the range share." required:"true" unit:"bits" min:"0" max:"128" example:"8"`
}

// Compile checks c and returns it as a prefix.
func (c *CIDRRangeConfig) Compile() (netip.Prefix, error) {
	addr, err := netip.ParseAddr(c.Address)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("address_prefix: %w", err)
	}
	return unmappedPrefix(addr, c.Length)
}

// ParsePrefix reads a range in CIDR notation, or a single address. Bits beyond the
// prefix are ignored.
func ParsePrefix(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		return unmappedPrefix(p.Addr(), p.Bits())
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return unmappedPrefix(addr, addr.BitLen())
}

// unmappedPrefix returns the prefix that consists of the first bits of addr. It converts
// IPv4-mapped IPv6 prefixes to IPv4.
func unmappedPrefix(addr netip.Addr, bits int) (netip.Prefix, error) {
	const mappedPrefixLen = 96 // bits of ::ffff:0:0/96 (RFC 4291 2.5.5.2)
	if addr.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%s has a zone, which is not supported", addr)
	}
	if addr.Is4In6() && bits >= mappedPrefixLen {
		addr, bits = addr.Unmap(), bits-mappedPrefixLen
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("a prefix of %d bits is too long for %s", bits, addr)
	}
	return p, nil
}

// CIDRSet is an immutable set of addresses. The zero value is empty.
type CIDRSet struct {
	spans []span // in order, without overlaps
}

type span struct{ first, last netip.Addr }

// NewCIDRSet returns the union of all the prefixes.
func NewCIDRSet(prefixes []netip.Prefix) CIDRSet {
	spans := make([]span, 0, len(prefixes))
	for _, p := range prefixes {
		spans = append(spans, span{p.Masked().Addr(), lastAddr(p)})
	}
	slices.SortFunc(spans, func(a, b span) int { return a.first.Compare(b.first) })
	var s CIDRSet
	for _, next := range spans {
		if n := len(s.spans); n > 0 && s.spans[n-1].last.BitLen() == next.first.BitLen() && next.first.Compare(s.spans[n-1].last) <= 0 {
			if next.last.Compare(s.spans[n-1].last) > 0 {
				s.spans[n-1].last = next.last
			}
			continue
		}
		s.spans = append(s.spans, next)
	}
	return s
}

func lastAddr(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes) // 4 or 16 bytes, as from AsSlice
	return last
}

// Contains reports whether addr is in the set. No set contains the zero Addr.
func (s *CIDRSet) Contains(addr netip.Addr) bool {
	addr = addr.Unmap()
	i, exact := slices.BinarySearchFunc(s.spans, addr, func(p span, a netip.Addr) int { return p.first.Compare(a) })
	if exact {
		return addr.IsValid()
	}
	if i == 0 {
		return false
	}
	p := &s.spans[i-1]
	return p.first.BitLen() == addr.BitLen() && addr.WithZone("").Compare(p.last) <= 0
}

// RemoteAddr returns the client's address: the proxied address of a PROXY protocol header, else
// the remote address of the connection. It returns the zero Addr if there is none (a unix socket).
func RemoteAddr(x *protocol.Exchange) netip.Addr {
	if x.Meta.Conn == nil {
		return netip.Addr{}
	}
	return x.Meta.Conn.Remote.Addr()
}

// DirectRemoteAddr returns the direct remote address of x's connection, whatever a PROXY protocol
// header says. It returns the zero Addr if there is none (a unix socket).
func DirectRemoteAddr(x *protocol.Exchange) netip.Addr {
	if x.Meta.Conn == nil {
		return netip.Addr{}
	}
	return x.Meta.Conn.DirectRemote().Addr()
}

// ClientAddr finds the address of a request's client in front of the trusted proxies. The zero
// ClientAddr reads no header: it returns the address that the listener determined
// (protocol.Meta.Client), else RemoteAddr.
type ClientAddr struct {
	header   string // "": use the listener's result
	hops     int    // number of trusted proxies whose addresses end the list
	bareOnly bool   // see WithBareAddresses
}

// NewClientAddr returns a ClientAddr that reads the header field, usually X-Forwarded-For. Each
// proxy appends the address of its client to this list. The last addresses, as many as hops, belong
// to trusted proxies; the one before them is the client. If the list is shorter or the header is
// missing, the client is RemoteAddr. RPC calls always use RemoteAddr: only the client writes their
// attachments.
func NewClientAddr(field string, hops int) ClientAddr { return ClientAddr{header: field, hops: hops} }

// WithBareAddresses returns a copy of c that accepts bare addresses only, like Envoy: an entry with
// a port or in brackets is not an address.
func (c ClientAddr) WithBareAddresses() ClientAddr {
	c.bareOnly = true
	return c
}

// ErrNoAddress means that the entry for the client in the header is not an address.
var ErrNoAddress = errors.New("no client address in the header")

// Address returns the client address of x, or ErrNoAddress if the header entry for it is not an
// address. If it uses the remote address and the connection is a unix socket, it returns the zero
// Addr without an error.
func (c *ClientAddr) Address(x *protocol.Exchange) (netip.Addr, error) {
	if c.header == "" && x.Meta.Client.IsValid() {
		return x.Meta.Client, nil
	}
	if c.header == "" || x.Request.Method == "" {
		return RemoteAddr(x), nil
	}
	h, hopsLeft := &x.Request.Header, c.hops
	for i := h.Len() - 1; i >= 0; i-- {
		f := h.At(i)
		if !protocol.EqualFold(f.Name, c.header) {
			continue
		}
		for rest, more := f.Value, true; more; hopsLeft-- {
			var entry string
			comma := strings.LastIndexByte(rest, ',')
			entry, more = rest[comma+1:], comma >= 0
			if hopsLeft == 0 {
				return parseAddress(strings.Trim(entry, " \t"), c.bareOnly)
			}
			if more {
				rest = rest[:comma]
			}
		}
	}
	return RemoteAddr(x), nil
}

// parseAddress parses an address. Unless bareOnly is set, it also accepts an address with a port or
// in brackets.
func parseAddress(text string, bareOnly bool) (netip.Addr, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().WithZone(""), nil
	}
	if bareOnly {
		return netip.Addr{}, ErrNoAddress
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone(""), nil
	}
	if n := len(text); n > 2 && text[0] == '[' && text[n-1] == ']' {
		if addr, err := netip.ParseAddr(text[1 : n-1]); err == nil && addr.Is6() {
			return addr.Unmap().WithZone(""), nil
		}
	}
	return netip.Addr{}, ErrNoAddress
}
