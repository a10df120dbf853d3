package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readDNS(m *clusterv3.Cluster, d *config.DNS) {
	d.RefreshRate = p.field("dns_refresh_rate").readDuration(m.GetDnsRefreshRate(), 0)
	d.RespectTTL = m.GetRespectDnsTtl()
	d.Jitter = p.field("dns_jitter").readDuration(m.GetDnsJitter(), 0)
	if f := m.GetDnsFailureRefreshRate(); f != nil {
		at := p.field("dns_failure_refresh_rate")
		d.FailureBackoffBase = at.field("base_interval").readDuration(f.GetBaseInterval(), 0)
		d.FailureBackoffMax = at.field("max_interval").readDuration(f.GetMaxInterval(), 10*d.FailureBackoffBase)
	}
	p.readResolvers(m, d)
	switch m.GetDnsLookupFamily() {
	case clusterv3.Cluster_AUTO, clusterv3.Cluster_V4_ONLY, clusterv3.Cluster_V6_ONLY, clusterv3.Cluster_V4_PREFERRED, clusterv3.Cluster_ALL:
		d.Family = m.GetDnsLookupFamily().String()
	default:
		p.field("dns_lookup_family").reject("%v is not supported", m.GetDnsLookupFamily())
	}
}

// readResolvers reads the DNS servers and the query options. It ignores resolver types other than
// c-ares.
func (p fieldReader) readResolvers(m *clusterv3.Cluster, d *config.DNS) {
	packed, cares := m.GetTypedDnsResolverConfig().GetTypedConfig(), &caresv3.CaresDnsResolverConfig{}
	switch at := p.field("typed_dns_resolver_config"); {
	case isType(packed, cares):
		if at = at.field("typed_config"); !at.unpack(packed, cares) {
			return
		}
		at.checkFields(cares, []string{"resolvers", "query_timeout_seconds", "query_tries"}, []string{"use_resolvers_as_fallback"})
		at.field("resolvers").readDNSServers(cares.GetResolvers(), d)
		d.Timeout = time.Duration(min(cares.GetQueryTimeoutSeconds().GetValue(), uint64(maxDuration/time.Second))) * time.Second //nolint:gosec // bounded by min
		d.Attempts = uint32Or(cares.GetQueryTries(), 0)
	case packed != nil:
		at.ignore()
	case m.GetDnsResolutionConfig() != nil:
		at := p.field("dns_resolution_config")
		o := m.GetDnsResolutionConfig()
		at.checkFields(o, []string{"resolvers"}, nil)
		at.field("resolvers").readDNSServers(o.GetResolvers(), d)
	default:
		p.field("dns_resolvers").readDNSServers(m.GetDnsResolvers(), d)
	}
}

func (p fieldReader) readDNSServers(servers []*corev3.Address, d *config.DNS) {
	for i, s := range servers {
		if socket := s.GetSocketAddress(); socket.GetProtocol() == corev3.SocketAddress_UDP {
			s = proto.CloneOf(s) // the protocol of a DNS server has no effect; readAddress accepts only TCP
			s.GetSocketAddress().Protocol = corev3.SocketAddress_TCP
		}
		address, ok := p.index(i).readAddress(s, false)
		if !ok {
			continue
		}
		server, err := netip.ParseAddrPort(address)
		if err != nil {
			p.index(i).reject("expected socket_address")
			continue
		}
		if server.Port() == 0 {
			server = netip.AddrPortFrom(server.Addr(), 53)
		}
		d.Resolvers = append(d.Resolvers, server.String())
	}
}
