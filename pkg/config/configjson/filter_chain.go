package configjson

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/router/chainmatch"
)

type filterChainJSON struct {
	Node          document.Node       `key:"."`
	Name          string              `key:"name" doc:"Name of the chain, unique in the listener. A chain that keeps its name keeps its connections when its match changes. Absent: the match identifies the chain." example:"\"shop\""`
	Match         *chainMatchJSON     `key:"match,filter_chain_match" doc:"Conditions, all of which a connection must meet. Absent, or \"\" in older files: no conditions. Weft prefers a chain with a condition to a chain without it." emptyisabsent:"true"`
	TLSContext    *tlsJSON            `key:"tls_context" doc:"TLS on connections from clients; {}: none."`
	TLSContextSet []tlsJSON           `key:"tls_context_set" doc:"Several TLS contexts instead of tls_context. Weft selects one by SNI, then by ALPN, else the first."`
	Filters       []networkFilterJSON `key:"filters" doc:"Network filters: first rbac and istio_stats, if any; then one proxy or one tcp_proxy, or both if the proxy passes connections of unknown protocols to the tcp_proxy. On a listener with the network udp: one udp_proxy." required:"true"`
}

// chainMatchJSON is a filter_chain_match; see config.ChainMatch.
type chainMatchJSON struct {
	Node                 document.Node   `key:"."`
	DestinationPort      uint16          `key:"destination_port" doc:"Original destination port of the connection." min:"1" max:"65535" example:"443"`
	PrefixRanges         []document.Node `key:"prefix_ranges" doc:"Original destination addresses of the connection: \"10.0.0.0/8\", a single address, or {\"address_prefix\", \"prefix_len\"}." accept:"string|object" object:"cidr_range" example:"[\"10.0.0.0/8\"]"`
	ServerNames          []string        `key:"server_names" doc:"SNI server names: a name, or \"*.suffix\" for all names below the suffix." example:"[\"shop.example\", \"*.api.example\"]"`
	TransportProtocol    string          `key:"transport_protocol" doc:"First bytes of the connection: tls for a TLS handshake, raw_buffer for anything else." enum:"tls|raw_buffer" example:"\"tls\""`
	ApplicationProtocols []string        `key:"application_protocols" doc:"The client must offer one of these protocols by ALPN, or use one in plaintext (http/1.0, http/1.1 or h2c)." example:"[\"h2\", \"http/1.1\"]"`
	DirectSourceRanges   []document.Node `key:"direct_source_prefix_ranges" doc:"Remote addresses of the socket, such as those of proxies that send a PROXY protocol header." accept:"string|object" object:"cidr_range" example:"[\"10.0.0.0/8\"]"`
	SourceType           string          `key:"source_type" doc:"Origin of the connection. SAME_IP_OR_LOOPBACK: the client's address is the destination address or a loopback address, or the client uses a unix socket. EXTERNAL: any other." enum:"ANY|SAME_IP_OR_LOOPBACK|EXTERNAL" default:"ANY" example:"\"EXTERNAL\""`
	SourceRanges         []document.Node `key:"source_prefix_ranges" doc:"Client addresses, taken from the PROXY protocol header if there is one." accept:"string|object" object:"cidr_range" example:"[\"192.168.0.0/16\"]"`
	SourcePorts          []uint16        `key:"source_ports" doc:"Client ports." min:"1" max:"65535" example:"[1024]"`
}

// cidrRangeJSON is the object form of an address range in a match.
type cidrRangeJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address_prefix" doc:"An address in the range." required:"true" example:"\"10.0.0.0\""`
	Length  int           `key:"prefix_len" doc:"Prefix length." unit:"bits" min:"0" max:"128" default:"0" example:"8"`
}

type networkFilterJSON struct {
	Node   document.Node `key:"."`
	Type   string        `key:"type" doc:"Name of the filter. The last one is proxy or tcp_proxy. Before it: rbac, which allows or denies connections, and istio_stats, which counts the connections of tcp_proxy. On a listener with the network udp, the only filter is udp_proxy. Older files also have connection_manager." required:"true" example:"\"proxy\""`
	Config document.Node `key:"config" doc:"Settings of the filter." accept:"object" variant:"network_filter"`
}

// readChains converts the filter chains of a listener and checks them against each other.
func (r *listenerReader) readChains(j *listenerJSON, l *config.Listener) {
	node := j.Node.Get("filter_chains")
	if node.Kind() != document.Array {
		return // already reported
	}
	if len(j.FilterChains) == 0 {
		r.report.Errorf(node, "the list is empty: a listener needs at least one filter chain")
	}
	filters := r.filters.readStreamFilters(j.StreamFilters)
	for i := range j.FilterChains {
		l.FilterChains = append(l.FilterChains, r.readFilterChain(&j.FilterChains[i], filters))
	}
	if j.DefaultChain.Exists() {
		r.readDefaultChain(j, l, filters)
	}
	r.readPlaintextInspector(j, l)
	r.checkFilters(j, l)
	r.checkChains(j, l)
}

// readDefaultChain converts the chain for connections that match no other chain.
func (r *listenerReader) readDefaultChain(j *listenerJSON, l *config.Listener, filters []config.Filter) {
	var c filterChainJSON
	if !r.decoder.Decode(j.DefaultChain, &c) {
		return
	}
	l.DefaultChain = r.readFilterChain(&c, filters)
	switch {
	case l.DefaultChain.UDPProxy != nil && l.Network != networkUDP:
		r.report.Errorf(c.Node.Get("filters"), "the network filter %q requires a listener with the network udp", UDPProxyFilter)
	case c.Match != nil:
		r.report.Errorf(c.Match.Node, "match is not allowed in default_filter_chain, which serves connections that match no other chain")
	case len(j.FilterChains) == 1 && j.FilterChains[0].Match == nil:
		r.report.Warnf(j.DefaultChain, "default_filter_chain has no effect: the other chain has no match and serves all connections")
	}
}

// checkFilters reports an error if a listener has stream filters and none of its chains has the
// network filter "proxy", which runs them.
func (r *listenerReader) checkFilters(j *listenerJSON, l *config.Listener) {
	if len(j.StreamFilters) == 0 {
		return
	}
	for c := range l.Chains() {
		if c.Proxy != nil {
			return
		}
	}
	r.report.Errorf(j.StreamFilters[0].Node, "stream_filters process requests: they require the network filter %q", ProxyFilter)
}

// checkChains reports chains with the same match or the same name, and sets InspectTimeout if the
// matches need inspection.
func (r *listenerReader) checkChains(j *listenerJSON, l *config.Listener) {
	names := map[string]bool{}
	for c := range l.Chains() {
		if c.Name != "" && names[c.Name] {
			r.report.Errorf(j.Node.Get("filter_chains"), "duplicate filter chain name %q", c.Name)
		}
		names[c.Name] = true
	}
	matches := make([]config.ChainMatch, len(l.FilterChains))
	for i, c := range l.FilterChains {
		matches[i] = c.Match
	}
	m, err := chainmatch.Compile(matches)
	var conflict *chainmatch.ConflictError
	switch {
	case errors.As(err, &conflict):
		r.report.Errorf(j.FilterChains[conflict.Second].Node, "%s and this chain match the same connections: %s",
			chainName(l, conflict.First), conflict.Criteria)
		return
	case err != nil:
		r.report.Errorf(j.Node.Get("filter_chains"), "%v", err)
		return
	}
	if m.Needs() != 0 {
		l.InspectTimeout = j.FiltersTimeout
	}
	r.checkInspectors(j, l, m.Needs())
}

// chainName returns the name of a filter chain for messages.
func chainName(l *config.Listener, index int) string {
	if name := l.FilterChains[index].Name; name != "" {
		return strconv.Quote(name)
	}
	return fmt.Sprintf("filter_chains[%d]", index)
}

// checkInspectors warns about listener filters without effect. Weft also inspects connections
// without these filters if the matches need it.
func (r *listenerReader) checkInspectors(j *listenerJSON, l *config.Listener, needs chainmatch.Needs) {
	for i := range j.ListenerFilter {
		f := &j.ListenerFilter[i]
		switch {
		case strings.EqualFold(f.Type, TLSInspectorFilter) && needs&chainmatch.NeedTLS == 0:
			r.report.Warnf(f.Node, "%s has no effect: no filter chain matches server_names, transport_protocol or application_protocols", TLSInspectorFilter)
		case strings.EqualFold(f.Type, HTTPInspectorFilter) && needs&chainmatch.NeedHTTP == 0:
			r.report.Warnf(f.Node, "%s has no effect: no filter chain matches the application_protocols http/1.0, http/1.1 or h2c", HTTPInspectorFilter)
		}
	}
	if node := j.Node.Get("listener_filters_timeout"); node.Exists() && l.ProxyProtocol == nil && needs == 0 {
		r.report.Warnf(node, "listener_filters_timeout has no effect: no listener filter and no match waits for data")
	}
}

// readChainMatch converts a match. If j is nil, the result matches all connections.
func (r *listenerReader) readChainMatch(j *chainMatchJSON) config.ChainMatch {
	if j == nil {
		return config.ChainMatch{}
	}
	m := config.ChainMatch{
		DestinationPort:      j.DestinationPort,
		DestinationRanges:    r.parseCIDRRanges(j.PrefixRanges),
		TransportProtocol:    config.TransportProtocol(j.TransportProtocol),
		ApplicationProtocols: j.ApplicationProtocols,
		DirectSourceRanges:   r.parseCIDRRanges(j.DirectSourceRanges),
		SourceRanges:         r.parseCIDRRanges(j.SourceRanges),
		SourcePorts:          j.SourcePorts,
	}
	if j.SourceType != "ANY" {
		m.SourceType = config.SourceType(j.SourceType)
	}
	for n := range j.Node.Get("server_names").All() {
		if name, ok := normalizeServerName(n.Text()); ok {
			m.ServerNames = append(m.ServerNames, name)
		} else if n.Kind() == document.String {
			r.report.Errorf(n, "found %q, expected a name, or \"*.\" followed by a name", n.Text())
		}
	}
	if slices.Contains(j.ApplicationProtocols, "") {
		r.report.Errorf(j.Node.Get("application_protocols"), "found \"\", expected a protocol name")
	}
	return m
}

// normalizeServerName normalizes a name in server_names and reports whether it is valid.
func normalizeServerName(text string) (name string, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(text, "."))
	return name, isHostName(strings.TrimPrefix(name, "*."))
}

// parseCIDRRanges parses address ranges: "10.0.0.0/8", "10.1.2.3", or objects.
func (r *listenerReader) parseCIDRRanges(list []document.Node) []netip.Prefix {
	return r.parseRanges(list, func(n document.Node) (string, bool) {
		var j cidrRangeJSON
		ok := r.decoder.Decode(n, &j)
		return j.Address + "/" + strconv.Itoa(j.Length), ok
	})
}

// readFilterChain converts one chain from its network filters.
func (r *listenerReader) readFilterChain(j *filterChainJSON, filters []config.Filter) *config.FilterChain {
	out := &config.FilterChain{Name: j.Name, Match: r.readChainMatch(j.Match), TLS: r.readTLSContexts(j)}
	var proxy *proxyJSON
	var manager *table // table of the connection_manager in this chain
	for i := range j.Filters {
		f := &j.Filters[i]
		node := f.Node.Get("type").Or(f.Node)
		if f.Type == "" {
			continue // already reported
		}
		if f.Type == connectionManager {
			manager = r.routes.readConnectionManager(f)
			continue
		}
		if factory := r.filters.connectionFilterFactory(f.Type); factory != nil {
			r.filters.readConnectionFilter(f, factory, out)
			continue
		}
		filterType, ok := choose(r.report, node, "network filter", f.Type, r.capabilities.NetworkFilters, r.filters.networkFilterNames())
		if !ok {
			continue
		}
		fallback := filterType == TCPProxyFilter && out.TCPProxy == nil && out.Proxy != nil && out.Proxy.Fallback
		if (out.Proxy != nil || out.TCPProxy != nil || out.UDPProxy != nil) && !fallback {
			r.report.Errorf(node, "only one %q or %q is allowed in a chain, except a %q after a proxy with fallback_for_unknown_protocol", ProxyFilter, TCPProxyFilter, TCPProxyFilter)
			continue
		}
		switch filterType {
		case ProxyFilter:
			proxy = &proxyJSON{}
			r.decoder.Decode(f.Node.MemberOrEmpty("config"), proxy)
			out.Proxy = r.readProxy(proxy)
		case TCPProxyFilter:
			out.TCPProxy = r.readTCPProxy(f.Node.MemberOrEmpty("config"))
		case UDPProxyFilter:
			out.UDPProxy = r.readUDPProxy(f.Node.MemberOrEmpty("config"))
		}
	}
	if out.Proxy != nil {
		r.setRouteTable(proxy, out.Proxy, manager)
		if out.Proxy.Fallback && out.TCPProxy == nil {
			r.report.Warnf(proxy.Node.Get("fallback_for_unknown_protocol"), "fallback_for_unknown_protocol has no effect: no %q follows, and connections of unknown protocols are closed", TCPProxyFilter)
		}
		out.Proxy.StreamFilters = filters
		r.checkALPN(j, out.Proxy)
		r.proxies = append(r.proxies, proxyNode{proxy.Node, out.Proxy})
	}
	r.checkConnectionFilters(j, out)
	if len(j.Filters) == 0 && j.Node.Get("filters").Kind() == document.Array {
		r.report.Errorf(j.Node.Get("filters"), "the list is empty: expected the network filter %q or %q", ProxyFilter, TCPProxyFilter)
	}
	return out
}
