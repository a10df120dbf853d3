package configjson

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// ProxyProtocolFilter is the listener filter that reads PROXY protocol headers.
const ProxyProtocolFilter = "proxy_protocol"

// The listener filters that inspect the first bytes of connections.
const (
	TLSInspectorFilter  = "tls_inspector"
	HTTPInspectorFilter = "http_inspector"
)

// inspectorJSON is the configuration of the listener filters tls_inspector and http_inspector,
// which have no settings.
type inspectorJSON struct{}

type listenerFilterJSON struct {
	Type   string        `key:"type" doc:"Name of the filter: proxy_protocol; original_dst, which is the same as use_original_dst; tls_inspector or http_inspector, which Weft also runs without this entry when the matches of filter_chains need them." required:"true" example:"\"proxy_protocol\""`
	Config document.Node `key:"config" doc:"Settings of the filter." accept:"object" variant:"listener_filter"`
	Node   document.Node `key:"."`
}

// proxyProtocolJSON is the listener filter "proxy_protocol".
type proxyProtocolJSON struct {
	Node         document.Node `key:"."`
	AllowMissing bool          `key:"allow_requests_without_proxy_protocol" doc:"Also accept connections without a PROXY protocol header. Any client that can reach the listener can then claim any address." example:"true"`
	Disallowed   []string      `key:"disallowed_versions" doc:"Versions of the PROXY protocol that Weft does not accept: it closes such connections or, with allow_requests_without_proxy_protocol, treats the header as data." enum:"V1|V2" example:"[\"V1\"]"`
	Rules        document.Node `key:"rules" doc:"Extensions (TLVs) to store as metadata." accept:"list" unsupported:"rules" example:"[{\"tlv_type\": 2}]"`
	PassThrough  document.Node `key:"pass_through_tlvs" doc:"Extensions (TLVs) to send to upstreams." accept:"object" unsupported:"pass_through_tlvs" example:"{\"match_type\": \"INCLUDE_ALL\"}"`
	StatPrefix   string        `key:"stat_prefix" doc:"Prefix of the filter's metrics." ignored:"metrics are labeled by listener" example:"\"edge\""`
}

func supportedListenerFilters() []string {
	return []string{ProxyProtocolFilter, OriginalDstFilter, TLSInspectorFilter, HTTPInspectorFilter}
}

// readListenerFilters converts the listener filters.
func (r *listenerReader) readListenerFilters(j *listenerJSON, l *config.Listener) {
	for i := range j.ListenerFilter {
		f := &j.ListenerFilter[i]
		node := f.Node.Get("type").Or(f.Node)
		if f.Type == "" {
			continue // already reported
		}
		filterType, ok := choose(r.report, node, "listener filter", f.Type, supportedListenerFilters(), knownListenerFilters())
		if !ok {
			continue
		}
		switch filterType {
		case OriginalDstFilter:
			var c originalDstFilterJSON
			r.decoder.Decode(f.Node.MemberOrEmpty("config"), &c)
			l.OriginalDst = config.OriginalDstRedirect
			if c.Type != "" {
				l.OriginalDst = c.Type
			}
			continue
		case TLSInspectorFilter, HTTPInspectorFilter:
			r.decoder.Decode(f.Node.MemberOrEmpty("config"), new(inspectorJSON))
			continue
		}
		if l.ProxyProtocol != nil {
			r.report.Errorf(node, "duplicate listener filter %q: a connection has one PROXY protocol header", ProxyProtocolFilter)
			continue
		}
		l.ProxyProtocol = r.readProxyProtocol(f, j.FiltersTimeout)
	}
}

func (r *listenerReader) readProxyProtocol(f *listenerFilterJSON, timeout time.Duration) *config.ProxyProtocol {
	var j proxyProtocolJSON
	r.decoder.Decode(f.Node.MemberOrEmpty("config"), &j)
	out := &config.ProxyProtocol{AllowMissing: j.AllowMissing, Timeout: timeout}
	for _, name := range j.Disallowed {
		out.DisallowedVersions = append(out.DisallowedVersions, proxyVersion(name))
	}
	if slices.Contains(out.DisallowedVersions, 1) && slices.Contains(out.DisallowedVersions, 2) && !j.AllowMissing {
		r.report.Errorf(j.Node.Get("disallowed_versions"), "no version of the header is allowed, and the header is required: no client could connect")
	}
	return out
}

// proxyVersion returns the PROXY protocol version of v1 or v2; 0 for other names.
func proxyVersion(name string) int {
	switch strings.ToLower(name) {
	case "v1":
		return 1
	case "v2":
		return 2
	}
	return 0
}
