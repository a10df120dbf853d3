package config

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// ChainMatch selects the connections of a filter chain: those that match every criterion that is
// set. The zero value matches all connections. Package router/chainmatch implements the precedence
// of chains that match the same connection.
type ChainMatch struct {
	DestinationPort   uint16         // port of the original destination; 0: any
	DestinationRanges []netip.Prefix // ranges of the original destination address; empty: any
	// ServerNames are the SNI names that clients request, in lower case: a name, or "*.suffix" for
	// all names below it; empty: any name, or no SNI.
	ServerNames          []string
	TransportProtocol    TransportProtocol
	ApplicationProtocols []string       // the client offers one of them by ALPN, or uses it in plaintext; empty: any
	DirectSourceRanges   []netip.Prefix // ranges of the direct remote address; empty: any
	SourceType           SourceType
	SourceRanges         []netip.Prefix // ranges of the client address, which a PROXY protocol header may replace; empty: any
	SourcePorts          []uint16       // ports of the client; empty: any
}

// String lists the criteria of m under their config.json names; "" if there are none. Matches with
// the same criteria in the same order have the same string.
func (m *ChainMatch) String() string {
	var criteria []string
	add := func(name string, isSet bool, value any) {
		if isSet {
			criteria = append(criteria, fmt.Sprintf("%s %v", name, value))
		}
	}
	add("destination_port", m.DestinationPort != 0, m.DestinationPort)
	add("prefix_ranges", len(m.DestinationRanges) > 0, m.DestinationRanges)
	add("server_names", len(m.ServerNames) > 0, m.ServerNames)
	add("transport_protocol", m.TransportProtocol != AnyTransport, m.TransportProtocol)
	add("application_protocols", len(m.ApplicationProtocols) > 0, m.ApplicationProtocols)
	add("direct_source_prefix_ranges", len(m.DirectSourceRanges) > 0, m.DirectSourceRanges)
	add("source_type", m.SourceType != AnySource, m.SourceType)
	add("source_prefix_ranges", len(m.SourceRanges) > 0, m.SourceRanges)
	add("source_ports", len(m.SourcePorts) > 0, m.SourcePorts)
	return strings.Join(criteria, ", ")
}

// Inspection configures how Weft inspects connections before it selects their filter chain. The
// zero value inspects everything that the chain matches need, and closes connections that exceed
// Listener.InspectTimeout.
type Inspection struct {
	NoTimeout bool // no timeout: Listener.InspectTimeout does not apply
	// ContinueOnTimeout lets connections that time out select a filter chain by the properties that
	// were inspected before the timeout; an unknown transport protocol counts as RawBuffer.
	ContinueOnTimeout bool
	// SkipTLSPorts and SkipHTTPPorts are destination ports where the server sends first. On
	// SkipTLSPorts ports Weft does not wait for a TLS handshake and treats connections as RawBuffer;
	// on SkipHTTPPorts ports it does not wait for HTTP.
	SkipTLSPorts, SkipHTTPPorts []PortRange
}

// TransportProtocol is the protocol that a connection begins with.
type TransportProtocol string

// The transport protocols.
const (
	AnyTransport TransportProtocol = ""
	TransportTLS TransportProtocol = "tls"        // a TLS handshake
	RawBuffer    TransportProtocol = "raw_buffer" // anything else
)

// SourceType says where clients connect from.
type SourceType string

// The source types.
const (
	AnySource      SourceType = ""
	LocalSource    SourceType = "SAME_IP_OR_LOOPBACK" // this machine, as far as addresses show
	ExternalSource SourceType = "EXTERNAL"            // any other address
)

// Application protocols that Weft detects on plaintext connections.
const (
	PlainHTTP10 = "http/1.0"
	PlainHTTP11 = "http/1.1"
	PlainHTTP2  = "h2c"
)

// Chains yields the filter chains; the default chain is last.
func (l *Listener) Chains() iter.Seq[*FilterChain] {
	return func(yield func(*FilterChain) bool) {
		for _, c := range l.FilterChains {
			if !yield(c) {
				return
			}
		}
		if l.DefaultChain != nil {
			yield(l.DefaultChain)
		}
	}
}
