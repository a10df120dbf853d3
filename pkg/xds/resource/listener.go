package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	httpinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// Listener is the parsed form of a ListenerType resource.
type Listener struct {
	// Config is the listener without the secrets and filter settings that Resolve adds. Its proxies
	// refer to route tables by name. Immutable.
	Config *config.Listener
	// TLS holds the TLS context of each chain of Config.Chains(); nil means plaintext.
	TLS []*TLS
	// InlineTables are the route tables in the listener itself. No resource has their names.
	InlineTables []*config.RouteTable
	// RouteConfigNames are the tables that the listener waits for, sorted: names of RouteType
	// resources, and DubboTableName of DubboRouteType resources. RouteTimeouts limits the wait for
	// each of them; 0 means no limit.
	RouteConfigNames []string
	RouteTimeouts    map[string]time.Duration
	// DynamicFilters are the HTTP filters whose settings come from ExtensionType resources.
	DynamicFilters []*DynamicFilter
	Ignored        []string // fields that have no effect
	RuntimeKeys    []string // runtime keys that were used, sorted
}

// Secrets returns the secrets that the TLS contexts of the listener refer to.
func (l *Listener) Secrets() (refs []SecretRef) {
	for _, t := range l.TLS {
		refs = append(refs, t.Secrets()...)
	}
	return refs
}

// Resolve returns the listener with the secrets and the settings of extensions. ok is false if a
// secret is missing or has the wrong type.
func (l *Listener) Resolve(secrets map[SecretRef]*Secret, extensions map[string]*Extension) (out *config.Listener, ok bool) {
	base := l.resolveFilters(extensions)
	if len(l.Secrets()) == 0 {
		return base, true
	}
	merged := *base
	merged.FilterChains = make([]*config.FilterChain, len(base.FilterChains))
	for i, t := range l.TLS {
		original := base.DefaultChain
		if i < len(merged.FilterChains) {
			original = base.FilterChains[i]
		}
		chain := *original
		if t != nil {
			tlsConfig, ok := t.Resolve(secrets)
			if !ok {
				return nil, false
			}
			chain.TLS = []*config.TLS{tlsConfig}
		}
		if i < len(merged.FilterChains) {
			merged.FilterChains[i] = &chain
		} else {
			merged.DefaultChain = &chain
		}
	}
	return &merged, true
}

// ReadListener parses a serialized Listener. The error is a RejectedError.
func ReadListener(body []byte, caps Capabilities) (*Listener, error) {
	m := &listenerv3.Listener{}
	r := &report{capabilities: caps}
	p := fieldReader{report: r}
	if err := p.unmarshal(body, m); err != nil {
		return nil, err
	}
	l := &Listener{}
	p.checkFields(m, supportedListenerFields(), rejectedListenerFields())
	p.readListener(m, l)
	err := r.rejection()
	l.Ignored, l.RuntimeKeys = r.ignored, r.runtimeKeys()
	return l, err
}

func supportedListenerFields() []string {
	return []string{
		"name", "address", "filter_chains", "default_filter_chain", "use_original_dst", "listener_filters", "listener_filters_timeout",
		"continue_on_listener_filters_timeout", "transparent", "traffic_direction", "enable_reuse_port", "reuse_port", "access_log",
		"bind_to_port", "deprecated_v1",
	}
}

func rejectedListenerFields() []string {
	return []string{
		"additional_addresses", "fcds_config", "filter_chain_matcher", "udp_listener_config", "api_listener", "internal_listener", "listener_specifier",
	}
}

func (p fieldReader) readListener(m *listenerv3.Listener, l *Listener) {
	out := &config.Listener{
		Name:      m.GetName(),
		Ingress:   m.GetTrafficDirection() == corev3.TrafficDirection_INBOUND,
		Network:   "tcp",
		Bind:      boolOr(m.GetBindToPort(), boolOr(m.GetDeprecatedV1().GetBindToPort(), true)),
		ReusePort: boolOr(m.GetEnableReusePort(), m.GetReusePort()), // older control planes set reuse_port
		// A timeout of 0 means no limit.
		InspectTimeout: p.field("listener_filters_timeout").readDuration(m.GetListenerFiltersTimeout(), 15*time.Second),
	}
	out.Inspection.NoTimeout = m.GetListenerFiltersTimeout() != nil && out.InspectTimeout == 0
	out.Inspection.ContinueOnTimeout = m.GetContinueOnListenerFiltersTimeout()
	l.Config = out
	if out.Name == "" {
		p.field("name").reject("is missing")
	}
	if pipe := m.GetAddress().GetPipe(); pipe != nil {
		out.Network = "unix"
		if pipe.GetMode() != 0 { // permissions of the socket
			p.field("address").field("pipe").field("mode").rejectUnsupported()
		}
	}
	out.Address, _ = p.field("address").readAddress(m.GetAddress(), false)
	if m.GetUseOriginalDst().GetValue() {
		out.OriginalDst = config.OriginalDstRedirect
	}
	p.readListenerFilters(m, out)
	// The original_dst filter only restores the original destination; use_original_dst also selects
	// another listener by that address.
	out.KeepRedirected = out.OriginalDst != "" && !m.GetUseOriginalDst().GetValue()
	if out.OriginalDst != "" && m.GetTransparent().GetValue() {
		out.OriginalDst = config.OriginalDstTProxy
	}
	out.AccessLogs = p.field("access_log").readAccessLogs(m.GetAccessLog())
	for i, c := range m.GetFilterChains() {
		out.FilterChains = append(out.FilterChains, p.field("filter_chains").index(i).readChain(c, l))
	}
	if c := m.GetDefaultFilterChain(); c != nil {
		out.DefaultChain = p.field("default_filter_chain").readChain(c, l)
	}
	if len(m.GetFilterChains()) == 0 && out.DefaultChain == nil {
		p.field("filter_chains").reject("is empty")
	}
	slices.Sort(l.RouteConfigNames)
	l.RouteConfigNames = slices.Compact(l.RouteConfigNames)
}

func (p fieldReader) readListenerFilters(m *listenerv3.Listener, out *config.Listener) {
	for i, f := range m.GetListenerFilters() {
		at := p.field("listener_filters").index(i)
		packed := f.GetTypedConfig()
		var excluded []config.PortRange // ports that the filter skips
		if d := f.GetFilterDisabled(); d != nil {
			excluded = at.field("filter_disabled").readExcludedPorts(d)
		}
		tls, http, original := &tlsinspectorv3.TlsInspector{}, &httpinspectorv3.HttpInspector{}, &originaldstv3.OriginalDst{}
		settings := at.field("typed_config")
		switch {
		case isType(packed, tls):
			if settings.unpack(packed, tls) {
				settings.checkFields(tls, nil, []string{"close_connection_on_client_hello_parsing_errors"})
			}
			out.Inspection.SkipTLSPorts = excluded
			continue
		case isType(packed, http):
			if settings.unpack(packed, http) {
				settings.checkFields(http, nil, nil)
			}
			out.Inspection.SkipHTTPPorts = excluded
			continue
		case f.GetFilterDisabled() != nil:
			at.field("filter_disabled").reject("is supported only for tls_inspector and http_inspector")
		}
		switch {
		case isType(packed, original):
			if settings.unpack(packed, original) {
				settings.checkFields(original, nil, nil)
			}
			if out.OriginalDst == "" {
				out.OriginalDst = config.OriginalDstRedirect
			}
		case isType(packed, &proxyprotocolv3.ProxyProtocol{}):
			o := &proxyprotocolv3.ProxyProtocol{}
			if at.field("typed_config").unpack(packed, o) {
				at.field("typed_config").checkFields(o, []string{"allow_requests_without_proxy_protocol"}, []string{"disallowed_versions"})
				out.ProxyProtocol = &config.ProxyProtocol{AllowMissing: o.GetAllowRequestsWithoutProxyProtocol(), Timeout: 15 * time.Second}
			}
		default:
			at.reject("%s (%s) is not supported", f.GetName(), packed.GetTypeUrl())
		}
	}
}

// readExcludedPorts returns the ports that a listener filter skips. On all other ports Weft
// inspects what the filter chains need, even without a listener filter.
func (p fieldReader) readExcludedPorts(m *listenerv3.ListenerFilterChainMatchPredicate) (out []config.PortRange) {
	switch r := m.GetRule().(type) {
	case *listenerv3.ListenerFilterChainMatchPredicate_AnyMatch:
		if r.AnyMatch {
			out = append(out, config.PortRange{Last: math.MaxUint16})
		}
	case *listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange:
		// The end is exclusive.
		start, end := r.DestinationPortRange.GetStart(), r.DestinationPortRange.GetEnd()
		if start < 0 || end > math.MaxUint16+1 || start >= end {
			p.field("destination_port_range").reject("the range from %d to %d (exclusive) is not valid: expected port numbers", start, end)
			return nil
		}
		out = append(out, config.PortRange{First: uint16(start), Last: uint16(end - 1)}) //nolint:gosec // checked above
	case *listenerv3.ListenerFilterChainMatchPredicate_OrMatch:
		for i, rule := range r.OrMatch.GetRules() {
			out = append(out, p.field("or_match").field("rules").index(i).readExcludedPorts(rule)...)
		}
	default:
		p.rejectOneof(m, "rule", "destination_port_range", "or_match", "any_match")
	}
	return out
}

// readChain reads a filter chain and adds its TLS to l.
func (p fieldReader) readChain(m *listenerv3.FilterChain, l *Listener) *config.FilterChain {
	p.checkFields(m, []string{"filter_chain_match", "filters", "transport_socket", "transport_socket_connect_timeout", "name"}, []string{"use_proxy_proto"})
	out := &config.FilterChain{Name: m.GetName(), Match: p.field("filter_chain_match").readChainMatch(m.GetFilterChainMatch())}
	t := p.field("transport_socket").readDownstreamTLS(m.GetTransportSocket())
	if d := m.GetTransportSocketConnectTimeout(); t != nil && d != nil {
		t.Config.HandshakeTimeout = p.field("transport_socket_connect_timeout").readDuration(d, t.Config.HandshakeTimeout)
	}
	if t != nil {
		out.TLS = []*config.TLS{t.Config}
	}
	l.TLS = append(l.TLS, t)
	p.field("filters").readNetworkFilters(m.GetFilters(), out, l)
	return out
}

func (p fieldReader) readChainMatch(m *listenerv3.FilterChainMatch) (out config.ChainMatch) {
	if m == nil {
		return out
	}
	p.checkFields(m, []string{
		"destination_port", "prefix_ranges", "server_names", "transport_protocol", "application_protocols",
		"direct_source_prefix_ranges", "source_type", "source_prefix_ranges", "source_ports",
	}, []string{"address_suffix", "suffix_len"})
	out.DestinationPort = p.field("destination_port").readPort(m.GetDestinationPort().GetValue())
	out.DestinationRanges = p.field("prefix_ranges").readPrefixes(m.GetPrefixRanges())
	out.DirectSourceRanges = p.field("direct_source_prefix_ranges").readPrefixes(m.GetDirectSourcePrefixRanges())
	out.SourceRanges = p.field("source_prefix_ranges").readPrefixes(m.GetSourcePrefixRanges())
	for i, n := range m.GetServerNames() {
		if strings.Contains(strings.TrimPrefix(n, "*."), "*") || n == "" {
			p.field("server_names").index(i).reject("%q: a wildcard is supported only as the first label", n)
			continue
		}
		out.ServerNames = append(out.ServerNames, lower(n))
	}
	switch t := m.GetTransportProtocol(); t {
	case "", "tls", "raw_buffer":
		out.TransportProtocol = config.TransportProtocol(t)
	default:
		p.field("transport_protocol").reject("%q is not supported", t)
	}
	out.ApplicationProtocols = m.GetApplicationProtocols()
	switch m.GetSourceType() {
	case listenerv3.FilterChainMatch_ANY:
	case listenerv3.FilterChainMatch_SAME_IP_OR_LOOPBACK:
		out.SourceType = config.LocalSource
	case listenerv3.FilterChainMatch_EXTERNAL:
		out.SourceType = config.ExternalSource
	default:
		p.field("source_type").reject("%v is not supported", m.GetSourceType())
	}
	for i, n := range m.GetSourcePorts() {
		out.SourcePorts = append(out.SourcePorts, p.field("source_ports").index(i).readPort(n))
	}
	return out
}

func (p fieldReader) readPort(n uint32) uint16 {
	if n > math.MaxUint16 {
		p.reject("is %d, expected a port", n)
		return 0
	}
	return uint16(n)
}

func (p fieldReader) readPrefixes(list []*corev3.CidrRange) (out []netip.Prefix) {
	for i, r := range list {
		address, err := netip.ParseAddr(r.GetAddressPrefix())
		if err != nil {
			p.index(i).field("address_prefix").reject("%q is not a valid IP address", r.GetAddressPrefix())
			continue
		}
		prefix := netip.PrefixFrom(address, int(min(r.GetPrefixLen().GetValue(), 255)))
		if !prefix.IsValid() {
			p.index(i).field("prefix_len").reject("%d is not a valid prefix length of the address", r.GetPrefixLen().GetValue())
			continue
		}
		out = append(out, prefix.Masked())
	}
	return out
}
