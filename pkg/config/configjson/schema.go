package configjson

import (
	"bytes"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// Schema returns the JSON Schema (2020-12) of config.json.
func Schema() []byte { return Capabilities{}.Schema() }

// Schema returns the JSON Schema (2020-12) of config.json, including the settings of the filters of
// c.
func (c Capabilities) Schema() []byte {
	v := variants(c)
	v["network_filter"] = append(v["network_filter"], document.Variant{Name: connectionManager, Prototype: routerJSON{}})
	c.addChoices(v)
	text := document.Schema("Weft configuration", rootJSON{}, v)
	return append([]byte("{\n"+requiredMembers), bytes.TrimPrefix(text, []byte("{\n"))...)
}

// Names of choice tags.
const (
	choiceCluster   = "cluster_type"
	choicePolicy    = "policy"
	choiceProtocol  = "protocol"
	choiceRetry     = "retry"
	choiceRegistry  = "registry"
	choiceUpstreams = "upstream_protocol"
)

// addChoices adds the supported values of strings with a choice tag, and the listener filters
// without settings.
func (c Capabilities) addChoices(v document.Variants) {
	for _, name := range supportedListenerFilters() {
		if name != ProxyProtocolFilter {
			v["listener_filter"] = append(v["listener_filter"], document.Variant{Name: name})
		}
	}
	add := func(choice string, names ...string) {
		for _, name := range names {
			v[choice] = append(v[choice], document.Variant{Name: name})
		}
	}
	for _, p := range c.ClusterTypes {
		add(choiceCluster, string(p))
	}
	for _, p := range c.Policies {
		add(choicePolicy, string(p))
	}
	for _, p := range c.Protocols {
		add(choiceProtocol, string(p))
		add(choiceUpstreams, string(p))
	}
	if len(c.Protocols) > 0 {
		add(choiceProtocol, string(config.Auto), legacySubProtocol)
		add(choiceUpstreams, string(config.Auto), legacySubProtocol)
	}
	if len(c.ClusterTypes) > 0 {
		add(choiceCluster, "SIMPLE")
	}
	if len(c.Policies) > 0 {
		add(choicePolicy, "")
	}
	add(choiceRetry, config.RetryOnNames()...)
	add(choiceRetry, "true", "false")
	add(choiceRegistry, c.DubboRegistries...)
}

// requiredMembers is the member of the schema that requires servers or, in an Envoy bootstrap,
// static_resources or dynamic_resources.
const requiredMembers = `  "anyOf": [{"required": ["servers"]}, {"required": ["static_resources"]}, {"required": ["dynamic_resources"]},
    {"required": ["staticResources"]}, {"required": ["dynamicResources"]}],
`

// variants returns the variants of the objects with a variant tag or an object tag.
func variants(c Capabilities) document.Variants {
	out := document.Variants{
		"filter_chain":   {{Prototype: filterChainJSON{}}},
		"cidr_range":     {{Prototype: cidrRangeJSON{}}},
		"cidr":           {{Prototype: cidrJSON{}}},
		"resolvers":      {{Prototype: resolversJSON{}}},
		"source_address": {{Prototype: sourceJSON{}}},

		"extension": {{Name: DubboRegistry, Prototype: dubboRegistryJSON{}}},
		"sink":      {{Name: prometheusSink, Prototype: prometheusJSON{}}},
		"listener_filter": {
			{Name: ProxyProtocolFilter, Prototype: proxyProtocolJSON{}},
			{Name: OriginalDstFilter, Prototype: originalDstFilterJSON{}},
		},
		"network_filter": {
			{Name: ProxyFilter, Prototype: proxyJSON{}},
			{Name: TCPProxyFilter, Prototype: tcpProxyJSON{}},
			{Name: UDPProxyFilter, Prototype: udpProxyJSON{}},
		},
	}
	for i := range c.ConnectionFilters {
		connFilter := &c.ConnectionFilters[i]
		out["network_filter"] = append(out["network_filter"], document.Variant{Name: connFilter.Name, Prototype: connFilter.Config()})
	}
	for i := range c.StreamFilters {
		f := &c.StreamFilters[i]
		out["stream_filter"] = append(out["stream_filter"], document.Variant{Name: f.Name, Prototype: f.Config()})
	}
	return out
}
