package configjson

import (
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// Capabilities lists the supported features: the names in the schema that a file may use. The zero
// value supports nothing. It is read-only.
type Capabilities struct {
	Protocols         []config.Protocol
	NetworkFilters    []string                         // a subset of ProxyFilter, TCPProxyFilter and UDPProxyFilter
	ConnectionFilters []filter.ConnectionFilterFactory // connection filters, which run before NetworkFilters
	StreamFilters     []filter.StreamFilterFactory
	ClusterTypes      []config.ClusterType
	Policies          []config.LBPolicy
	XDS               bool // a control plane may send more of the configuration
	// DubboRegistries are the supported types of registries; empty: the extension DubboRegistry is
	// not supported.
	DubboRegistries []string
}

// The network filters that this package reads.
const (
	ProxyFilter    = "proxy"
	TCPProxyFilter = "tcp_proxy"
	UDPProxyFilter = "udp_proxy"

	connectionManager = "connection_manager" // contains a route table in older files
)

// The following functions return known names, supported or not. choose adds the other supported
// names. They are functions so that no caller can change the lists.

func knownProtocols() []string {
	return []string{
		string(config.Auto), string(config.HTTP1), string(config.HTTP2), string(config.Bolt),
		string(config.BoltV2), string(config.Dubbo), string(config.DubboThrift), string(config.Tars),
	}
}

func knownNetworkFilters() []string {
	return []string{ProxyFilter, TCPProxyFilter, connectionManager, UDPProxyFilter, "tunnel", "grpc"}
}

func knownListenerFilters() []string {
	return []string{"http_inspector", "original_dst", "proxy_protocol", "tls_inspector"}
}

func knownStreamFilters() []string {
	return []string{
		"fault", "payload_limit", "gzip", "fault_tolerance", "dsl", "mirror", "dubbo_stream", "grpc_metric",
		"ip_access", "header_to_metadata", "flowControlFilter", "transcoder", "proxywasm", "mixer", "istio.stats",
		"jwt_authn", "rbac", "healthcheck", "seata",
	}
}

func knownPolicies() []string {
	return []string{
		"LB_RANDOM", "LB_ROUNDROBIN", "LB_WEIGHTED_ROUNDROBIN", "LB_LEAST_REQUEST", "LB_LEAST_CONNECTION",
		"LB_PEAK_EWMA", "LB_MAGLEV", "LB_RINGHASH", "LB_REQUEST_ROUNDROBIN", "LB_ORIGINAL_DST",
	}
}

func knownClusterTypes() []string {
	return []string{"SIMPLE", "STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS", "ORIGINAL_DST"}
}

func knownSinks() []string { return []string{prometheusSink, "console"} }

const prometheusSink = "prometheus"

// choose finds a name in supported, ignoring case, and returns it with the spelling of supported.
// Otherwise it reports an error at node. If known contains the name, the error says that the
// feature is not supported yet. If not, the error says that the name is unknown and suggests the
// nearest known name.
func choose[T ~string](r *document.Report, node document.Node, label, name string, supported []T, known []string) (T, bool) {
	for _, b := range supported {
		if strings.EqualFold(string(b), name) {
			return b, true
		}
	}
	for _, knownName := range known {
		if strings.EqualFold(knownName, name) {
			r.Unsupported(node, label+" "+knownName)
			return "", false
		}
	}
	for _, b := range supported {
		if !slices.Contains(known, string(b)) {
			known = append(slices.Clone(known), string(b))
		}
	}
	r.Unknown(node, label, name, known)
	return "", false
}
