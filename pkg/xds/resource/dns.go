package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commondnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readClusterDNS reads the DNS fields of a cluster without settings of a DnsCluster.
func (p fieldReader) readClusterDNS(m *clusterv3.Cluster, d *config.DNS) {
	settings := &dnsclusterv3.DnsCluster{
		DnsRefreshRate: m.GetDnsRefreshRate(), RespectDnsTtl: m.GetRespectDnsTtl(), DnsJitter: m.GetDnsJitter(),
		TypedDnsResolverConfig: m.GetTypedDnsResolverConfig(),
	}
	if f := m.GetDnsFailureRefreshRate(); f != nil {
		settings.DnsFailureRefreshRate = &dnsclusterv3.DnsCluster_RefreshRate{BaseInterval: f.GetBaseInterval(), MaxInterval: f.GetMaxInterval()}
	}
	switch m.GetDnsLookupFamily() {
	case clusterv3.Cluster_AUTO:
		settings.DnsLookupFamily = commondnsv3.DnsLookupFamily_AUTO
	case clusterv3.Cluster_V4_ONLY:
		settings.DnsLookupFamily = commondnsv3.DnsLookupFamily_V4_ONLY
	case clusterv3.Cluster_V6_ONLY:
		settings.DnsLookupFamily = commondnsv3.DnsLookupFamily_V6_ONLY
	case clusterv3.Cluster_V4_PREFERRED:
		settings.DnsLookupFamily = commondnsv3.DnsLookupFamily_V4_PREFERRED
	case clusterv3.Cluster_ALL:
		settings.DnsLookupFamily = commondnsv3.DnsLookupFamily_ALL
	default:
		p.field("dns_lookup_family").reject("%v is not supported", m.GetDnsLookupFamily())
	}
	p.readDNS(settings, d)
	switch {
	case settings.GetTypedDnsResolverConfig() != nil:
	case m.GetDnsResolutionConfig() != nil:
		at := p.field("dns_resolution_config")
		o := m.GetDnsResolutionConfig()
		at.checkFields(o, []string{"resolvers"}, nil)
		at.field("resolvers").readDNSServers(o.GetResolvers(), d)
	default:
		p.field("dns_resolvers").readDNSServers(m.GetDnsResolvers(), d)
	}
}

// readDNS reads the settings of a DnsCluster, except all_addresses_in_single_endpoint. p is the
// reader of the settings, or of a cluster with fields of the same names.
func (p fieldReader) readDNS(m *dnsclusterv3.DnsCluster, d *config.DNS) {
	d.RefreshRate = p.field("dns_refresh_rate").readDNSInterval(m.GetDnsRefreshRate(), 0)
	d.RespectTTL = m.GetRespectDnsTtl()
	minRefresh := p.field("dns_min_refresh_rate")
	if d.MinTTL = minRefresh.readDuration(m.GetDnsMinRefreshRate(), 0); m.GetDnsMinRefreshRate() != nil && d.MinTTL < time.Second {
		minRefresh.reject("is %v, expected at least 1s", d.MinTTL)
	}
	d.Jitter = p.field("dns_jitter").readDuration(m.GetDnsJitter(), 0)
	if f := m.GetDnsFailureRefreshRate(); f != nil {
		p.field("dns_failure_refresh_rate").readDNSFailureRate(f, d)
	}
	if m.GetTypedDnsResolverConfig() != nil {
		p.field("typed_dns_resolver_config").readResolver(m.GetTypedDnsResolverConfig(), d)
	}
	switch family := m.GetDnsLookupFamily(); family {
	case commondnsv3.DnsLookupFamily_UNSPECIFIED:
		d.Family = commondnsv3.DnsLookupFamily_AUTO.String()
	case commondnsv3.DnsLookupFamily_AUTO, commondnsv3.DnsLookupFamily_V4_ONLY, commondnsv3.DnsLookupFamily_V6_ONLY,
		commondnsv3.DnsLookupFamily_V4_PREFERRED, commondnsv3.DnsLookupFamily_ALL:
		d.Family = family.String()
	default:
		p.field("dns_lookup_family").reject("%v is not supported", family)
	}
}

func (p fieldReader) readDNSFailureRate(m *dnsclusterv3.DnsCluster_RefreshRate, d *config.DNS) {
	if m.GetBaseInterval() == nil {
		p.field("base_interval").reject("is missing")
		return
	}
	d.FailureBackoffBase = p.field("base_interval").readDNSInterval(m.GetBaseInterval(), 0)
	d.FailureBackoffMax = p.field("max_interval").readDNSInterval(m.GetMaxInterval(), 10*d.FailureBackoffBase)
	if d.FailureBackoffMax < d.FailureBackoffBase {
		p.field("max_interval").reject("is %v, expected at least base_interval, %v", d.FailureBackoffMax, d.FailureBackoffBase)
	}
}

// readDNSInterval is readDuration for an interval that must be longer than 1 ms.
func (p fieldReader) readDNSInterval(m *durationpb.Duration, fallback time.Duration) time.Duration {
	interval := p.readDuration(m, fallback)
	if m != nil && interval <= time.Millisecond {
		p.reject("is %v, expected more than 1ms", interval)
	}
	return interval
}

// readResolver reads the DNS servers and the query options. It ignores resolver types other than
// c-ares.
func (p fieldReader) readResolver(m *corev3.TypedExtensionConfig, d *config.DNS) {
	cares := &caresv3.CaresDnsResolverConfig{}
	at := p.field("typed_config")
	switch packed := m.GetTypedConfig(); {
	case packed == nil:
		at.reject("is missing")
	case !isType(packed, cares):
		p.ignore()
	case at.unpack(packed, cares):
		at.checkFields(cares, []string{"resolvers", "query_timeout_seconds", "query_tries"}, []string{"use_resolvers_as_fallback"})
		at.field("resolvers").readDNSServers(cares.GetResolvers(), d)
		d.Timeout = time.Duration(min(cares.GetQueryTimeoutSeconds().GetValue(), uint64(maxDuration/time.Second))) * time.Second //nolint:gosec // bounded by min
		d.Attempts = uint32Or(cares.GetQueryTries(), 0)
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
