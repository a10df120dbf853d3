package upstream

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// upstreamProtocol returns the protocol in which x is sent to the hosts: that of the route, else of
// the cluster, else of the listener, else of the downstream. It returns a Fault of NotImplemented
// for a request that this protocol cannot carry: RPC in any other protocol, and gRPC in HTTP/1.1
// unless the cluster allows it.
func (v *ClusterPicker) upstreamProtocol(cfg *config.Cluster, x *protocol.Exchange) (config.Protocol, error) {
	caller := config.Protocol(x.Meta.Protocol)
	name := v.Protocol
	if name == "" || name == config.Auto {
		name = cfg.Protocol
	}
	if name == "" {
		name = v.Fallback
	}
	name = caller.UpstreamProtocol(name)
	return name, checkCarried(cfg, caller, name, x)
}

// checkCarried returns a Fault if the upstream protocol, name, cannot carry the request x, which
// arrived in the protocol caller.
func checkCarried(cfg *config.Cluster, caller, name config.Protocol, x *protocol.Exchange) error {
	switch {
	case caller == name:
		return nil
	case !caller.CanSendAs(name):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s uses the protocol %s: translation from %s is not supported yet", cfg.Name, name, caller)
	case name == config.HTTP1 && !cfg.GRPCOverHTTP1 && protocol.IsGRPC(&x.Request.Header):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s uses HTTP/1.1, which cannot carry gRPC requests", cfg.Name)
	}
	return nil
}
