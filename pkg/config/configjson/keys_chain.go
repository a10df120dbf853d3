package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

type filterChainJSON struct {
	Node          document.Node       `key:"."`
	Name          string              `key:"name" doc:"Name of the chain, unique in the listener. A chain that keeps its name keeps its connections when its match changes; absent: the match tells it from the others." example:"\"shop\""`
	Match         *chainMatchJSON     `key:"match,filter_chain_match" doc:"Which connections the chain is for: those that meet all that is given. Absent, or \"\" in older files: those that no other chain is for." blank:"true"`
	TLSContext    *tlsJSON            `key:"tls_context" doc:"TLS towards the caller; {}: none."`
	TLSContextSet []tlsJSON           `key:"tls_context_set" doc:"Several of them, in the place of tls_context: chosen by SNI, then ALPN, then the first."`
	Filters       []networkFilterJSON `key:"filters" doc:"Network filters: one proxy or one tcp_proxy; or both, if the proxy leaves to the tcp_proxy what it does not know." required:"true"`
}

// chainMatchJSON is a filter_chain_match; see config.ChainMatch.
type chainMatchJSON struct {
	Node                 document.Node   `key:"."`
	DestinationPort      uint16          `key:"destination_port" doc:"Port that was connected to, before a redirection." min:"1" max:"65535" example:"443"`
	PrefixRanges         []document.Node `key:"prefix_ranges" doc:"Addresses that were connected to: \"10.0.0.0/8\", an address, or {\"address_prefix\", \"prefix_len\"}." accept:"string|object" example:"[\"10.0.0.0/8\"]"`
	ServerNames          []string        `key:"server_names" doc:"Names that a TLS handshake asks for (SNI): a name, or \"*.suffix\" for all below it." example:"[\"shop.example\", \"*.api.example\"]"`
	TransportProtocol    string          `key:"transport_protocol" doc:"What connections begin with: tls, a TLS handshake, or raw_buffer, anything else." enum:"tls|raw_buffer" example:"\"tls\""`
	ApplicationProtocols []string        `key:"application_protocols" doc:"Protocols of which a TLS handshake offers one (ALPN), or that plaintext shows: http/1.0, http/1.1 or h2c." example:"[\"h2\", \"http/1.1\"]"`
	DirectSourceRanges   []document.Node `key:"direct_source_prefix_ranges" doc:"Addresses of the socket's other end, as of proxies that send a PROXY protocol header." accept:"string|object" example:"[\"10.0.0.0/8\"]"`
	SourceType           string          `key:"source_type" doc:"Where callers are: SAME_IP_OR_LOOPBACK, on this machine, as far as addresses tell; EXTERNAL, elsewhere." enum:"ANY|SAME_IP_OR_LOOPBACK|EXTERNAL" default:"ANY" example:"\"EXTERNAL\""`
	SourceRanges         []document.Node `key:"source_prefix_ranges" doc:"Addresses of callers, whom a PROXY protocol header may name." accept:"string|object" example:"[\"192.168.0.0/16\"]"`
	SourcePorts          []uint16        `key:"source_ports" doc:"Ports of callers." min:"1" max:"65535" example:"[1024]"`
}

// cidrRangeJSON is the object form of an address range in a match.
type cidrRangeJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address_prefix" doc:"An address of the range." required:"true" example:"\"10.0.0.0\""`
	Length  int           `key:"prefix_len" doc:"Bits that count." unit:"bits" min:"0" max:"128" default:"0" example:"8"`
}

// inspectorJSON is the configuration of the listener filters tls_inspector and http_inspector,
// which have no settings.
type inspectorJSON struct{}
