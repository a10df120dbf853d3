package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	dnsclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/config"
)

// dnsCluster contains the settings of a DnsCluster and their reader.
type dnsCluster struct {
	settings *dnsclusterv3.DnsCluster
	reader   fieldReader
}

// readDiscoveryType reads type or cluster_type and the settings that belong to it.
func (p fieldReader) readDiscoveryType(m *clusterv3.Cluster, c *Cluster) {
	if custom := m.GetClusterType(); isType(custom.GetTypedConfig(), &aggregatev3.ClusterConfig{}) {
		p.readAggregate(m, c.Config)
		return
	}
	out, oneHostBecause := c.Config, "the cluster has the type LOGICAL_DNS"
	discovery, dns := m.GetType(), (*dnsCluster)(nil)
	if custom := m.GetClusterType(); custom != nil {
		var ok bool
		if discovery, dns, ok = p.field("cluster_type").readClusterType(custom); !ok {
			return
		}
		if dns != nil {
			oneHostBecause = "all_addresses_in_single_endpoint of cluster_type is true"
		}
	}
	if discovery != clusterv3.Cluster_EDS && m.GetEdsClusterConfig() != nil {
		p.field("eds_cluster_config").reject("is set, but the cluster does not have the type EDS")
	}
	switch discovery {
	case clusterv3.Cluster_STATIC:
		out.Type = config.ClusterStatic
	case clusterv3.Cluster_STRICT_DNS:
		out.Type = config.ClusterStrictDNS
	case clusterv3.Cluster_LOGICAL_DNS:
		out.Type = config.ClusterLogicalDNS
	case clusterv3.Cluster_ORIGINAL_DST:
		out.Type = config.ClusterOriginalDst
		p.readOriginalDst(m, out)
	case clusterv3.Cluster_EDS:
		p.readEDS(m, c)
		return
	default:
		p.field("type").reject("%v is not supported", discovery)
	}
	if a := m.GetLoadAssignment(); a != nil {
		c.inlineAssignment = p.field("load_assignment").readAssignment(a, out.Type.UsesDNS())
	}
	if out.Type == config.ClusterLogicalDNS && (c.inlineAssignment == nil || len(c.inlineAssignment.Endpoints) != 1) {
		p.field("load_assignment").reject("expected exactly one host, because %s", oneHostBecause)
	}
	switch {
	case dns != nil:
		p.ignoreDNSFields(m)
		dns.reader.readDNS(dns.settings, &out.DNS)
	case out.Type.UsesDNS():
		p.readClusterDNS(m, &out.DNS)
	}
}

// readAggregate reads a cluster whose hosts are those of other clusters.
func (p fieldReader) readAggregate(m *clusterv3.Cluster, out *config.Cluster) {
	out.Type, out.LBPolicy = config.ClusterAggregate, config.LBAggregate
	for _, name := range []string{"load_assignment", "eds_cluster_config", "health_checks", "outlier_detection", "lb_subset_config"} {
		if r := m.ProtoReflect(); r.Has(r.Descriptor().Fields().ByName(protoreflect.Name(name))) {
			p.field(name).ignore() // the cluster has no hosts of its own
		}
	}
	o, at := &aggregatev3.ClusterConfig{}, p.field("cluster_type").field("typed_config")
	if !at.unpack(m.GetClusterType().GetTypedConfig(), o) {
		return
	}
	at.checkFields(o, []string{"clusters"}, nil)
	if out.Aggregate = o.GetClusters(); len(out.Aggregate) == 0 {
		at.field("clusters").reject("is empty")
	}
}

func (p fieldReader) readEDS(m *clusterv3.Cluster, c *Cluster) {
	c.Config.Type = config.ClusterStatic
	eds := m.GetEdsClusterConfig()
	c.EDSServiceName = eds.GetServiceName()
	if c.EDSServiceName == "" {
		c.EDSServiceName = m.GetName()
	}
	at := p.field("eds_cluster_config").field("eds_config")
	at.checkConfigSource(eds.GetEdsConfig())
	c.InitialFetchTimeout = at.field("initial_fetch_timeout").readDuration(eds.GetEdsConfig().GetInitialFetchTimeout(), DefaultFetchTimeout)
}

// These are the names of the cluster types that Weft supports, and of EDS.
const (
	clusterTypeDNS         = "envoy.cluster.dns"
	clusterTypeEDS         = "envoy.cluster.eds"
	clusterTypeLogicalDNS  = "envoy.cluster.logical_dns"
	clusterTypeOriginalDst = "envoy.cluster.original_dst"
	clusterTypeStatic      = "envoy.cluster.static"
	clusterTypeStrictDNS   = "envoy.cluster.strict_dns"
)

// readClusterType returns the equivalent of m among the values of the field type. As in Envoy, the
// type of the settings takes precedence over the name. Without settings, or if they are a Struct,
// the name decides. dns is nil unless the cluster uses the settings of a DnsCluster instead of
// the DNS fields of Cluster. ok is false if m is rejected.
func (p fieldReader) readClusterType(m *clusterv3.Cluster_CustomClusterType) (discovery clusterv3.Cluster_DiscoveryType, dns *dnsCluster, ok bool) {
	settings, packed, at := &dnsclusterv3.DnsCluster{}, m.GetTypedConfig(), p.field("typed_config")
	switch {
	case m.GetName() == "":
		p.field("name").reject("is missing")
		return 0, nil, false
	case isType(packed, settings):
		if !at.unpack(packed, settings) {
			return 0, nil, false
		}
	case packed != nil && !isType(packed, &structpb.Struct{}):
		at.reject("%s is not supported", packed.GetTypeUrl())
		return 0, nil, false
	case m.GetName() != clusterTypeDNS:
		discovery, ok = p.field("name").discoveryTypeOf(m.GetName())
		if packed != nil {
			at.ignore() // these types have no settings
		}
		return discovery, nil, ok
	case packed != nil && !at.unpackStruct(packed, settings):
		return 0, nil, false
	}
	discovery = clusterv3.Cluster_STRICT_DNS
	if settings.GetAllAddressesInSingleEndpoint() {
		discovery = clusterv3.Cluster_LOGICAL_DNS
	}
	return discovery, &dnsCluster{settings, at}, true
}

// discoveryTypeOf returns the discovery type of a cluster type without settings of its own.
func (p fieldReader) discoveryTypeOf(name string) (discovery clusterv3.Cluster_DiscoveryType, ok bool) {
	switch name {
	case clusterTypeStatic:
		return clusterv3.Cluster_STATIC, true
	case clusterTypeStrictDNS:
		return clusterv3.Cluster_STRICT_DNS, true
	case clusterTypeLogicalDNS:
		return clusterv3.Cluster_LOGICAL_DNS, true
	case clusterTypeOriginalDst:
		return clusterv3.Cluster_ORIGINAL_DST, true
	case clusterTypeEDS:
		// Envoy requires eds_cluster_config for this name, and rejects it without "type": "EDS".
		p.reject("%s cannot have the required eds_cluster_config: set type to EDS instead of cluster_type", name)
	default:
		p.reject("%q is not supported, expected %s", name, alternatives([]string{
			clusterTypeStatic, clusterTypeDNS, clusterTypeStrictDNS, clusterTypeLogicalDNS, clusterTypeOriginalDst,
		}))
	}
	return 0, false
}

// unpackStruct decodes a Struct in packed as the JSON form of out, and reports whether it
// succeeded. Otherwise it rejects the field.
func (p fieldReader) unpackStruct(packed *anypb.Any, out *dnsclusterv3.DnsCluster) bool {
	s := &structpb.Struct{}
	if !p.unpack(packed, s) {
		return false
	}
	text, err := protojson.Marshal(s)
	if err == nil {
		err = protojson.UnmarshalOptions{RecursionLimit: maxMessageDepth}.Unmarshal(text, out)
	}
	if err != nil {
		p.reject("%s", malformedReason(err))
		return false
	}
	return true
}

// ignoreDNSFields reports the DNS fields of a cluster that has settings of a DnsCluster.
func (p fieldReader) ignoreDNSFields(m *clusterv3.Cluster) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		if isDNS := strings.HasPrefix(name, "dns_") || name == "respect_dns_ttl" || name == "typed_dns_resolver_config"; isDNS && m.ProtoReflect().Has(fields.Get(i)) {
			p.field(name).ignore()
		}
	}
}
