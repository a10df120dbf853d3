package resource

import (
	"time"

	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readTCP(m *tcpv3.TcpProxy, l *Listener) *config.TCPProxy {
	p.checkFields(m, []string{
		"cluster", "weighted_clusters", "idle_timeout", "access_log", "max_connect_attempts", "metadata_match", "hash_policy",
		"max_downstream_connection_duration",
	}, []string{"on_demand", "tunneling_config", "upstream_connect_mode"})
	if len(m.GetAccessLog()) > 0 && len(l.Config.AccessLogs) == 0 {
		l.Config.AccessLogs = p.field("access_log").readAccessLogs(m.GetAccessLog())
	}
	out := &config.TCPProxy{
		Cluster:            m.GetCluster(),
		Metadata:           labels(m.GetMetadataMatch().GetFilterMetadata()[lbNamespace]),
		IdleTimeout:        p.field("idle_timeout").readDuration(m.GetIdleTimeout(), time.Hour),
		MaxDuration:        p.field("max_downstream_connection_duration").readDuration(m.GetMaxDownstreamConnectionDuration(), 0),
		MaxConnectAttempts: max(1, uint32Or(m.GetMaxConnectAttempts(), 1)),
	}
	switch {
	case m.GetWeightedClusters() != nil:
		out.WeightedClusters = p.field("weighted_clusters").readWeightedTCP(m.GetWeightedClusters())
	case out.Cluster == "":
		p.field("cluster").reject("is missing")
	}
	for i, h := range m.GetHashPolicy() {
		switch h.GetPolicySpecifier().(type) {
		case *typev3.HashPolicy_SourceIp_:
			out.HashSourceIP = true
		default:
			p.field("hash_policy").index(i).rejectOneof(h, "policy_specifier", "source_ip")
		}
	}
	return out
}

func (p fieldReader) readWeightedTCP(m *tcpv3.TcpProxy_WeightedCluster) (out []config.WeightedTCPCluster) {
	if len(m.GetClusters()) == 0 {
		p.field("clusters").reject("is empty")
	}
	for i, c := range m.GetClusters() {
		at := p.field("clusters").index(i)
		at.checkFields(c, []string{"name", "weight", "metadata_match"}, nil)
		if c.GetName() == "" {
			at.field("name").reject("is required")
		}
		if c.GetWeight() == 0 {
			at.field("weight").reject("is 0, expected at least 1")
		}
		out = append(out, config.WeightedTCPCluster{
			Cluster: c.GetName(), Weight: c.GetWeight(), Metadata: labels(c.GetMetadataMatch().GetFilterMetadata()[lbNamespace]),
		})
	}
	return out
}
