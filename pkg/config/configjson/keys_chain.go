package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

type filterChainJSON struct {
	Node          document.Node       `key:"."`
	Name          string              `key:"name" doc:"Name of the chain, unique in the listener. A chain that keeps its name keeps its connections when its match changes. Absent: the match identifies the chain." example:"\"shop\""`
	Match         *chainMatchJSON     `key:"match,filter_chain_match" doc:"Conditions that a connection must match; all of them must match. Absent, or \"\" in older files: matches connections that no other chain matches." blank:"true"`
	TLSContext    *tlsJSON            `key:"tls_context" doc:"TLS on connections from clients; {}: none."`
	TLSContextSet []tlsJSON           `key:"tls_context_set" doc:"Several TLS contexts instead of tls_context. Weft selects one by SNI, then by ALPN, else the first."`
	Filters       []networkFilterJSON `key:"filters" doc:"Network filters: one proxy or one tcp_proxy, or both if the proxy passes connections of unknown protocols to the tcp_proxy." required:"true"`
}

// chainMatchJSON is a filter_chain_match; see config.ChainMatch.
type chainMatchJSON struct {
	Node                 document.Node   `key:"."`
	DestinationPort      uint16          `key:"destination_port" doc:"Original destination port of the connection." min:"1" max:"65535" example:"443"`
	PrefixRanges         []document.Node `key:"prefix_ranges" doc:"Original destination addresses of the connection: \"10.0.0.0/8\", a single address, or {\"address_prefix\", \"prefix_len\"}." accept:"string|object" example:"[\"10.0.0.0/8\"]"`
	ServerNames          []string        `key:"server_names" doc:"SNI server names: a name, or \"*.suffix\" for all names below the suffix." example:"[\"shop.example\", \"*.api.example\"]"`
	TransportProtocol    string          `key:"transport_protocol" doc:"First bytes of the connection: tls for a TLS handshake, raw_buffer for anything else." enum:"tls|raw_buffer" example:"\"tls\""`
	ApplicationProtocols []string        `key:"application_protocols" doc:"Protocols that the client offers by ALPN, or uses in plaintext (http/1.0, http/1.1 or h2c); one of them must match." example:"[\"h2\", \"http/1.1\"]"`
	DirectSourceRanges   []document.Node `key:"direct_source_prefix_ranges" doc:"Remote addresses of the socket, such as those of proxies that send a PROXY protocol header." accept:"string|object" example:"[\"10.0.0.0/8\"]"`
	SourceType           string          `key:"source_type" doc:"Origin of the connection: SAME_IP_OR_LOOPBACK for this machine, as far as addresses show; EXTERNAL for any other." enum:"ANY|SAME_IP_OR_LOOPBACK|EXTERNAL" default:"ANY" example:"\"EXTERNAL\""`
	SourceRanges         []document.Node `key:"source_prefix_ranges" doc:"Client addresses, taken from the PROXY protocol header if there is one." accept:"string|object" example:"[\"192.168.0.0/16\"]"`
	SourcePorts          []uint16        `key:"source_ports" doc:"Client ports." min:"1" max:"65535" example:"[1024]"`
}

// cidrRangeJSON is the object form of an address range in a match.
type cidrRangeJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address_prefix" doc:"An address in the range." required:"true" example:"\"10.0.0.0\""`
	Length  int           `key:"prefix_len" doc:"Prefix length." unit:"bits" min:"0" max:"128" default:"0" example:"8"`
}

// inspectorJSON is the configuration of the listener filters tls_inspector and http_inspector,
// which have no settings.
type inspectorJSON struct{}
