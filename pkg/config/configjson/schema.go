package configjson

import (
	"bytes"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// Schema returns the JSON Schema (2020-12) of config.json.
func Schema() []byte { return Kinds{}.Schema() }

// Schema returns the JSON Schema (2020-12) of config.json with the settings of
// the stream filters of k.
func (k Kinds) Schema() []byte {
	v := variants(k)
	v["network_filter"] = append(v["network_filter"], document.Variant{Name: connectionManager, Prototype: routerJSON{}})
	text := document.Schema("Weft configuration", rootJSON{}, v)
	return append([]byte("{\n"+hasServer), bytes.TrimPrefix(text, []byte("{\n"))...)
}

// hasServer is the member of the schema that says that a file has a server, or is one for
// Envoy.
const hasServer = `  "anyOf": [{"required": ["servers"]}, {"required": ["static_resources"]}, {"required": ["dynamic_resources"]},
    {"required": ["staticResources"]}, {"required": ["dynamicResources"]}],
`

// MarkdownReference returns the tables of docs/configuration.md: every key with
// its meaning, unit, default and an example. Stream filters describe their
// settings in their READMEs.
func MarkdownReference() string {
	return document.Markdown(3, "The file", rootJSON{}, variants(Kinds{}))
}

// variants lists what the members called config can hold.
func variants(k Kinds) document.Variants {
	out := document.Variants{
		"extension": {{Name: DubboRegistry, Prototype: dubboRegistryJSON{}}},
		"sink":      {{Name: prometheusSink, Prototype: prometheusJSON{}}},
		"listener_filter": {
			{Name: ProxyProtocolFilter, Prototype: proxyProtocolJSON{}},
		},
		"network_filter": {
			{Name: ProxyFilter, Prototype: proxyJSON{}},
			{Name: TCPProxyFilter, Prototype: tcpProxyJSON{}},
			{Name: UDPProxyFilter, Prototype: udpProxyJSON{}},
		},
	}
	for i := range k.Gates {
		g := &k.Gates[i]
		out["network_filter"] = append(out["network_filter"], document.Variant{Name: g.Name, Prototype: g.Config()})
	}
	for i := range k.StreamFilters {
		f := &k.StreamFilters[i]
		out["stream_filter"] = append(out["stream_filter"], document.Variant{Name: f.Name, Prototype: f.Config()})
	}
	return out
}
