package resource

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readNetworkFilters reads the network filters of a chain. It adds the inline route tables and the
// names of route resources to l.
func (p fieldReader) readNetworkFilters(list []*listenerv3.Filter, out *config.FilterChain, l *Listener) {
	isTCP := slices.ContainsFunc(list, func(f *listenerv3.Filter) bool { return isType(f.GetTypedConfig(), &tcpv3.TcpProxy{}) })
	reasonCount := len(p.report.reasons)
	for i, f := range list {
		at := p.index(i)
		if out.Proxy != nil || out.TCPProxy != nil {
			at.reject("must precede the terminal filter of the chain")
			return
		}
		packed := f.GetTypedConfig()
		hcm, dubbo, tcp := &hcmv3.HttpConnectionManager{}, &dubbov3.DubboProxy{}, &tcpv3.TcpProxy{}
		switch {
		case isType(packed, &rbacv3.RBAC{}):
			at.field("typed_config").readConnectionFilter("rbac", packed, out)
		case isTCP && at.readIstioNetworkFilter(f, out, l):
		case isIgnorableNetworkFilter(f.GetName()):
			at.key(f.GetName()).ignore()
		case isType(packed, hcm):
			if at = at.field("typed_config"); at.unpack(packed, hcm) {
				out.Proxy = at.readHTTP(hcm, l)
			}
		case isType(packed, dubbo):
			if at = at.field("typed_config"); at.unpack(packed, dubbo) {
				out.Proxy = at.readDubbo(dubbo, l)
			}
		case isType(packed, tcp):
			if at = at.field("typed_config"); at.unpack(packed, tcp) {
				out.TCPProxy = at.readTCP(tcp, l)
			}
		default:
			at.reject("%s (%s) is not supported", f.GetName(), packed.GetTypeUrl())
		}
	}
	if out.Proxy == nil && out.TCPProxy == nil && len(p.report.reasons) == reasonCount { // a rejected filter may be the terminal filter
		p.reject("the chain has no terminal filter, such as http_connection_manager or tcp_proxy")
	}
}

// readConnectionFilter reads a network filter that allows or denies connections. name is its name
// in Weft.
func (p fieldReader) readConnectionFilter(name string, packed *anypb.Any, out *config.FilterChain) {
	factory := p.report.capabilities.connectionFilterFactory(name)
	if factory == nil {
		p.rejectUnsupported()
		return
	}
	m, ok := p.unpackAny(packed)
	if !ok {
		return
	}
	if settings := p.decodeFilter(factory.Config(), m, rejectMatcherTrees); settings != nil {
		out.ConnectionFilters = append(out.ConnectionFilters, config.Filter{Name: name, Config: settings})
	}
}
