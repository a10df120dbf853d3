package config

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// ChainMatch says which connections a filter chain is for: those that meet every
// criterion that is given. The zero value is for all. How chains that are for the same
// connection are weighed against each other: package router/chainmatch.
type ChainMatch struct {
	DestinationPort   uint16         // that the connection was made to; 0: any
	DestinationRanges []netip.Prefix // of the address that it was made to; none: any
	// ServerNames are what callers ask for by SNI, in lower case: a name, or "*.suffix"
	// for all names below it; none: any, and none at all.
	ServerNames          []string
	TransportProtocol    TransportProtocol
	ApplicationProtocols []string       // of which the caller offers one by ALPN, or speaks it in plaintext; none: any
	DirectSourceRanges   []netip.Prefix // of the socket's other end; none: any
	SourceType           SourceType
	SourceRanges         []netip.Prefix // of the caller, whom a PROXY protocol header may name; none: any
	SourcePorts          []uint16       // of the caller; none: any
}

// String says what m asks for, by the names of config.json; "" for nothing. Matches that
// say the same in the same order have the same.
func (m *ChainMatch) String() string {
	var all []string
	add := func(name string, given bool, value any) {
		if given {
			all = append(all, fmt.Sprintf("%s %v", name, value))
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
	return strings.Join(all, ", ")
}

// Inspection says how connections are looked at before their filter chain is chosen. The
// zero value looks at all that chains ask about, and ends those that are too slow.
type Inspection struct {
	Forever bool // they have all the time: Listener.InspectTimeout is none
	// GoOn lets those that are too slow choose by what is known of them: they are
	// RawBuffer.
	GoOn bool
	// NoTLS and NoHTTP are ports that connections were made to which are not waited for
	// to see whether they begin with a handshake (they are RawBuffer), or with HTTP: where
	// servers speak first.
	NoTLS, NoHTTP []PortRange
}

// TransportProtocol is what connections begin with.
type TransportProtocol string

// The transport protocols.
const (
	AnyTransport TransportProtocol = ""
	TransportTLS TransportProtocol = "tls"        // a TLS handshake
	RawBuffer    TransportProtocol = "raw_buffer" // anything else
)

// SourceType is where callers are.
type SourceType string

// The source types.
const (
	AnySource      SourceType = ""
	LocalSource    SourceType = "SAME_IP_OR_LOOPBACK" // this machine, as far as addresses tell
	ExternalSource SourceType = "EXTERNAL"            // anywhere else
)

// Application protocols that a plaintext connection shows by itself.
const (
	PlainHTTP10 = "http/1.0"
	PlainHTTP11 = "http/1.1"
	PlainHTTP2  = "h2c"
)

// Chains yields the filter chains, the default one last.
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
