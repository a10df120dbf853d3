package upstream

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// upstreamProtocol returns the protocol in which x is sent to the hosts: that of the route, else of
// the cluster, else of the listener, else of the downstream connection. It returns a Fault of
// NotImplemented for a request that this protocol cannot carry: RPC in any other protocol, and gRPC
// in HTTP/1.1 unless the cluster allows it.
func (cp *ClusterPicker) upstreamProtocol(cfg *config.Cluster, x *protocol.Exchange) (config.Protocol, error) {
	downstream := config.Protocol(x.Meta.Protocol)
	upstream := cp.Protocol
	if upstream == "" || upstream == config.Auto {
		upstream = cfg.Protocol
	}
	if upstream == "" {
		upstream = cp.FallbackProtocol
	}
	upstream = downstream.UpstreamProtocol(upstream)
	return upstream, checkUpstreamProtocol(cfg, downstream, upstream, x)
}

// checkUpstreamProtocol returns a Fault if the upstream protocol cannot carry the request x, which
// arrived in the downstream protocol.
func checkUpstreamProtocol(cfg *config.Cluster, downstream, upstream config.Protocol, x *protocol.Exchange) error {
	switch {
	case downstream == upstream:
		return nil
	case !downstream.CanSendAs(upstream):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s uses the protocol %s: translation from %s is not supported yet", cfg.Name, upstream, downstream)
	case upstream == config.HTTP1 && !cfg.GRPCOverHTTP1 && protocol.IsGRPC(&x.Request.Header):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s uses HTTP/1.1, which cannot carry gRPC requests", cfg.Name)
	}
	return nil
}
