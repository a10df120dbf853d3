package upstream

import (
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// upstreamProtocol returns what the hosts of a cluster are spoken to in for x: what the route
// says, else the cluster, else the listener, else what the caller speaks. Requests that
// cannot be said in that are refused with a Fault of NotImplemented: those of RPC in
// anything else, and calls of gRPC in HTTP/1.1 unless the cluster takes them.
func (v *ClusterPicker) upstreamProtocol(cfg *config.Cluster, x *protocol.Exchange) (config.Protocol, error) {
	caller := config.Protocol(x.Meta.Protocol)
	name := v.Protocol
	if name == "" || name == config.Auto {
		name = cfg.Protocol
	}
	if name == "" {
		name = v.Fallback
	}
	name = caller.SentIn(name)
	return name, carried(cfg, caller, name, x)
}

// carried refuses what a caller's request cannot be said in.
func carried(cfg *config.Cluster, caller, name config.Protocol, x *protocol.Exchange) error {
	switch {
	case caller == name:
		return nil
	case !caller.CarriedBy(name):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s is spoken to in %s: translation from %s is not supported yet", cfg.Name, name, caller)
	case name == config.HTTP1 && !cfg.GRPCInHTTP1 && protocol.IsGRPC(&x.Request.Header):
		return protocol.Faultf(protocol.NotImplemented, "cluster %s is spoken to in HTTP/1.1: gRPC is not carried by it", cfg.Name)
	}
	return nil
}
